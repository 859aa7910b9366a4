//! A port in a fabric, by script: what it sends when, and what it does not take.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod directory;
mod links;
#[path = "../offers/mod.rs"]
mod offers;
mod script;
