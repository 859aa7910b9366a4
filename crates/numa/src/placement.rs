//! What is to be placed, and where a link belongs.

use crate::{Cpus, Error, Near, Node, Topology, allowed_cpus};

/// What is placed on nodes. The names are the paper's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affinity {
    /// Nothing: the kernel decides.
    #[default]
    None,
    /// A link's thread, its socket's ring and the memory of its channels are on the node of its
    /// interface.
    KmemNic,
    /// Besides, the host's request buffers are spread over the nodes, and a request travels on a
    /// channel of its buffer's node.
    FullMem,
}

/// See the module. By default nothing is placed, and nothing is known of the machine.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    affinity: Affinity,
    topology: Topology,
    /// The CPUs that the process may use: what a thread may use is less when it has been pinned.
    allowed: Cpus,
    /// The nodes to spread request buffers over.
    buffer_nodes: Vec<Node>,
}

/// Where a link belongs.
#[derive(Clone, Debug, Default)]
pub struct Home {
    /// Its interface's node, if there is one: known, whether or not anything is placed.
    pub nic: Option<Node>,
    /// The node to place things on, and the CPUs there that the process may use.
    place: Option<(Node, Cpus)>,
}

impl Placement {
    /// Makes sure that what is wanted can be had of this machine and its kernel. To be called by
    /// a thread that may still use all that its process may.
    ///
    /// # Errors
    /// [`Error::Refused`] if the system calls are not for this process. One node is no error: see
    /// [`is_active`](Self::is_active).
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

    /// What is wanted.
    pub fn affinity(&self) -> Affinity {
        self.affinity
    }

    /// What there is.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether anything is placed: it is wanted, and there are nodes to choose from.
    pub fn is_active(&self) -> bool {
        self.affinity != Affinity::None && !self.topology.is_uniform()
    }

    /// The nodes to spread request buffers over: those whose memory the process may use, or none
    /// if that is not wanted.
    pub fn buffer_nodes(&self) -> &[Node] {
        &self.buffer_nodes
    }

    /// Where the link on an interface belongs: nowhere in particular if nothing is placed, or
    /// if the interface has no node.
    ///
    /// # Errors
    /// If the process may use neither CPUs nor memory of the interface's node.
    pub fn home(&self, interface: &str) -> Result<Home, Error> {
        let nic = self.topology.node_of_interface(interface);
        let mut home = Home { nic, place: None };
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
}

impl Home {
    /// The node to place things on.
    pub fn node(&self) -> Option<Node> {
        self.place.as_ref().map(|(node, _)| *node)
    }

    /// Where a thread that serves links of these homes belongs: their node, if it is one, and
    /// nowhere in particular otherwise.
    pub fn common<'a>(homes: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut homes = homes.into_iter();
        let first = homes.next().cloned().unwrap_or_default();
        let agreed = homes.all(|home| home.node() == first.node() && home.nic == first.nic);
        if agreed { first } else { Self::default() }
    }

    /// The CPUs of that node that the process may use.
    pub fn cpus(&self) -> Option<&Cpus> {
        self.place.as_ref().map(|(_, cpus)| cpus)
    }

    /// Has the calling thread's memory come from the node, if there is one, while the result
    /// lives.
    ///
    /// # Errors
    /// As [`Near::to`].
    pub fn near(&self) -> Result<Option<Near>, Error> {
        self.node().map(Near::to).transpose()
    }
}
