//! Why something cannot be placed.

use std::io;
use std::path::PathBuf;

use crate::{Cpus, Node};

/// One line that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not tell what the machine is like.
    #[error("{}: {source}; without /sys nothing can be placed on NUMA nodes", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It tells something that nobody understands.
    #[error("{}: `{text}` is no list of numbers such as 0-3,8", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// A system call is not for this process.
    #[error(
        "the kernel refuses {call}: {source}; let the container's seccomp profile allow \
         set_mempolicy, mbind and move_pages, or do without NUMA affinity"
    )]
    Refused {
        /// Its name.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The process may use no memory of the node.
    #[error("node {node} has no memory for this process; widen its cpuset.mems to the node")]
    NoMemory {
        /// The node.
        node: Node,
    },
    /// The process may run on no CPU of the node.
    #[error(
        "node {node} has the CPUs {cpus}, and this process may run on {allowed} only; \
         widen its cpuset (or taskset) to the node"
    )]
    NoCpus {
        /// The node.
        node: Node,
        /// Those of the node.
        cpus: Cpus,
        /// Those of the process.
        allowed: Cpus,
    },
}
