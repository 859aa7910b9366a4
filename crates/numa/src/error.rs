//! Errors of placement.

use std::io;
use std::path::PathBuf;

use crate::{Cpus, Node};

/// An error, as one line with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not describe the machine.
    #[error("{}: {source}; without /sys nothing can be placed on NUMA nodes", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The description is not a list of numbers.
    #[error("{}: `{text}` is no list of numbers such as 0-3,8", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The content of the file.
        text: String,
    },
    /// A system call is denied to this process.
    #[error(
        "the kernel refuses {call}: {source}; let the container's seccomp profile allow \
         set_mempolicy, mbind and move_pages, or do without NUMA affinity"
    )]
    Refused {
        /// The name of the call.
        call: &'static str,
        /// The system's error.
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
        /// The CPUs of the node.
        cpus: Cpus,
        /// The CPUs that the process may use.
        allowed: Cpus,
    },
}
