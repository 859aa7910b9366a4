//! The loop serves another protocol than ours.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod second_protocol;
mod sectors;
