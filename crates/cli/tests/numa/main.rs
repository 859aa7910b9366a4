//! Placement on a machine with two NUMA nodes and a last-level cache for each CPU: `cargo xtask
//! numa` boots one and runs these tests there.
//!
//! ```text
//! node 0: CPU 0, 2    t0 ──── h0      t: the target's interfaces
//! node 1: CPU 1, 3    t1 ──── h1      h: the host's
//! ```
//!
//! The tests compare the programs' own reports (`tyche stats`, by `move_pages`) with the kernel's
//! (`/proc/PID/numa_maps`). On other machines they are ignored.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod host;
mod maps;
mod rig;
mod target;
