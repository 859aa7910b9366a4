//! Ports on a simulated network without a fabric: addresses that collide, restarts, lost and
//! repeated frames, and strangers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../air/mod.rs"]
mod air;
mod collisions;
mod hostile;
mod life;
mod network;
