//! The host's end: a session, the initiators of its channels, and its operations.

pub(crate) mod initiator;
pub(crate) mod load;
pub(crate) mod operation;
pub(crate) mod session;
