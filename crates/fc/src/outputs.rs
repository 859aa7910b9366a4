//! The outputs of a machine that finds neighbours, in whichever kind of network.

use std::collections::VecDeque;

use crate::neighbour::{Event, Membership};

/// The outputs of the last input that the caller has not taken yet, with up to `MAX` frames: no
/// input causes as many. `I`: counters of what has no effect.
pub(crate) struct Outputs<F, I, const MAX: usize> {
    pub(crate) events: VecDeque<Event>,
    pub(crate) memberships: VecDeque<Membership>,
    frames: VecDeque<F>,
    /// Frames that the caller did not take before the next input.
    undrained: u64,
    pub(crate) ignored: I,
}

impl<F, I: Default, const MAX: usize> Default for Outputs<F, I, MAX> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            memberships: VecDeque::new(),
            frames: VecDeque::new(),
            undrained: 0,
            ignored: I::default(),
        }
    }
}

impl<F, I, const MAX: usize> Outputs<F, I, MAX> {
    pub(crate) fn send(&mut self, frame: F) {
        if self.frames.len() < MAX {
            self.frames.push_back(frame);
        } else {
            self.undrained += 1;
        }
    }

    pub(crate) fn next_frame(&mut self) -> Option<F> {
        self.frames.pop_front()
    }

    /// Drops the frames that are no longer true.
    pub(crate) fn drop_frames(&mut self) {
        self.frames.clear();
    }

    /// The number of frames that the caller did not take before the next input.
    pub(crate) fn undrained(&self) -> u64 {
        self.undrained
    }
}
