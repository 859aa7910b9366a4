//! The commands that stay: the daemon of a session, and that of a target.

pub(crate) mod connect;
pub(crate) mod serve;
