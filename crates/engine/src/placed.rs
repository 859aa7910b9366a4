//! Placement of threads and memory on a machine with several NUMA nodes.
//!
//! A place is verified before anything starts. If it is refused later, because the cpuset has
//! changed, the work continues on other nodes, and the log reports it.

use std::io;

use tyche_block::{Arena, ArenaSize};
use tyche_link::Link;
use tyche_numa::{Cpus, Near, Node, NumaAffinity, Placement, allowed_cpus, pin};

/// NUMA nodes of a link and its parts. Empty fields are unknown to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkNodes {
    /// The node of its interface, if known.
    pub nic: Option<Node>,
    /// The nodes of the memory that it shares with the kernel.
    pub ring: Vec<Node>,
    /// The nodes of its channels' memory: a target's data queues, a host's batches.
    pub channels: Vec<Node>,
    /// The CPUs that its thread may run on.
    pub cpus: Cpus,
}

/// NUMA nodes of a session and its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNodes {
    /// By queue, the node that its thread is bound to; `None` if it is not bound.
    pub threads: Vec<Option<Node>>,
    /// The CPUs that its threads may run on.
    pub cpus: Cpus,
    /// The nodes of the memory for requests.
    pub buffers: Vec<Node>,
}

/// The CPUs that the calling thread may run on, as far as the kernel tells.
pub fn own_cpus() -> Cpus {
    allowed_cpus().unwrap_or_default()
}

/// The placement of a link.
pub fn home(placement: &Placement, link: &dyn Link) -> NumaAffinity {
    let home = placement.home(link.name());
    home.unwrap_or_else(|error| {
        tracing::warn!(link = link.name(), "is not placed: {error}");
        NumaAffinity::default()
    })
}

/// Allocates the calling thread's memory at `home` while the result lives.
pub fn near(home: &NumaAffinity) -> Option<Near> {
    home.near().unwrap_or_else(|error| {
        tracing::warn!("memory is anywhere: {error}");
        None
    })
}

/// Memory for the data of a channel.
///
/// # Errors
/// The system's error if there is none.
pub fn channel_arena(home: &NumaAffinity, pages: usize) -> io::Result<Arena> {
    arena_at(home, pages, (Arena::untouched, Arena::untouched_on))
}

/// As [`channel_arena`], but what the size keeps is allocated now, and the rest is held back.
///
/// # Errors
/// As that.
pub fn elastic_arena(home: &NumaAffinity, size: ArenaSize) -> io::Result<Arena> {
    if size.is_elastic() {
        return arena_at(home, size, (Arena::elastic, Arena::elastic_on));
    }
    arena_at(home, size.all, (Arena::try_new, Arena::on))
}

/// Makes an arena of some size anywhere, or on a node.
type Make<S> = (fn(S) -> io::Result<Arena>, fn(S, Node) -> io::Result<Arena>);

fn arena_at<S: Copy>(home: &NumaAffinity, size: S, (anywhere, on): Make<S>) -> io::Result<Arena> {
    let Some(node) = home.node() else { return anywhere(size) };
    on(size, node).or_else(|error| {
        let arena = anywhere(size)?;
        tracing::warn!("memory is anywhere: {error}");
        Ok(arena)
    })
}

/// Memory for the requests of a session whose thread is at `home`. A session of one queue has it
/// spread over the nodes if the placement says so; then it keeps all of it.
pub fn request_arena(
    placement: &Placement,
    home: &NumaAffinity,
    queues: usize,
    size: ArenaSize,
) -> Arena {
    let pages = size.all;
    let nodes = placement.buffer_nodes().len();
    if nodes == 0 || queues > 1 && home.node().is_some() {
        return elastic_arena(home, size).unwrap_or_else(|_| Arena::new(pages));
    }
    Arena::spread(pages.div_ceil(nodes), placement).unwrap_or_else(|error| {
        tracing::warn!("memory is anywhere: {error}");
        Arena::new(pages)
    })
}

/// The placement of a thread, which may move.
#[derive(Debug, Default)]
pub struct ThreadAffinity {
    node: Option<Node>,
    /// The CPUs it may run on when unbound.
    anywhere: Cpus,
}

impl ThreadAffinity {
    /// That of the calling thread, which is not bound yet.
    pub fn new() -> Self {
        Self { node: None, anywhere: own_cpus() }
    }

    /// The node that the thread is bound to.
    pub fn node(&self) -> Option<Node> {
        self.node
    }

    /// Binds the calling thread to a node, or frees it if `home` has none.
    pub fn move_to(&mut self, home: &NumaAffinity) {
        if home.node() == self.node {
            return;
        }
        match pin(home.cpus().unwrap_or(&self.anywhere)) {
            Ok(()) => self.node = home.node(),
            Err(error) => tracing::warn!("a thread does not run where its links are: {error}"),
        }
    }
}
