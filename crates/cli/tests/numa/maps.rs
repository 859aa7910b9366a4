//! `/proc/PID/numa_maps`: the node of each page of a process.

use std::collections::BTreeMap;
use std::fs;

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The memory policy: `default`, `prefer:1`, ...
    pub(crate) policy: String,
    /// The mapped file; `None` for anonymous memory.
    pub(crate) file: Option<String>,
    /// Number of pages by node.
    pub(crate) pages: BTreeMap<u16, u64>,
}

impl Mapping {
    fn parse(line: &str) -> Self {
        let mut fields = line.split(' ').skip(1);
        let policy = fields.next().expect("a policy").to_owned();
        let (mut file, mut pages) = (None, BTreeMap::new());
        for field in fields {
            match field.split_once('=') {
                Some(("file", name)) => file = Some(name.to_owned()),
                Some((key, count)) => {
                    let node = key.strip_prefix('N').and_then(|node| node.parse().ok());
                    if let Some(node) = node {
                        pages.insert(node, count.parse().expect("a number of pages"));
                    }
                }
                None => {}
            }
        }
        Self { policy, file, pages }
    }

    pub(crate) fn len(&self) -> u64 {
        self.pages.values().sum()
    }

    /// The node of all its pages, if they are on one.
    pub(crate) fn node(&self) -> Option<u16> {
        match self.pages.len() {
            1 => self.pages.keys().next().copied(),
            _ => None,
        }
    }

    /// Whether it is the ring of a socket.
    pub(crate) fn is_ring(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.starts_with("socket:"))
    }

    /// Whether it is memory bound to a node.
    pub(crate) fn is_bound(&self) -> bool {
        self.file.is_none() && self.policy.starts_with("prefer:")
    }
}

/// Whether each mapping is wholly on one node, and each of both nodes has as many.
pub(crate) fn as_many_on_each(mappings: &[&Mapping]) -> bool {
    let on = |node| mappings.iter().filter(|mapping| mapping.node() == Some(node)).count();
    !mappings.is_empty() && [on(0), on(1)] == [mappings.len() / 2; 2]
}

/// All mappings of a process that have pages.
pub(crate) fn of(pid: u32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap();
    let all = text.lines().map(Mapping::parse);
    all.filter(|mapping| mapping.len() > 0).collect()
}

#[test]
fn lines_are_understood() {
    let ring = "7f53a3400000 default file=socket:[2413] mapped=1024 mapmax=2 N0=3 N1=1021 \
        kernelpagesize_kB=4";
    let ring = Mapping::parse(ring);
    assert!(ring.is_ring() && !ring.is_bound());
    assert_eq!((ring.len(), ring.node()), (1024, None));
    let arena = Mapping::parse("7f53a1400000 prefer:1 anon=8192 dirty=8192 N1=8192");
    assert!(arena.is_bound() && !arena.is_ring());
    assert_eq!((arena.len(), arena.node()), (8192, Some(1)));
    assert_eq!(Mapping::parse("400000 default").len(), 0);
}
