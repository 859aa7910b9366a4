//! A lane of a target, and initiators that follow a script.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod commands;
mod document;
mod endings;
mod golden;
mod hostile;
mod rig;
mod services;
mod shares;
mod writes;
