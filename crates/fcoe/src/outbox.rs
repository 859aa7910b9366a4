//! Whole frames that wait to be sent: those of FIP and link services, which are few.

use std::collections::VecDeque;

use tyche_fc::wire::FRAME_LEN_MAX;

/// The padding of frames.
static ZEROES: [u8; FRAME_LEN_MAX] = [0; FRAME_LEN_MAX];

/// See the module.
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

    /// Takes the next frame to compose; false if there is none.
    pub(crate) fn compose(&mut self) -> bool {
        let next = self.waiting.pop_front();
        let is_there = next.is_some();
        self.composed = next.unwrap_or_default();
        is_there
    }

    /// Writes the composed frame, as [`Frames::write`](tyche_engine::Frames::write).
    pub(crate) fn write<'d>(&self, push: impl FnOnce(&[u8], &[&'d [u8]], &[u8])) {
        let Whole { front, zeroes } = &self.composed;
        push(front, &[&ZEROES[..*zeroes]], &[]);
    }
}
