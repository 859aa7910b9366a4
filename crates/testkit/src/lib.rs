//! Helpers that tests of several crates share. Only tests depend on it, and it depends on no crate
//! of ours, so that the tests of every crate can use it. Its functions panic where a test would.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

pub mod allocations;
pub mod alone;
pub mod corpus;
pub mod document;
pub mod golden;
pub mod instructions;
pub mod leaks;
pub mod needs;
pub mod net;
pub mod process;
pub mod random;
pub mod stopped;
pub mod wait;
