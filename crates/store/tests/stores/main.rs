//! The stores against the real kernel.

#![allow(clippy::unwrap_used, reason = "the lint's exception for tests overlooks their helpers")]

mod block_device;
mod drive;
mod faults;
mod file;
mod locking;
mod memory;
mod model;
mod opening;
mod teardown;
