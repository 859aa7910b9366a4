//! The host's side: a session and its links. In *queue* mode threads of its own drive it, to which
//! any number of threads submit requests ([`HostSession`]). In *inline* mode the submitting thread
//! drives it, without any hand-over ([`InlineHost`]). MSST 2014, sections II.C and IV.D.
//!
//! A session has one or more *queues*, each with a thread, memory, channels and a socket on each
//! link of its own. On the data path they share nothing.

mod driver;
mod inline;
mod notices;
mod queue;
mod session;

use std::time::Duration;

use tyche_block::{Arena, ArenaSize};
use tyche_engine::placed;
use tyche_numa::{NumaAffinity, Placement};
use tyche_proto::SessionConfig;
use tyche_remote::HostLink;

pub use driver::{Driver, HostEnv};
pub use inline::{ConnectError, InlineHost};
pub use session::{HostControl, HostSession};

/// Options to run a session with.
pub struct HostOptions {
    /// Configuration of the session.
    pub session: SessionConfig,
    /// The links to use, at least one.
    pub links: Vec<HostLink>,
    /// For each further queue its own links, over the same interfaces. For a [`HostSession`] only:
    /// each thread with an [`InlineHost`] makes a queue of its own ([`InlineHost::join`]).
    pub further_queues: Vec<Vec<HostLink>>,
    /// Placement of the links' threads and memory. The session's thread, or the one that makes an
    /// [`InlineHost`], runs near the links if all are on one node; if they are on several, the
    /// threads of the queues are spread over those.
    pub placement: Placement,
    /// EtherType of the frames.
    pub ethertype: u16,
    /// Memory for the data of requests, over all nodes; for each queue. An [`InlineHost`] keeps all
    /// of it: nobody adds any.
    pub arena_size: ArenaSize,
    /// The longest spin before sleeping; zero: no spin.
    pub spin: Duration,
}

impl HostOptions {
    /// Number of queues.
    pub fn queues(&self) -> usize {
        1 + self.further_queues.len()
    }

    /// Splits the options into those of each queue. They differ only in the links, and divide the
    /// `damq` pages of the session.
    pub fn split(mut self) -> Vec<Self> {
        let further = std::mem::take(&mut self.further_queues);
        self.session.damq_pages = self.session.damq_pages.div_ceil(1 + further.len() as u32);
        let own = |links| Self {
            session: self.session.clone(),
            links,
            further_queues: Vec::new(),
            placement: self.placement.clone(),
            ethertype: self.ethertype,
            arena_size: self.arena_size,
            spin: self.spin,
        };
        let further: Vec<_> = further.into_iter().map(own).collect();
        std::iter::once(self).chain(further).collect()
    }

    /// Memory for the requests of a queue, which is near its thread.
    fn arena(&self, queue: usize, queues: usize, size: ArenaSize) -> Arena {
        let homes = self.links.iter().map(|it| placed::home(&self.placement, &*it.link));
        let home = NumaAffinity::of_queue(&homes.collect::<Vec<_>>(), queue, queues);
        placed::request_arena(&self.placement, &home, queues, size)
    }
}
