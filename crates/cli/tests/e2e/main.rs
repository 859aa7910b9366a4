//! End to end: the real program, real network interfaces, devices, file systems and clients.
//!
//! Each test has two network namespaces joined by a veth pair, with a target in one and sessions in
//! the other. The tests need root, FUSE and loop devices; otherwise they print `SKIPPED` and why.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod access;
mod admins;
mod bench;
mod channels;
mod churn;
mod complete;
mod cuts;
mod demo;
mod disks;
mod doctor;
mod early;
mod ends;
mod exporter;
mod exports;
mod fabric;
mod fault;
mod fcoe;
mod files;
mod filesystem;
mod flood;
mod foreground;
mod forged;
mod handover;
mod hosts;
mod hung;
mod idle;
mod keys;
mod keys_outages;
#[path = "../lab/mod.rs"]
mod lab;
mod leaks;
mod links;
mod load;
mod loss;
mod memory;
mod messages;
mod missing;
mod nbd;
mod outside;
mod placement;
mod pools;
mod queues;
mod rdma;
mod refusals;
mod reload;
mod renames;
mod resize;
mod rig;
mod scarce;
mod stages;
mod state;
mod strangers;
mod tcp;
mod top;
mod trust;
mod udp;
mod udp_search;
mod units;
mod why;
