//! Writes that may be lost: done, but not flushed, when the cache of the disk was.

/// See the module. Writes are counted that may be in a volatile cache.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Writes that were done.
    writes: u64,
    /// Writes that a flush has made durable.
    flushed: u64,
    /// Whether some were lost since the last flush.
    is_lost: bool,
    /// How often a loss was heard of.
    heard: u64,
}

impl Losses {
    /// How often a loss was heard of: to be noted when a write is sent.
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// A write is done, before which so many losses were heard of. If there were others since, it
    /// may have been in the cache.
    pub(super) fn written(&mut self, heard: u64) {
        self.writes += 1;
        self.is_lost |= heard != self.heard;
    }

    /// The writes that a flush which begins now makes durable.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// A flush is done that began after so many writes.
    pub(super) fn flushed(&mut self, writes: u64) {
        self.flushed = self.flushed.max(writes);
    }

    /// The cache may be lost; false if there was nothing in it that is not known to be lost.
    pub(super) fn lose(&mut self) -> bool {
        self.heard += 1;
        let is_new = !self.is_lost && self.flushed < self.writes;
        self.is_lost |= is_new;
        is_new
    }

    /// Whether writes were lost that no flush has told of yet. The next may succeed.
    pub(super) fn take(&mut self) -> bool {
        if self.is_lost {
            self.flushed = self.writes;
        }
        std::mem::take(&mut self.is_lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_fails_one_flush() {
        let mut losses = Losses::default();
        assert!(!losses.lose() && !losses.take(), "nothing was written");
        losses.written(losses.heard());
        let before = losses.writes();
        losses.written(losses.heard());
        losses.flushed(before);
        assert!(losses.lose(), "the flush has begun before the second write");
        assert!(!losses.lose(), "it is known");
        assert!(losses.take() && !losses.take());
        losses.written(losses.heard());
        losses.flushed(losses.writes());
        assert!(!losses.lose(), "all is durable");
    }

    #[test]
    fn a_write_on_its_way_may_be_lost_as_well() {
        let mut losses = Losses::default();
        let heard = losses.heard();
        assert!(!losses.lose(), "nothing is done");
        losses.written(heard);
        losses.written(losses.heard());
        assert!(losses.take() && !losses.take());
    }
}
