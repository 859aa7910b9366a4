//! Deterministic simulation of hosts, a target, and the network between them.
//!
//! Everything that could differ between two runs is simulated and follows from one `u64`, the seed:
//! the clock, the network, the disk, crashes, and the workload. The protocol is not simulated: the
//! state machines are the real ones, and so are the bytes of every frame. Hosts run the engine's
//! [`Driver`](tyche_native::Driver) and the target its [`Exporter`](tyche_native::Exporter), to
//! which network and disks look like any other link and store.
//!
//! ```text
//! plan      what a seed draws: sizes, faults, who takes part
//!   edges   ├ numbers that wrap, several exports and writers, who breaks the protocol
//!   keys    ├ who has them, and an adversary
//!   udp     └ segments over which frames travel in trains of UDP datagrams
//! world     drives hosts and target, and lets things happen
//!   hosts   ├ the engine's drivers over simulated links, workload
//!   exports ├ the exports of the target, each with a disk and a history
//!   breaker ├ a host that breaks the protocol
//!   network ├ segments, who is plugged in to them, frames in flight
//!   target  ├ the engine's exporters over simulated links and stores
//!   disk    ├ two images: what is seen, and what would survive
//!   others  └ strangers, clones, frames of former lives, and a forger who hears the segments
//! history   the checker: what every sector may hold
//! run       faults, then calm, then reading back
//! canary    the same with one rule broken: the checker must notice
//! ```

#![forbid(unsafe_code)]

mod canary;
mod content;
mod disk;
mod fcoe;
mod history;
mod host;
mod keys;
mod link;
mod memory;
mod mistake;
mod network;
mod options;
mod plan;
mod queues;
mod random;
mod report;
mod request;
mod run;
mod schedule;
mod store;
mod target;
mod trace;
mod world;

pub use canary::{canaries, hunt};
pub use network::Station;
pub use options::Options;
pub use plan::{
    BreakerPlan, ClonePlan, DiskPlan, ExportPlan, Faults, ForgerPlan, HostPlan, Incidents,
    LinkPlan, Mix, Plan, Profile, Promises, SegmentPlan, StrangerPlan, Strangers, TargetPlan,
    TrainFaults, UdpPlan,
};
pub use report::{Caught, Report, Violation};
pub use run::run;
pub use world::World;
