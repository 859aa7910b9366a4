//! Placement on machines with non-uniform memory access (NUMA).
//!
//! Such a machine has *nodes*: CPUs, memory and devices that are close to each other. A frame that
//! a network interface of one node writes into memory of another, and that a CPU of a third reads,
//! crosses the links between them each time. So all parts of a channel belong on the node of its
//! interface (J. Supercomputing 72, 2016: up to twice the throughput).
//!
//! ```text
//! Topology    nodes, caches, their CPUs, those of an interface        /sys, /proc
//! Placement   a Topology, and what the user wants placed (Affinity)
//! Home        where one link belongs
//! pin         where the calling thread runs                           sched_setaffinity
//! Near        while it lives, this thread's memory comes from a node  set_mempolicy
//! bind        memory that is there already                            mbind
//! nodes_of    where memory is, as the kernel says                     move_pages
//! ```
//!
//! Memory is *preferred* on a node, never demanded: if a node has none left, memory of another is
//! slower, but better than none. [`nodes_of`] shows the result.
//!
//! On a machine with one node every [`NumaAffinity`] is without a node. But a node of today's
//! processors has several last-level caches, and [`Topology::cache_for`] chooses one for a process.

mod cache;
mod error;
mod interface;
mod memory;
mod node;
mod placement;
mod syscall;
mod thread;
mod topology;

pub use error::Error;
pub use memory::{Near, bind, nodes_of};
pub use node::{Cpus, Node, NotAList};
pub use placement::{Affinity, NumaAffinity, Placement};
pub use thread::{allowed_cpus, cpus_of, pin};
pub use topology::Topology;
