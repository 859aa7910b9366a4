//! Sessions and listeners, by script.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod admission;
mod amplification;
mod block_status;
mod door;
mod echo;
mod evictions;
mod farewells;
mod fast_fail;
mod fences;
mod floods;
mod grants;
mod held;
mod hostile;
mod hostile_sequences;
mod keys;
mod pair;
mod placed;
mod protocol;
mod removals;
mod rotation;
mod same_key;
mod stages;
mod stalls;
mod takeover;
