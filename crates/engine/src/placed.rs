//! Where threads and memory are, on a machine with several NUMA nodes.
//!
//! That a place can be had is made sure of before anything starts. If it is refused later, for the
//! cpuset has changed meanwhile, the work goes on from further away, and the log says so.

use tyche_block::Arena;
use tyche_link::Link;
use tyche_numa::{Cpus, Error, Home, Near, Node, Placement, allowed_cpus, pin};

/// Where a link and what belongs to it are. What is empty the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkNodes {
    /// The node of its interface, if there is one.
    pub nic: Option<Node>,
    /// The nodes of the memory that it shares with the kernel.
    pub ring: Vec<Node>,
    /// The nodes of its channels' memory: a target's data queues, a host's batches.
    pub channels: Vec<Node>,
    /// The CPUs that its thread may run on.
    pub cpus: Cpus,
}

/// Where a session and its requests are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionNodes {
    /// The node that its thread keeps to; none if it is free to go anywhere.
    pub thread: Option<Node>,
    /// The CPUs that its thread may run on.
    pub cpus: Cpus,
    /// The nodes of the memory for requests.
    pub buffers: Vec<Node>,
}

/// The CPUs that the calling thread may run on, as far as the kernel tells.
pub(crate) fn own_cpus() -> Cpus {
    allowed_cpus().unwrap_or_default()
}

/// Where a link belongs.
pub(crate) fn home(placement: &Placement, link: &dyn Link) -> Home {
    let home = placement.home(link.name());
    home.unwrap_or_else(|error| {
        tracing::warn!(link = link.name(), "is not placed: {error}");
        Home::default()
    })
}

/// Has the calling thread's memory come from home while the result lives.
pub(crate) fn near(home: &Home) -> Option<Near> {
    home.near().unwrap_or_else(|error| {
        tracing::warn!("memory is anywhere: {error}");
        None
    })
}

/// Memory for the data of a channel.
pub(crate) fn channel_arena(home: &Home, pages: usize) -> Arena {
    let placed = home.node().map_or_else(|| Ok(Arena::new(pages)), |node| Arena::on(pages, node));
    or_anywhere(placed, pages)
}

/// Memory for the requests of a session whose thread is at `home`: spread over the nodes if that is
/// wanted.
pub(crate) fn request_arena(placement: &Placement, home: &Home, pages: usize) -> Arena {
    let nodes = placement.buffer_nodes().len();
    if nodes == 0 {
        return channel_arena(home, pages);
    }
    or_anywhere(Arena::spread(pages.div_ceil(nodes), placement), pages)
}

fn or_anywhere(arena: Result<Arena, Error>, pages: usize) -> Arena {
    arena.unwrap_or_else(|error| {
        tracing::warn!("memory is anywhere: {error}");
        Arena::new(pages)
    })
}

/// Where a thread lives, which may move.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    node: Option<Node>,
    /// Where it may run if it has no home.
    anywhere: Cpus,
}

impl Residence {
    /// The calling thread's, which has none yet.
    pub(crate) fn new() -> Self {
        Self { node: None, anywhere: own_cpus() }
    }

    /// The node that the thread keeps to.
    pub(crate) fn node(&self) -> Option<Node> {
        self.node
    }

    /// Takes the calling thread home, or lets it go if it has no home any more.
    pub(crate) fn move_to(&mut self, home: &Home) {
        if home.node() == self.node {
            return;
        }
        match pin(home.cpus().unwrap_or(&self.anywhere)) {
            Ok(()) => self.node = home.node(),
            Err(error) => tracing::warn!("a thread does not run where its links are: {error}"),
        }
    }
}
