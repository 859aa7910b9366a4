//! Every kind of link carries frames.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod harness;
mod hostile;
mod hostile_windows;
mod interfaces;
mod members;
mod memory;
mod placement;
mod rdma;
mod tcp;
mod udp;
mod veth;
mod wrappers;
