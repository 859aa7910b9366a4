//! Ports that find each other and log in, on a simulated network.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../air/mod.rs"]
mod air;
mod fabric;
mod logins;
mod network;
#[path = "../offers/mod.rs"]
mod offers;
mod script;
mod strangers;
