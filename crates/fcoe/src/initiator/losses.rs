//! Writes that may be lost: done, but not flushed, when the cache of the disk was.
//!
//! A flush on one lane promises that the writes which were done before it on all lanes will last.
//! So lanes share this. A lane writes to a line of its own; the rest changes with flushes and
//! losses only.
//!
//! A loss that is heard of on one lane while a write is done on another does not miss it: the lane
//! counts the write before it looks for losses, and the loss is counted before the writes are. With
//! a fence between the two on each side, one of them sees the other.

use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// See the module. Writes are counted that may be in a volatile cache.
#[derive(Debug)]
pub(super) struct Losses {
    lines: Box<[Line]>,
    /// Writes that a flush has made durable, or has told of. A flush covers all writes that were
    /// done before it, so those of two flushes differ only by their number.
    flushed: AtomicU64,
    /// Whether some were lost since the last flush.
    is_lost: AtomicBool,
    /// How often a loss was heard of.
    heard: AtomicU64,
}

/// The writes that a lane has done. Aligned, so that no two lanes write to the same cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

/// The losses known when a command was sent, for its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    /// Losses that had been heard of.
    heard: u64,
    /// Writes that a flush makes durable; 0 if all were before.
    writes: u64,
}

impl Losses {
    /// For that many lanes, which have written nothing.
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            lines: (0..lanes).map(|_| Line(AtomicU64::new(0))).collect(),
            flushed: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            heard: AtomicU64::new(0),
        }
    }

    /// A write is sent.
    pub(super) fn begin_write(&self) -> Since {
        Since { heard: self.heard.load(Ordering::Acquire), writes: 0 }
    }

    /// A write of a lane is done. If a loss was heard of since it was sent, it may have been in the
    /// cache.
    pub(super) fn written(&self, lane: usize, since: Since) {
        let Line(line) = &self.lines[lane];
        line.store(line.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.heard.load(Ordering::Acquire) != since.heard {
            self.is_lost.store(true, Ordering::Release);
        }
    }

    /// A flush is sent.
    pub(super) fn begin_flush(&self) -> Since {
        // Before the writes: a loss of one of them then counts for this flush.
        let heard = self.heard.load(Ordering::Acquire);
        let writes = self.writes();
        let is_dirty = self.flushed.load(Ordering::Acquire) < writes;
        Since { heard, writes: if is_dirty { writes } else { 0 } }
    }

    /// A flush is done. Returns whether all that it was for is durable: if not, it must fail, and
    /// what was lost is not told again.
    pub(super) fn flushed(&self, since: Since) -> bool {
        let is_known = self.take();
        let is_lost = since.writes > 0 && self.heard.load(Ordering::Acquire) != since.heard;
        if is_known || is_lost {
            return false;
        }
        self.flushed.fetch_max(since.writes, Ordering::AcqRel);
        true
    }

    /// The cache may be lost; false if there was nothing in it that is not known to be lost.
    pub(super) fn lose(&self) -> bool {
        self.heard.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let is_dirty = self.flushed.load(Ordering::Acquire) < self.writes();
        is_dirty && !self.is_lost.swap(true, Ordering::AcqRel)
    }

    /// Whether writes were lost that no flush has told of yet. The next may succeed.
    pub(super) fn take(&self) -> bool {
        let is_lost =
            self.is_lost.load(Ordering::Acquire) && self.is_lost.swap(false, Ordering::AcqRel);
        if is_lost {
            // All that is done by now is done before the flush fails.
            self.flushed.fetch_max(self.writes(), Ordering::AcqRel);
        }
        is_lost
    }

    fn writes(&self) -> u64 {
        self.lines.iter().map(|line| line.0.load(Ordering::Acquire)).sum()
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    fn write(losses: &Losses, lane: usize) {
        losses.written(lane, losses.begin_write());
    }

    fn flush(losses: &Losses) -> bool {
        !losses.take() && losses.flushed(losses.begin_flush())
    }

    #[test]
    fn a_loss_fails_one_flush_on_whichever_lane() {
        let losses = Losses::new(2);
        assert!(!losses.lose() && flush(&losses), "nothing was written");
        write(&losses, 0);
        let before = losses.begin_flush();
        write(&losses, 1);
        assert!(losses.flushed(before));
        assert!(losses.lose(), "the flush has begun before the second write");
        assert!(!losses.lose(), "it is known");
        assert!(!flush(&losses) && flush(&losses));
        write(&losses, 1);
        assert!(flush(&losses));
        assert!(!losses.lose() && flush(&losses), "all was durable");
    }

    #[test]
    fn a_write_on_its_way_may_be_lost_as_well() {
        let losses = Losses::new(2);
        let write_since = losses.begin_write();
        assert!(!losses.lose(), "nothing is done");
        losses.written(1, write_since);
        write(&losses, 0);
        assert!(!flush(&losses) && flush(&losses));
    }

    #[test]
    fn flushes_on_their_way_at_a_loss_all_fail() {
        let losses = Losses::new(2);
        write(&losses, 0);
        let both = [losses.begin_flush(), losses.begin_flush()];
        assert!(losses.lose());
        assert_eq!(both.map(|since| losses.flushed(since)), [false, false]);
        assert!(flush(&losses));
    }
}
