//! Fibre Channel over Ethernet as sans-IO state machines. No clock, no system call, no thread: the
//! caller brings time, random numbers and frames, and sends what it is given.
//!
//! | | what it does | standard |
//! |---|---|---|
//! | [`neighbour`] | addresses and neighbours, as all below know them | |
//! | [`vn2vn`] | chooses an address on a network without a fabric, and finds neighbours | FC-BB-6 |
//! | [`enode`] | gets an address from a fabric, and finds neighbours there | FC-BB-6, FC-GS-6 |
//! | [`network`] | one of these two | |
//! | [`port`] | logs in to neighbours, and out | FC-LS-2, FC-BB-6 |
//! | [`exchange`] | numbers, quarantines and timers of the exchanges of a lane | FC-FS-3 |
//! | [`initiator`] | commands and their data; recovery of what is lost | FCP-4 |
//! | [`target_end`] | has commands of initiators executed | FCP-4 |
//!
//! Each takes one input at a time and is then drained of its outputs. Memory is bounded. A frame
//! that is wrong, or not for us, is a named counter, never an error and never a panic; our own
//! invariants are assertions.

#![forbid(unsafe_code)]

pub mod enode;
pub mod exchange;
pub mod initiator;
pub mod neighbour;
pub mod network;
mod numbers;
mod outgoing;
mod outputs;
pub mod port;
mod random;
mod received;
mod rules;
pub mod target_end;
pub mod vn2vn;

pub use outgoing::{Outgoing, PAYLOAD_MAX, Part};
pub use rules::{AllRules, Rule, Rules};
pub use tyche_fc_wire as wire;
