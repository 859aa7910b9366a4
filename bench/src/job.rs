//! Jobs: requests of a kind, size and number, the same for every peer, from one job file.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::network::INTERFACES;

/// Kind and order of requests, under fio's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pattern {
    Read,
    Write,
    Randread,
    Randwrite,
    /// 70 reads to 30 writes, one after the other.
    Rw,
    /// The same anywhere.
    Randrw,
}

impl Pattern {
    pub(crate) fn fio(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Rw => "rw",
            Self::Randrw => "randrw",
        }
    }
}

/// A job. [`Display`](fmt::Display) gives its name in results and on the command line:
/// `randread-4k-32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) rw: Pattern,
    /// Bytes of a request.
    pub(crate) block_bytes: u32,
    /// Requests in flight.
    pub(crate) depth: u16,
    /// Percent of requests with [`LARGE_BYTES`] rather than `block_bytes`.
    pub(crate) large_percent: u8,
    /// Threads that submit, each with a queue of the session and `depth` requests in flight.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) threads: u16,
    /// The links that the session uses as one; `None`: the first link, which results do not
    /// mention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bundle: Option<Bundle>,
}

fn one() -> u16 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(number: &u16) -> bool {
    *number == 1
}

/// Parallel links that one session uses as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Bundle {
    /// Number of the first link.
    pub(crate) first: u16,
    pub(crate) links: u16,
    /// Channels on each link.
    pub(crate) channels: u16,
}

impl Bundle {
    /// This many links, from the first on, with a channel on each.
    pub(crate) const fn of(links: u16) -> Self {
        Self { first: 0, links, channels: 1 }
    }

    /// The link of that number alone.
    pub(crate) const fn only(first: u16) -> Self {
        Self { first, ..Self::of(1) }
    }

    /// The numbers of the links.
    pub(crate) fn numbers(self) -> Range<u16> {
        self.first..self.first + self.links
    }
}

/// Bytes of the large requests in a mixture, as in the paper of 2015.
pub(crate) const LARGE_BYTES: u32 = 128 << 10;

impl Job {
    pub(crate) const fn new(rw: Pattern, block_bytes: u32, depth: u16) -> Self {
        Self { rw, block_bytes, depth, large_percent: 0, threads: 1, bundle: None }
    }

    /// 4 KiB requests with some large ones among them.
    pub(crate) const fn mixed(rw: Pattern, depth: u16, large_percent: u8) -> Self {
        Self { large_percent, ..Self::new(rw, 4 << 10, depth) }
    }

    /// This job from several threads.
    pub(crate) const fn with_threads(self, threads: u16) -> Self {
        Self { threads, ..self }
    }

    /// This job from several threads, which share its requests in flight.
    pub(crate) const fn shared_by(self, threads: u16) -> Self {
        Self { threads, depth: self.depth / threads, ..self }
    }

    /// This job over several links as one.
    pub(crate) const fn over(self, bundle: Bundle) -> Self {
        Self { bundle: Some(bundle), ..self }
    }

    /// The links of the session.
    pub(crate) fn bundle(&self) -> Bundle {
        self.bundle.unwrap_or(Bundle::only(0))
    }

    /// Whether `name` is its name or the first parts of it: `randread-4k` matches every depth.
    pub(crate) fn is_a(&self, name: &str) -> bool {
        let own = self.to_string();
        own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// The job file.
    pub(crate) fn file(&self) -> &'static str {
        if self.large_percent == 0 { "uniform.fio" } else { "mixed.fio" }
    }

    /// The environment variables that the job file uses, for an export of that size. Each thread
    /// has a part of the export, as in the papers.
    pub(crate) fn environment(&self, export_mib: u32) -> Vec<(&'static str, String)> {
        let part = format!("{}m", export_mib / u32::from(self.threads));
        vec![
            ("THREADS", self.threads.to_string()),
            ("PART", if self.threads == 1 { "0".to_owned() } else { part.clone() }),
            ("SIZE", part),
            ("RW", self.rw.fio().to_owned()),
            ("BS", self.block_bytes.to_string()),
            ("DEPTH", self.depth.to_string()),
            ("SMALL", (100 - self.large_percent).to_string()),
            ("LARGE", self.large_percent.to_string()),
        ]
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rw, block_bytes, depth, large_percent, threads, bundle } = self;
        write!(f, "{}-{}-{depth}", rw.fio(), size(*block_bytes))?;
        if *large_percent > 0 {
            write!(f, "-{large_percent}%-{}", size(LARGE_BYTES))?;
        }
        if let Some(Bundle { first, links, channels }) = bundle {
            write!(f, "-{INTERFACES}{first}")?;
            if *links > 1 {
                write!(f, "..{}", first + links - 1)?;
            }
            if *channels > 1 {
                write!(f, "-{channels}channels")?;
            }
        }
        if *threads > 1 {
            write!(f, "-{threads}threads")?;
        }
        Ok(())
    }
}

/// A size in fio's notation.
pub(crate) fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_everything() {
        assert_eq!(Job::new(Pattern::Randread, 4096, 32).to_string(), "randread-4k-32");
        assert_eq!(Job::new(Pattern::Write, 1 << 20, 16).to_string(), "write-1m-16");
        let job = Job::new(Pattern::Randread, 4096, 128);
        assert!(job.is_a("randread") && job.is_a("randread-4k-128"));
        assert!(!job.is_a("randread-4k-1") && !job.is_a("read"));
        assert_eq!(job.with_threads(2).to_string(), "randread-4k-128-2threads");
        assert_eq!(job.shared_by(4).to_string(), "randread-4k-32-4threads");
        let bundle = Bundle { channels: 2, ..Bundle::of(6) };
        assert_eq!(job.over(bundle).to_string(), "randread-4k-128-veth0..5-2channels");
        assert_eq!(job.over(Bundle::only(3)).to_string(), "randread-4k-128-veth3");
        assert!(job.over(bundle).is_a("randread-4k-128-veth0..5"));
        assert_eq!(Job::mixed(Pattern::Randread, 32, 10).to_string(), "randread-4k-32-10%-128k");
    }
}
