//! The driver of Tyche for the Container Storage Interface (CSI): disks of targets for the pods of
//! an orchestrator such as Kubernetes.
//!
//! One program has both halves. The *controller* makes, copies, enlarges and deletes exports in the
//! pools of targets, and says which nodes may have them. The *node* part, on each machine,
//! connects them, makes their file systems, and mounts them where workloads look for them.
//!
//! It keeps no state. A volume is an export, and what is true of it is at its target; what is
//! connected and mounted is known to the sessions and to the kernel. All of that is asked for and
//! changed through the program `tyche` and its documented output, so any version of the one works
//! with any later version of the other. A request that was interrupted can be repeated: it finds
//! what has been done, and does the rest.

#![forbid(unsafe_code)]

mod capability;
mod controller;
mod ids;
mod locks;
mod node;
mod options;
mod parameters;
mod program;
mod proto;
mod server;
mod services;
mod target;
mod tyche;

pub use options::Options;
pub use server::run;
