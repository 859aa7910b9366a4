//! Placement: the wanted affinity, and the home of a link.

use crate::{Cpus, Error, Near, Node, Topology, allowed_cpus};

/// The parts that are placed on nodes. The names are the paper's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affinity {
    /// None: the kernel decides.
    #[default]
    None,
    /// A link's thread, its socket's ring and the memory of its channels are on the node of its
    /// interface.
    KmemNic,
    /// In addition, the host's request buffers are spread over the nodes, and a request uses a
    /// channel of its buffer's node.
    FullMem,
}

/// The placement of a process's threads and memory: the wanted [`Affinity`] applied to the topology
/// of this machine. By default nothing is placed, and the machine is unknown.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    affinity: Affinity,
    topology: Topology,
    /// The CPUs that the process may use; a pinned thread may use fewer.
    allowed: Cpus,
    /// The nodes to spread request buffers over.
    buffer_nodes: Vec<Node>,
}

/// The home of a link.
#[derive(Clone, Debug, Default)]
pub struct NumaAffinity {
    /// Its interface's node, if known, whether or not anything is placed.
    pub nic: Option<Node>,
    /// The node to place on, and its CPUs that the process may use.
    place: Option<(Node, Cpus)>,
}

impl Placement {
    /// Checks that this machine and its kernel support the wanted placement. Must be called by a
    /// thread that is not pinned.
    ///
    /// # Errors
    /// [`Error::Refused`] if the system calls are denied to this process. A single node is no
    /// error: see [`is_active`](Self::is_active).
    pub fn new(affinity: Affinity, topology: Topology) -> Result<Self, Error> {
        let mut placement = Self { affinity, topology, ..Self::default() };
        if !placement.is_active() {
            return Ok(placement);
        }
        placement.allowed = allowed_cpus()?;
        for node in placement.topology.with_memory() {
            match Near::to(*node) {
                Ok(_) => placement.buffer_nodes.push(*node),
                Err(Error::NoMemory { .. }) => {}
                Err(refused) => return Err(refused),
            }
        }
        if affinity < Affinity::FullMem {
            placement.buffer_nodes.clear();
        }
        Ok(placement)
    }

    /// The wanted affinity.
    pub fn affinity(&self) -> Affinity {
        self.affinity
    }

    /// The topology of the machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether anything is placed: an affinity is wanted, and there are several nodes.
    pub fn is_active(&self) -> bool {
        self.affinity != Affinity::None && !self.topology.is_uniform()
    }

    /// The nodes to spread request buffers over: those whose memory the process may use; empty if
    /// spreading is not wanted.
    pub fn buffer_nodes(&self) -> &[Node] {
        &self.buffer_nodes
    }

    /// The home of the link on an interface: without a node if nothing is placed, or if the
    /// interface has no node.
    ///
    /// # Errors
    /// If the process may use neither CPUs nor memory of the interface's node.
    pub fn home(&self, interface: &str) -> Result<NumaAffinity, Error> {
        let nic = self.topology.node_of_interface(interface);
        let mut home = NumaAffinity { nic, place: None };
        if let (true, Some(node)) = (self.is_active(), nic) {
            let cpus = self.topology.cpus(node).expect("interfaces are on nodes that there are");
            let usable = cpus.intersection(&self.allowed);
            if usable.is_empty() {
                let (cpus, allowed) = (cpus.clone(), self.allowed.clone());
                return Err(Error::NoCpus { node, cpus, allowed });
            }
            drop(Near::to(node)?);
            home.place = Some((node, usable));
        }
        Ok(home)
    }

    /// The nodes to place the links on these interfaces on, each once.
    pub fn nodes<'a>(&self, interfaces: impl IntoIterator<Item = &'a str>) -> Vec<Node> {
        let homes = interfaces.into_iter().filter_map(|interface| self.home(interface).ok());
        let mut nodes: Vec<_> = homes.filter_map(|home| home.node()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

impl NumaAffinity {
    /// The node to place on.
    pub fn node(&self) -> Option<Node> {
        self.place.as_ref().map(|(node, _)| *node)
    }

    /// The home of a thread that serves links of these homes: their node, if it is the same one,
    /// and without a node otherwise.
    pub fn common<'a>(homes: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut homes = homes.into_iter();
        let first = homes.next().cloned().unwrap_or_default();
        let agreed = homes.all(|home| home.node() == first.node() && home.nic == first.nic);
        if agreed { first } else { Self::default() }
    }

    /// The home of the thread of a queue, of so many which all serve links of these homes: if the
    /// links are on several nodes, each node has some of the queues.
    pub fn of_queue<'a>(
        homes: impl IntoIterator<Item = &'a Self>,
        queue: usize,
        queues: usize,
    ) -> Self {
        let homes: Vec<_> = homes.into_iter().collect();
        let mut placed: Vec<_> = homes.iter().filter(|home| home.place.is_some()).collect();
        placed.sort_by_key(|home| home.node());
        placed.dedup_by_key(|home| home.node());
        if queues == 1 || placed.len() < 2 {
            return Self::common(homes);
        }
        (*placed[queue % placed.len()]).clone()
    }

    /// The CPUs of that node that the process may use.
    pub fn cpus(&self) -> Option<&Cpus> {
        self.place.as_ref().map(|(_, cpus)| cpus)
    }

    /// Allocates the calling thread's memory on the node, if there is one, while the result lives.
    ///
    /// # Errors
    /// As [`Near::to`].
    pub fn near(&self) -> Result<Option<Near>, Error> {
        self.node().map(Near::to).transpose()
    }
}
