//! The commands that stay: the daemon of a session, that of a target, and the exporter of metrics.

pub(crate) mod connect;
pub(crate) mod exporter;
pub(crate) mod serve;
