//! The driver, against a target and hosts in network namespaces, as an orchestrator uses it.
//!
//! They need root, and run one at a time: each has a file system, loop devices and daemons of its
//! own.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod client;
mod fencing;
mod kills;
mod lines;
mod parallel;
mod rig;
mod sanity;
mod snapshots;
mod volumes;
