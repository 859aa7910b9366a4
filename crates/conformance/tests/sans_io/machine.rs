//! A state machine as the subject of the suite, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tyche_conformance::{Result, Subject};
use tyche_proto::wire::{HEAD_LEN, Mac};
use tyche_proto::{Instant, RejectCounts};

pub(crate) const FRAME_LEN: usize = 9014;
const PLAYED: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const SUBJECT: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// The time at the start.
pub(crate) const START: Instant = Instant(1_000_000);

/// A state machine with its memory.
pub(crate) trait Machine {
    fn handle_frame(&mut self, now: Instant, head: &[u8; HEAD_LEN], payload: &[u8]);

    fn handle_timeout(&mut self, now: Instant);

    fn poll_timeout(&self) -> Option<Instant>;

    /// The next frame to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>>;

    /// Executes an order to a host's agent.
    fn order(&mut self, _now: Instant, _line: &str) -> Result<()> {
        Err("a target has no agent".to_owned())
    }

    /// The next line of a host's agent.
    fn said(&mut self) -> Option<String> {
        None
    }

    fn rejects(&self) -> &RejectCounts;

    /// The memory of its machine was put back to an earlier state.
    fn restore(&mut self, now: Instant);
}

/// A [`Subject`] that is a state machine in the same process. Waiting moves the virtual clock from
/// one timer to the next, so a test takes no time.
pub(crate) struct Simulated<M> {
    machine: M,
    now: Instant,
    sent: VecDeque<Vec<u8>>,
}

impl<M: Machine> Simulated<M> {
    pub(crate) fn new(machine: M) -> Self {
        Self { machine, now: START, sent: VecDeque::new() }
    }

    fn transmit(&mut self) {
        while let Some(frame) = self.machine.poll_transmit(self.now) {
            self.sent.push_back(frame);
        }
    }
}

impl<M: Machine> Subject for Simulated<M> {
    fn address(&self) -> tyche_conformance::Mac {
        PLAYED.0
    }

    fn frame_len(&self) -> u32 {
        FRAME_LEN as u32
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.0)
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let (head, payload) = frame.split_first_chunk().unwrap();
        self.machine.handle_frame(self.now, head, payload);
        self.transmit();
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = self.now + patience;
        loop {
            if let Some(frame) = self.sent.pop_front() {
                return Ok(Some(frame));
            }
            if self.now >= deadline {
                return Ok(None);
            }
            let next = self.machine.poll_timeout().unwrap_or(deadline);
            // A timer may be due immediately, several times in a row.
            self.now = next.max(self.now + Duration::from_micros(10)).min(deadline);
            self.machine.handle_timeout(self.now);
            self.transmit();
        }
    }

    fn order(&mut self, line: &str) -> Result<()> {
        self.machine.order(self.now, line)?;
        self.transmit();
        Ok(())
    }

    fn said(&mut self) -> Result<Option<String>> {
        Ok(self.machine.said())
    }

    fn rejects(&mut self) -> Result<Option<BTreeMap<String, u64>>> {
        let counts = self.machine.rejects().iter();
        Ok(Some(counts.map(|(reject, count)| (reject.name().to_owned(), count)).collect()))
    }

    fn can_restore(&self) -> bool {
        true
    }

    fn restore(&mut self) -> Result<()> {
        self.machine.restore(self.now);
        self.transmit();
        Ok(())
    }
}
