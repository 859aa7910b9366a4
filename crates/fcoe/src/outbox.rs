//! The frames of a port that carry no data of commands: FIP and link services.

use std::collections::VecDeque;

use tyche_engine::{Composed, FrameSink, Frames};
use tyche_fc::wire::FRAME_LEN_MAX;
use tyche_link::Mac;
use tyche_time::Instant;

/// The padding of frames.
static ZEROES: [u8; FRAME_LEN_MAX] = [0; FRAME_LEN_MAX];

/// The most frames that wait. More wait only where the interface takes none while others ask.
const FRAMES_MAX: usize = 1024;

/// A queue of frames that were written as a whole, without data of commands. A frame that finds it
/// full is lost, as it may be on its way: its sender tries again, or who asked does.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Whole>,
    /// The frame that is composed.
    composed: Whole,
}

/// A frame without the zeroes at its end, which are not copied, and their number.
#[derive(Default)]
struct Whole {
    front: Box<[u8]>,
    zeroes: usize,
}

impl Outbox {
    /// Queues a frame, if there is room.
    pub(crate) fn push(&mut self, frame: &[u8]) {
        if self.waiting.len() >= FRAMES_MAX {
            return;
        }
        let len = frame.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.waiting.push_back(Whole { front: frame[..len].into(), zeroes: frame.len() - len });
    }
}

impl<'d> Frames<'d> for &'d mut Outbox {
    fn compose(&mut self, _: Instant) -> Option<Composed> {
        self.composed = self.waiting.pop_front()?;
        Some(Composed::default())
    }

    fn write(&mut self, _: Mac, sink: impl FrameSink<'d>) {
        let Whole { front, zeroes } = &self.composed;
        sink.gather(front, &[&ZEROES[..*zeroes]], &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_an_interface_does_not_take_are_bounded() {
        let mut outbox = Outbox::default();
        for number in 0..2 * FRAMES_MAX {
            outbox.push(&number.to_be_bytes());
        }
        let mut frames = &mut outbox;
        let taken = std::iter::from_fn(|| frames.compose(Instant(0))).count();
        assert_eq!(taken, FRAMES_MAX);
        assert!(frames.compose(Instant(0)).is_none());
    }
}
