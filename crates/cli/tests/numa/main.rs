//! Placement on a machine with two NUMA nodes: `cargo xtask numa` boots one and runs this there.
//!
//! ```text
//! node 0: CPU 0, 2    t0 ──── h0      t: the target's interfaces
//! node 1: CPU 1, 3    t1 ──── h1      h: the host's
//! ```
//!
//! What the programs say of themselves (`tyche stats`, by `move_pages`) is held against what the
//! kernel says of them (`/proc/PID/numa_maps`). Everywhere else these tests are ignored.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod host;
mod maps;
mod rig;
mod target;
