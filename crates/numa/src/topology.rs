//! The topology of the machine, as `/sys` and `/proc` describe it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::node::{Cpus, Node, nodes};
use crate::{Error, interface};

/// The nodes of a machine, and their parts.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The path of sysfs.
    sys: PathBuf,
    nodes: Vec<(Node, Cpus)>,
    /// The nodes with memory.
    with_memory: Vec<Node>,
}

/// An unknown machine: one node.
impl Default for Topology {
    fn default() -> Self {
        let nodes = vec![(Node(0), Cpus::default())];
        Self { sys: PathBuf::new(), nodes, with_memory: vec![Node(0)] }
    }
}

impl Topology {
    /// Reads the kernel's description below `sys`, which is `/sys` except in tests; procfs is
    /// beside it. A kernel without NUMA describes no nodes: there is one.
    ///
    /// # Errors
    /// If the description cannot be read or parsed.
    pub fn read(sys: &Path) -> Result<Self, Error> {
        let root = sys.join("devices/system/node");
        let sys = sys.to_owned();
        let online = root.join("online");
        let Some(text) = text(&online)? else {
            return Ok(Self { sys, ..Self::default() });
        };
        let understand = |path: &Path, text: &str| {
            let malformed = || Error::Malformed { path: path.to_owned(), text: text.to_owned() };
            nodes(text).ok_or_else(malformed)
        };
        let online = understand(&online, &text)?;
        let memory = root.join("has_memory");
        let with_memory = match self::text(&memory)? {
            Some(text) => understand(&memory, &text)?,
            None => online.clone(),
        };
        let nodes = online.into_iter().map(|node| Ok((node, cpus(&root, node)?)));
        Ok(Self { sys, nodes: nodes.collect::<Result<_, Error>>()?, with_memory })
    }

    /// The nodes, in order.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        self.nodes.iter().map(|(node, _)| *node)
    }

    /// The nodes that have memory, in order.
    pub fn with_memory(&self) -> &[Node] {
        &self.with_memory
    }

    /// Whether memory access is uniform: there is one node.
    pub fn is_uniform(&self) -> bool {
        self.nodes.len() < 2
    }

    /// The CPUs of a node.
    pub fn cpus(&self, node: Node) -> Option<&Cpus> {
        self.nodes.iter().find(|(other, _)| *other == node).map(|(_, cpus)| cpus)
    }

    /// Reads the CPUs of each last-level cache (L3), in the order of their numbers; empty if the
    /// kernel does not tell. It has several files for each CPU.
    pub fn caches(&self) -> Vec<Cpus> {
        let root = self.sys.join("devices/system/cpu");
        let mut groups = Vec::new();
        for cpu in Cpus::read(&root.join("online")).iter().flat_map(Cpus::iter) {
            let Ok(caches) = fs::read_dir(root.join(format!("cpu{cpu}/cache"))) else { continue };
            let paths = caches.filter_map(|entry| Some(entry.ok()?.path()));
            let level = |path: &Path| fs::read_to_string(path.join("level")).ok();
            let last = paths.into_iter().find(|it| level(it).is_some_and(|it| it.trim() == "3"));
            let group = last.and_then(|path| Cpus::read(&path.join("shared_cpu_list")));
            groups.extend(group.filter(|it| !groups.contains(it)));
        }
        groups
    }

    /// The CPUs that a network interface interrupts; none if that is unknown, as for one without a
    /// device.
    pub fn interrupted(&self, name: &str) -> Cpus {
        interface::interrupted(&self.sys, &self.sys.with_file_name("proc"), name)
    }

    /// The node of a CPU.
    pub fn node_of_cpu(&self, cpu: usize) -> Option<Node> {
        let is_there = |cpus: &Cpus| cpus.iter().any(|other| other == cpu);
        self.nodes.iter().find(|(_, cpus)| is_there(cpus)).map(|(node, _)| *node)
    }

    /// The node that a network interface is attached to; for a VLAN or a bond that of the
    /// interfaces below, if they agree. `None` for an interface without a device (veth, bridges),
    /// if the firmware does not tell, and for a name outside the network namespace that `/sys`
    /// shows.
    pub fn node_of_interface(&self, name: &str) -> Option<Node> {
        interface::node(&self.sys, name).filter(|node| self.nodes().any(|other| other == *node))
    }
}

fn cpus(root: &Path, node: Node) -> Result<Cpus, Error> {
    let path = root.join(format!("node{node}/cpulist"));
    let text = text(&path)?.unwrap_or_default();
    Cpus::parse(&text).ok_or(Error::Malformed { path, text })
}

/// The content of a file without the line's end; `None` if there is no such file.
fn text(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Unreadable { path: path.to_owned(), source }),
    }
}
