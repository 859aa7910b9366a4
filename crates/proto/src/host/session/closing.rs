//! The end of a session as its user wants it: with a farewell to the target, or without.

use super::event::SessionEvent;
use super::{FAREWELL_INTERVAL, FAREWELLS, Session, State};
use crate::rules::Rules;
use crate::time::Instant;

/// Farewells of a session that ends soon.
const FAREWELLS_SOON: u32 = 4;

impl<R: Rules> Session<R> {
    /// Ends the session: operations in progress fail, and the target gets a farewell. A session
    /// without a live channel ends at once.
    pub fn disconnect(&mut self, now: Instant) {
        self.close(now, false);
    }

    /// Ends this queue; the other queues of the session go on. But if operations are in progress on
    /// this queue, the whole session ends, as by [`disconnect`](Self::disconnect): such operations
    /// fail, but may still be executed, and could undo later writes of another queue.
    pub fn leave(&mut self, now: Instant) {
        let is_idle = self.operations.len() == 0 && !self.fences.has_pieces();
        self.close(now, is_idle);
    }

    fn close(&mut self, now: Instant, leaves: bool) {
        self.now = now;
        match self.state {
            State::Closed | State::Closing { .. } => {}
            State::Live => {
                let next = now + FAREWELL_INTERVAL;
                self.state = State::Closing { round: 1, next, leaves };
            }
            _ => self.end(leaves),
        }
    }

    /// Ends the queue as requested, and the session with it unless the queue `leaves`.
    pub(super) fn end(&mut self, leaves: bool) {
        self.state = State::Closed;
        if !leaves {
            self.handle.end(None);
        } else if self.fails_fast {
            self.fails_fast = false;
            self.handle.resume();
            self.events.push_back(SessionEvent::Resumed);
        }
        self.fail_operations();
        self.events.push_back(SessionEvent::Closed);
    }

    /// As [`disconnect`](Self::disconnect), but a target that does not confirm it is waited for
    /// briefly: the session has ended within 250 ms.
    pub fn disconnect_soon(&mut self, now: Instant) {
        self.close(now, false);
        if let State::Closing { round, .. } = &mut self.state {
            *round = (*round).max(FAREWELLS - FAREWELLS_SOON);
        }
    }

    /// Ends the session at once, without a farewell.
    pub fn abort(&mut self, now: Instant) {
        self.now = now;
        if self.state != State::Closed {
            self.end(false);
        }
    }
}
