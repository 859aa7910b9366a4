//! Writes that may be lost: done, but not flushed, when the cache of the disk was.
//!
//! A flush promises that the writes which were done before it will last, whichever thread they were
//! on. So threads share this: at an initiator the lanes of a session, and at a target those of an
//! initiator's commands for a logical unit. Writes are counted in lines, one for each lane; the
//! rest changes with flushes and losses only.
//!
//! ```text
//! writes done:   1 2 3 4 5 6 7 8 9
//!                settled│   │    └─ in the cache: lost, if there is a loss now
//!                       │   └─ lost: 5 and 6, if they were not told of
//!                       └─ durable, or reported as lost
//! ```
//!
//! A flush covers the writes that were done when it began. If one of them is lost by then, or any
//! loss is noticed until it ends, it fails. So each write that was at stake makes a flush fail that
//! covers it, and no flush fails that covers none.
//!
//! A loss that is noticed by one thread while a write is done on another does not miss it: the
//! write is counted before its thread looks for losses, and the loss is counted before the writes
//! are. With a fence between the two on each side, one of them sees the other. A flush compares the
//! losses whose writes were marked when it began with those that had been noticed when it ended.

use crate::sync::{AtomicU64, Ordering, fence};

/// The record of writes that may be in a volatile cache, shared by several threads. It has counters
/// only, so a write costs its thread no lock.
#[derive(Debug)]
pub(crate) struct Losses {
    lines: Box<[Line]>,
    /// Writes that a flush has made durable, or has reported as lost. A flush covers all writes
    /// that were done before it, so those of two flushes differ only by their number.
    settled: AtomicU64,
    /// Writes up to this one are known to be lost, unless they are settled.
    lost: AtomicU64,
    /// Writes up to this one were told of, if they are lost, and are in the cache nevertheless.
    told: AtomicU64,
    /// Writes up to this one may be lost, as the next flush will show, and how often that was so.
    doubtful: AtomicU64,
    doubts: AtomicU64,
    /// Writes up to this one were done before the last login: if the target was started again in
    /// between, it does not know of them.
    former: AtomicU64,
    /// Losses that were noticed, and those of them whose writes are marked.
    noticed: AtomicU64,
    marked: AtomicU64,
}

/// The writes that a lane has done. Aligned, so that no two lanes write to the same cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

/// The state in which a command was begun, for its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since {
    /// Losses that had been noticed; of a flush those whose writes were marked.
    losses: u64,
    /// Of a write: how often there was doubt.
    doubts: u64,
    /// Of a flush at a target: how often its disk was distrusted.
    #[cfg(feature = "target")]
    pub(crate) distrusts: u64,
    /// Writes that a flush covers.
    writes: u64,
    /// Whether some of these were in the cache.
    is_at_stake: bool,
    /// Whether some of them were lost, and nobody was told.
    pub(crate) is_lost: bool,
}

/// The outcome of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// All that it covers is durable, or was told of before.
    Durable,
    /// Some of it may be lost.
    Lost,
    /// It has failed, and nothing is known to be lost.
    Failed,
}

impl Losses {
    /// For that many lanes, which have written nothing.
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            lines: (0..lanes).map(|_| Line(AtomicU64::new(0))).collect(),
            settled: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            told: AtomicU64::new(0),
            doubtful: AtomicU64::new(0),
            doubts: AtomicU64::new(0),
            former: AtomicU64::new(0),
            noticed: AtomicU64::new(0),
            marked: AtomicU64::new(0),
        }
    }

    /// A write is begun.
    pub(crate) fn begin_write(&self) -> Since {
        let losses = self.noticed.load(Ordering::Acquire);
        let doubts = self.doubts.load(Ordering::Acquire);
        Since { losses, doubts, ..Since::default() }
    }

    /// A write of a lane is done. If a loss was noticed since it was begun, it may have been in the
    /// cache.
    pub(crate) fn written(&self, lane: usize, since: Since) {
        self.lines[lane].0.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.noticed.load(Ordering::Acquire) != since.losses {
            self.lost.fetch_max(self.writes(), Ordering::AcqRel);
        }
        if self.doubts.load(Ordering::Acquire) != since.doubts {
            self.doubtful.fetch_max(self.writes(), Ordering::AcqRel);
        }
    }

    /// A flush is begun.
    pub(crate) fn begin_flush(&self) -> Since {
        // Before the writes: a loss of one of them then counts for this flush.
        let losses = self.marked.load(Ordering::Acquire);
        let writes = self.writes();
        let settled = self.settled.load(Ordering::Acquire);
        let known = settled.max(self.told.load(Ordering::Acquire));
        let is_lost = self.lost.load(Ordering::Acquire) > known;
        Since { losses, writes, is_at_stake: writes > settled, is_lost, ..Since::default() }
    }

    /// A flush has ended; `is_done`: the disk has done it.
    pub(crate) fn flushed(&self, since: &Since, is_done: bool) -> Flushed {
        if !since.is_at_stake {
            return Flushed::Durable;
        }
        if since.is_lost || self.noticed.load(Ordering::Acquire) != since.losses {
            return Flushed::Lost;
        }
        if !is_done {
            return Flushed::Failed;
        }
        self.settle(since);
        Flushed::Durable
    }

    /// All that a flush covers is durable, or nothing is promised of it any more.
    pub(crate) fn settle(&self, since: &Since) {
        self.settled.fetch_max(since.writes, Ordering::AcqRel);
    }

    /// The cache may be lost; false if there was nothing in it that is not known to be lost.
    pub(crate) fn lose(&self) -> bool {
        self.noticed.fetch_add(1, Ordering::AcqRel);
        let is_new = self.mark();
        self.marked.fetch_add(1, Ordering::AcqRel);
        is_new
    }

    /// Whether there may be something in the cache.
    pub(crate) fn is_dirty(&self) -> bool {
        self.settled.load(Ordering::Acquire) < self.writes()
    }

    /// There was a login, and no loss until then.
    pub(crate) fn log_in(&self) {
        self.former.fetch_max(self.writes(), Ordering::AcqRel);
    }

    /// There was a loss at the target, which knows whether it is one of the writes until now, and
    /// tells the next flush; except of those from before the last login, which count as lost.
    pub(crate) fn suspect_loss(&self) {
        if self.former.load(Ordering::Acquire) > self.settled.load(Ordering::Acquire) {
            self.lose();
        }
        self.doubts.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.doubtful.fetch_max(self.writes(), Ordering::AcqRel);
    }

    /// Whether there has been no such flush yet: if the target is started again, nobody knows.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Acquire) > self.settled.load(Ordering::Acquire)
    }

    fn mark(&self) -> bool {
        fence(Ordering::SeqCst);
        let writes = self.writes();
        let lost = self.lost.fetch_max(writes, Ordering::AcqRel);
        writes > lost.max(self.settled.load(Ordering::Acquire))
    }

    fn writes(&self) -> u64 {
        self.lines.iter().map(|line| line.0.load(Ordering::Acquire)).sum()
    }
}

/// At a target, where a store counts its losses.
#[cfg(feature = "target")]
impl Losses {
    /// For the commands of one initiator, on all threads of any port: each has a line of its own,
    /// which it shares with the thread of that number of other ports.
    pub(crate) fn of_initiator() -> Self {
        Self::new(crate::lanes::LANES_MAX)
    }

    /// The store has lost the cache that often by now. To be called before a write or a flush is
    /// begun, and when it has ended.
    pub(crate) fn notice(&self, losses: u64) {
        if self.noticed.load(Ordering::Acquire) < losses {
            self.noticed.fetch_max(losses, Ordering::AcqRel);
            self.mark();
            self.marked.fetch_max(losses, Ordering::AcqRel);
        }
    }

    /// There may be writes that nobody here knows of. They count as one.
    pub(crate) fn write_unknown(&self) {
        self.lines[0].0.fetch_add(1, Ordering::Release);
    }

    /// The same, and they may be lost.
    pub(crate) fn lose_unknown(&self) {
        self.write_unknown();
        self.mark();
    }

    /// The initiator knows that the flush has failed. What is not lost of its writes is still in
    /// the cache.
    pub(crate) fn tell(&self, since: &Since) {
        self.told.fetch_max(since.writes, Ordering::AcqRel);
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests;
