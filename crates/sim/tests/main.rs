//! Directed scenarios, seeds and measures in simulated worlds.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod credits;
mod devices;
mod disks;
mod drive;
mod edges;
mod fcoe;
mod limits;
mod links;
mod scenarios;
mod seeds;
mod sessions;
mod slow;
mod throughput;
mod udp;
