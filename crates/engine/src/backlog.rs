//! The backlog of a port: frames that the interface had no room for.
//!
//! Frames that bypass the queueing discipline go straight to the ring of the network card's driver.
//! The kernel refuses those that a full ring has no room for, and does not report when there is
//! room again. The ring empties at the speed of the wire, so the port keeps these frames, sends
//! them again every [`RETRY`], and composes no others before the last of them is gone. A queueing
//! discipline would hold them as well, but Debian's default (`fq_codel`) drops frames that wait for
//! longer than a few milliseconds, and a full window waits for longer on a slow wire.

use std::time::Duration;

use tyche_link::TxBatch;
use tyche_time::Instant;

/// The interval between attempts. The ring of a driver holds frames for longer, so that it does not
/// run empty meanwhile: 64 KB at 1 Gbit/s are 500 µs.
const RETRY: Duration = Duration::from_micros(100);
/// Attempts in a row without any progress, 100 ms at least, after which the frames count as lost:
/// the protocol's timers decide what happens then. A card sends nothing for so long if its peer
/// pauses it, or if it hangs. A virtual machine that does not run for a while makes few attempts.
const ATTEMPTS_MAX: u32 = 1000;

/// Copies of frames that the interface refused, in the order in which they go out. While there are
/// any, a port composes no others: so their number is that of one batch at most.
#[derive(Default)]
pub(crate) struct Backlog {
    /// Copies of frames, the first `end` in use. Their memory is kept.
    frames: Vec<Vec<u8>>,
    /// Frames before this one are sent.
    first: usize,
    end: usize,
    retry_at: Instant,
    /// Attempts without progress.
    attempts: u32,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.first
    }

    /// The time of the next attempt; `None` without frames.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.retry_at)
    }

    /// Keeps a copy of a frame, behind the others.
    pub(crate) fn push<'p>(&mut self, parts: impl IntoIterator<Item = &'p [u8]>) {
        if self.frames.len() == self.end {
            self.frames.push(Vec::new());
        }
        let frame = &mut self.frames[self.end];
        frame.clear();
        parts.into_iter().for_each(|part| frame.extend_from_slice(part));
        self.end += 1;
    }

    /// Adds the frames to a batch, as many as it has room for. `head_len`: bytes of a frame's head.
    pub(crate) fn fill<'a>(&'a self, batch: &mut TxBatch<'a>, head_len: usize) {
        for frame in self.frames[self.first..self.end].iter().take(batch.room()) {
            batch.push_whole(frame, head_len);
        }
    }

    /// Notes that new frames were refused, and will be added.
    pub(crate) fn begin(&mut self, now: Instant) {
        (self.retry_at, self.attempts) = (now + RETRY, 0);
    }

    /// Notes that frames were refused again after the first `sent`. Whether none was taken for too
    /// long.
    pub(crate) fn is_stuck(&mut self, now: Instant, sent: usize) -> bool {
        self.retry_at = now + RETRY;
        self.attempts = if sent > 0 { 0 } else { self.attempts + 1 };
        self.attempts == ATTEMPTS_MAX
    }

    /// Removes the first frames.
    pub(crate) fn skip(&mut self, frames: usize) {
        self.first += frames;
        if self.is_empty() {
            self.clear();
        }
    }

    /// Removes all frames.
    pub(crate) fn clear(&mut self) {
        (self.first, self.end) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use tyche_link::TxVectors;

    use super::*;

    const NOW: Instant = Instant(1_000_000_000);

    fn filled(backlog: &Backlog, room: usize) -> Vec<Vec<u8>> {
        let mut vectors = TxVectors::new(room, 1);
        let mut batch = vectors.batch();
        backlog.fill(&mut batch, 3);
        batch.frames().map(|frame| frame.parts().collect::<Vec<_>>().concat()).collect()
    }

    #[test]
    fn frames_leave_in_their_order() {
        let mut backlog = Backlog::default();
        assert_eq!((backlog.retry_at(), backlog.len()), (None, 0));
        backlog.begin(NOW);
        for n in 0..5 {
            backlog.push([&[n, n][..], &[n; 7], &[]]);
        }
        assert_eq!(backlog.retry_at(), Some(NOW + RETRY));
        assert_eq!(filled(&backlog, 2), [[0; 9], [1; 9]]);
        backlog.skip(2);
        assert_eq!(filled(&backlog, 8), [[2; 9], [3; 9], [4; 9]]);
        backlog.skip(3);
        assert!(backlog.is_empty());
        // Shorter than a head, in the memory of a longer one.
        backlog.push([&[9][..]]);
        assert_eq!(filled(&backlog, 8), [[9]]);
    }

    #[test]
    fn it_is_stuck_after_many_attempts_without_progress() {
        let mut backlog = Backlog::default();
        backlog.begin(NOW);
        backlog.push([&[1][..]]);
        for sent in [0, 1] {
            assert!((1..ATTEMPTS_MAX).all(|_| !backlog.is_stuck(NOW, 0)));
            assert_eq!(backlog.is_stuck(NOW + RETRY, sent), sent == 0);
            assert_eq!(backlog.retry_at(), Some(NOW + RETRY * 2));
            backlog.begin(NOW);
        }
    }
}
