//! A lane of the initiator, and a target that follows a script.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod document;
mod golden;
mod hostile;
mod logins;
mod reads;
mod recovery;
mod script;
mod writes;
