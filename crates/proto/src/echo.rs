//! Echoes of a channel that wait to be sent: a host's questions, a target's answers.
//! PROTOCOL.md, "Echo frames".
//!
//! They measure what the link and the loops can do without requests, so nothing is remembered of
//! them: what does not fit is dropped, and what is lost stays lost.

use std::collections::VecDeque;

use tyche_wire::{Content, ECHO_REPLIES_MAX, Echo, Flags};

/// Echoes that wait at once: a batch of frames from the link and another one.
pub(crate) const ECHOES_MAX: usize = 128;

/// A frame to be sent.
struct Waiting {
    /// How often.
    times: u16,
    flags: Flags,
    echo: Echo,
    /// Bytes of any content before the entry.
    filling: usize,
}

/// See the module. Takes memory with the first echo only: most channels never see one.
#[derive(Default)]
pub(crate) struct Echoes {
    waiting: VecDeque<Waiting>,
    /// Answers to questions that have not come, the lost ones included.
    awaited: u64,
}

impl Echoes {
    /// A question of `frame_len` bytes; false if too much is waiting.
    ///
    /// # Panics
    /// If there is no such echo, or none so short.
    pub(crate) fn ask(&mut self, echo: Echo, frame_len: usize) -> bool {
        assert!(echo.replies <= ECHO_REPLIES_MAX, "an echo for {} frames", echo.replies);
        assert!(echo.reply_len as usize >= Echo::LEN_MIN, "answers of {} bytes", echo.reply_len);
        assert!(frame_len >= Echo::LEN_MIN, "an echo of {frame_len} bytes");
        let filling = frame_len - Echo::LEN_MIN;
        let taken = self.push(Waiting { times: 1, flags: Flags::NONE, echo, filling });
        self.awaited += if taken { echo.replies.into() } else { 0 };
        taken
    }

    /// Whether answers are awaited: who takes note of each must be safe from a target that sends
    /// them unasked.
    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// An answer has come that was awaited.
    pub(crate) fn answered(&mut self) {
        self.awaited -= 1;
    }

    /// Answers a question, as far as there is room for it.
    pub(crate) fn answer(&mut self, echo: Echo) {
        if echo.replies > 0 {
            let filling = echo.reply_len as usize - Echo::LEN_MIN;
            self.push(Waiting { times: echo.replies, flags: Flags::REPLY, echo, filling });
        }
    }

    fn push(&mut self, frame: Waiting) -> bool {
        let fits = self.waiting.len() < ECHOES_MAX;
        if fits {
            self.waiting.push_back(frame);
        }
        fits
    }

    /// The flags and contents of the next frame.
    pub(crate) fn next(&mut self) -> Option<(Flags, Content)> {
        let Waiting { times, flags, echo, filling } = self.waiting.front_mut()?;
        let next = (*flags, Content::Echo { echo: *echo, filling: *filling });
        *times -= 1;
        if *times == 0 {
            self.waiting.pop_front();
        }
        Some(next)
    }
}
