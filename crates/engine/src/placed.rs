//! Where a link and what belongs to it are, on a machine with several NUMA nodes.

use tyche_block::Arena;
use tyche_link::Link;
use tyche_numa::{Cpus, Home, Near, Node, allowed_cpus};

/// Where a link and what belongs to it are. What is empty the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkNodes {
    /// The node of its interface, if there is one.
    pub nic: Option<Node>,
    /// The nodes of the memory that it shares with the kernel.
    pub ring: Vec<Node>,
    /// The nodes of its channels' data.
    pub channels: Vec<Node>,
    /// The CPUs that its thread may run on.
    pub cpus: Cpus,
}

impl LinkNodes {
    /// As the thread of the link sees it.
    pub(crate) fn new(home: &Home, link: &dyn Link, channels: Vec<Node>) -> Self {
        // A kernel that does not tell on which CPUs we run tells nothing.
        let cpus = allowed_cpus().unwrap_or_default();
        Self { nic: home.nic, ring: link.memory_nodes(), channels, cpus }
    }
}

/// Memory of a channel at home. If it cannot be there any more, it is anywhere.
pub(crate) fn arena(home: &Home, pages: usize) -> Arena {
    let near = home.node().map(|node| Arena::on(pages, node)).transpose();
    near.unwrap_or_else(|error| {
        tracing::warn!("a channel has its memory anywhere: {error}");
        None
    })
    .unwrap_or_else(|| Arena::new(pages))
}

/// Takes the calling thread home: it runs there, and its memory comes from there while the result
/// lives. That this was possible has been seen before; if it is no more, the work goes on from
/// further away.
pub(crate) fn move_in(home: &Home, thread: &str) -> Option<Near> {
    if let Err(error) = home.pin() {
        tracing::warn!(thread, "runs anywhere: {error}");
    }
    home.near().unwrap_or_else(|error| {
        tracing::warn!(thread, "has its memory anywhere: {error}");
        None
    })
}
