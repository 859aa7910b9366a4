//! The control port: hostile guests, and admins beside them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod corpus;
mod hostile;
mod middle;
mod port;
mod rig;
mod strangers;
