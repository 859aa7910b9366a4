//! Echo frames of a channel that wait to be sent: requests of a host, replies of a target.
//! docs/protocol-annexes.md, "Echo frames".
//!
//! Echoes measure links and loops without requests. They are not reliable: an echo that finds no
//! room is dropped, and lost frames are not sent again.

use std::collections::VecDeque;

use tyche_wire::{Content, ECHO_REPLIES_MAX, Echo, Flags};

/// Echoes that may wait at once: two batches of frames from the link.
pub(crate) const ECHOES_MAX: usize = 128;

/// An echo to be sent.
struct Waiting {
    /// Number of frames still to be sent.
    times: u16,
    flags: Flags,
    echo: Echo,
    /// Bytes of filling before the entry.
    filling: usize,
}

/// The echo frames of one channel that wait to be sent, [`ECHOES_MAX`] at most. Memory is taken
/// with the first echo: most channels never see one.
#[derive(Default)]
pub(crate) struct Echoes {
    waiting: VecDeque<Waiting>,
    /// Replies that were asked for and have not come, including lost ones.
    awaited: u64,
}

impl Echoes {
    /// Queues an echo request of `frame_len` bytes; false if too many echoes wait.
    ///
    /// # Panics
    /// If the echo asks for too many replies, or a frame would be too short.
    pub(crate) fn ask(&mut self, echo: Echo, frame_len: usize) -> bool {
        assert!(echo.replies <= ECHO_REPLIES_MAX, "an echo for {} frames", echo.replies);
        assert!(echo.reply_len as usize >= Echo::LEN_MIN, "answers of {} bytes", echo.reply_len);
        assert!(frame_len >= Echo::LEN_MIN, "an echo of {frame_len} bytes");
        let filling = frame_len - Echo::LEN_MIN;
        let taken = self.push(Waiting { times: 1, flags: Flags::NONE, echo, filling });
        self.awaited += if taken { echo.replies.into() } else { 0 };
        taken
    }

    /// Whether replies are awaited. Each becomes an event, so a target must not be able to send
    /// others.
    pub(crate) fn are_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// An awaited reply has come.
    pub(crate) fn answered(&mut self) {
        self.awaited -= 1;
    }

    /// Queues the replies to an echo request, if there is room.
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
