//! Commands, pages and verdicts.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod cdbs;
mod corpus;
mod discovery;
mod hostile;
mod literals;
mod pages;
mod roundtrip;
mod server;
mod target;
mod verdicts;
