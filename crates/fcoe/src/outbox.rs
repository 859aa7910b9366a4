//! The frames of a port that carry no data of commands: FIP and link services.

use std::collections::VecDeque;

use tyche_engine::{Composed, Frames, Sink};
use tyche_fc::wire::FRAME_LEN_MAX;
use tyche_link::Mac;
use tyche_time::Instant;

/// The padding of frames.
static ZEROES: [u8; FRAME_LEN_MAX] = [0; FRAME_LEN_MAX];

/// A queue of frames that were written as a whole, without data of commands. It has no bound of its
/// own: frames of FIP and link services are few.
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
    pub(crate) fn push(&mut self, frame: &[u8]) {
        let len = frame.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.waiting.push_back(Whole { front: frame[..len].into(), zeroes: frame.len() - len });
    }
}

impl<'d> Frames<'d> for &'d mut Outbox {
    fn compose(&mut self, _: Instant) -> Option<Composed> {
        self.composed = self.waiting.pop_front()?;
        Some(Composed::default())
    }

    fn write(&mut self, _: Mac, sink: impl Sink<'d>) {
        let Whole { front, zeroes } = &self.composed;
        sink.gather(front, &[&ZEROES[..*zeroes]], &[]);
    }
}
