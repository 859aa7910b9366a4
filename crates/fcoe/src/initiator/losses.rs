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
}

impl Losses {
    /// A write is done.
    pub(super) fn written(&mut self) {
        self.writes += 1;
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
        losses.written();
        let before = losses.writes();
        losses.written();
        losses.flushed(before);
        assert!(losses.lose(), "the flush has begun before the second write");
        assert!(!losses.lose(), "it is known");
        assert!(losses.take() && !losses.take());
        losses.written();
        losses.flushed(losses.writes());
        assert!(!losses.lose(), "all is durable");
    }
}
