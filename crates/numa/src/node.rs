//! Numbers of nodes and CPUs, and the kernel's lists of them.

use std::path::Path;
use std::str::FromStr;
use std::{fmt, fs};

/// A NUMA node, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u16);

/// The limit of nodes of any Linux (`MAX_NUMNODES`).
pub(crate) const NODES_MAX: usize = 1024;
/// The limit of CPUs of any Linux (`NR_CPUS`).
const CPUS_MAX: usize = 8192;

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of CPUs, by the kernel's numbers: ascending, each once. Shown as `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(Vec<usize>);

impl Cpus {
    /// Parses a list; an empty text is an empty list.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        list(text, CPUS_MAX).map(Self)
    }

    /// Reads the list in a file of the kernel; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Self::parse(fs::read_to_string(path).ok()?.trim_end())
    }

    /// The CPUs, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Whether there are no CPUs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all CPUs of `other` are in this set.
    pub fn contains(&self, other: &Self) -> bool {
        other.iter().all(|cpu| self.0.binary_search(&cpu).is_ok())
    }

    /// The CPUs in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// The CPUs in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| other.0.binary_search(cpu).is_ok()).collect()
    }
}

/// The text is no list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no list of CPUs such as 0-3,8")]
pub struct NotAList;

impl FromStr for Cpus {
    type Err = NotAList;

    fn from_str(text: &str) -> Result<Self, NotAList> {
        Self::parse(text).ok_or(NotAList)
    }
}

impl IntoIterator for Cpus {
    type Item = usize;
    type IntoIter = std::vec::IntoIter<usize>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<usize> for Cpus {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut cpus: Vec<_> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|a, b| a + 1 == *b);
        for (index, run) in runs.enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match run {
                [one] => write!(f, "{comma}{one}")?,
                _ => write!(f, "{comma}{}-{}", run[0], run[run.len() - 1])?,
            }
        }
        Ok(())
    }
}

/// The nodes of a list such as `0-1`.
pub(crate) fn nodes(text: &str) -> Option<Vec<Node>> {
    let numbers = list(text, NODES_MAX)?;
    Some(numbers.into_iter().map(|number| Node(number as u16)).collect())
}

/// The numbers of a list such as `0-3,8`, all of them less than `end`.
fn list(text: &str, end: usize) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for run in text.trim().split(',').filter(|run| !run.is_empty()) {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last >= end || numbers.last().is_some_and(|&before| before >= first) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown_alike() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5-6"] {
            assert_eq!(Cpus::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Cpus::parse("0-1\n").unwrap().iter().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(nodes("0,2"), Some(vec![Node(0), Node(2)]));
    }

    #[test]
    fn what_is_no_list_takes_no_memory() {
        for text in ["x", "-1", "3-1", "0-", "1,1", "2,1", "0-4000000000", "0-8192", "1-2-3"] {
            assert_eq!(Cpus::parse(text), None, "{text}");
        }
        assert_eq!(nodes("1024"), None);
    }

    #[test]
    fn sets_intersect_and_join() {
        let (a, b): (Cpus, Cpus) =
            ([3, 1, 2, 1].into_iter().collect(), [2, 3, 9].into_iter().collect());
        assert_eq!(a.intersection(&b).to_string(), "2-3");
        assert_eq!(a.union(&b).to_string(), "1-3,9");
        assert!(a.intersection(&Cpus::default()).is_empty());
    }
}
