//! The loop with real threads: hosts and targets over links in memory and of the kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod limits;
mod loops;
mod losses;
mod pollers;
mod queues;
mod removals;
mod restore;
mod rig;
mod stages;
mod tcp;
