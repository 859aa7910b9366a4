//! The data of writes: bursts are asked for, in turn, and their frames taken.

use tyche_fc_wire::fcp::{ResponseCode, data_offset};
use tyche_fc_wire::{FCtl, Frame, Xid};
use tyche_time::{Instant, earliest};

use super::Lane;
use super::exchange::{Burst, Outcome, Phase, State};
use super::outputs::Action;
use crate::{Rule, Rules};

impl<R: Rules> Lane<R> {
    /// Begins to gather the data of a write.
    pub(super) fn gather(&mut self, xid: Xid, len: u32) {
        self.exchanges[xid].len = len;
        self.wait_for_burst(xid);
    }

    fn wait_for_burst(&mut self, xid: Xid) {
        let exchange = &mut self.exchanges[xid];
        exchange.state = State::Gathering(Phase::Waiting);
        let waiting = &mut self.nexuses[exchange.nexus].waiting;
        if waiting.is_empty() {
            self.turns.push_back(exchange.nexus);
        }
        waiting.push_back(xid);
        self.grant_bursts();
    }

    /// Asks for bursts of one initiator after the other, as long as there is room for their frames.
    pub(super) fn grant_bursts(&mut self) {
        let mut passed = 0;
        while passed < self.turns.len() {
            let place = self.turns[0];
            passed = if self.grant_burst(place) { 0 } else { passed + 1 };
            if self.nexuses[place].waiting.is_empty() {
                self.turns.pop_front();
            } else {
                self.turns.rotate_left(1);
            }
        }
    }

    /// Asks an initiator for a burst of its next write; false if there is no room for it.
    fn grant_burst(&mut self, place: u16) -> bool {
        let nexus = &mut self.nexuses[place];
        let xid = *nexus.waiting.front().expect("it waits for its turn");
        let exchange = &mut self.exchanges[xid];
        let wanted = (exchange.len - exchange.moved).min(self.burst_len);
        let frames = nexus.window.room(self.rules, &self.ring, nexus.frames(wanted));
        if frames == 0 {
            return false;
        }
        let len = wanted.min(frames.saturating_mul(nexus.write_len()));
        nexus.window.take(&mut self.ring, frames);
        nexus.waiting.pop_front();
        exchange.seq_id = exchange.seq_id.wrapping_add(1);
        let seq_id = exchange.is_numbered.then_some(exchange.seq_id);
        let burst = Burst { offset: exchange.moved, len, frames, seq_id, ..Burst::default() };
        exchange.burst = burst;
        exchange.moved += len;
        exchange.state = State::Gathering(Phase::Granted);
        self.make_ready(xid);
        true
    }

    /// The burst that was asked for is over, one way or the other.
    fn end_burst(&mut self, xid: Xid) {
        let exchange = &mut self.exchanges[xid];
        let burst = std::mem::take(&mut exchange.burst);
        self.nexuses[exchange.nexus].window.give(&mut self.ring, burst.frames);
        self.exchanges.set_timer(xid, None);
    }

    /// Ends the wait for data.
    pub(super) fn stop_gathering(&mut self, xid: Xid) {
        let place = self.exchanges[xid].nexus;
        let waiting = &mut self.nexuses[place].waiting;
        waiting.retain(|it| *it != xid);
        if waiting.is_empty() {
            self.turns.retain(|it| *it != place);
        }
        self.end_burst(xid);
        self.grant_bursts();
    }

    /// Takes a frame of data.
    pub(super) fn handle_data(&mut self, now: Instant, frame: &Frame<'_>) {
        let header = &frame.header;
        let ignored = &mut self.outputs.ignored;
        let Some(xid) = self.exchanges.of_rx_id(header.rx_id) else {
            ignored.unknown += 1;
            return;
        };
        let exchange = &mut self.exchanges[xid];
        let nexus = &mut self.nexuses[exchange.nexus];
        if exchange.ox_id != header.ox_id || !nexus.is_from(frame) {
            ignored.unknown += 1;
            return;
        }
        let Ok(offset) = data_offset(header, frame.payload.len()) else {
            ignored.malformed += 1;
            return;
        };
        // Checked with the offset.
        let len = frame.payload.len() as u32;
        let burst = &mut exchange.burst;
        let is_within = offset >= burst.offset && offset + len <= burst.offset + burst.len;
        if exchange.state == State::Aborted {
            ignored.aborted += 1;
            return;
        }
        if exchange.state != State::Gathering(Phase::Asked) || !is_within {
            ignored.unasked += 1;
            return;
        }
        // Of initiators that don't count them, those of a burst have at least the same.
        let is_of_burst = *burst.seq_id.get_or_insert(header.seq_id) == header.seq_id;
        if !is_of_burst && self.rules.keeps(Rule::CheckSequences) {
            ignored.other_sequence += 1;
            return;
        }
        let marked = if self.rules.keeps(Rule::CountOnce) {
            exchange.received.mark(offset, len)
        } else {
            Ok(exchange.received.add(len))
        };
        match marked {
            Ok(0) => {
                ignored.repeated_data += 1;
                return;
            }
            Ok(_) => {
                burst.came += 1;
                nexus.heard = Some(now);
                let exchange = self.exchanges.index_of(xid);
                self.outputs.actions.push_back(Action::Place { exchange, offset, len });
            }
            Err(_) => ignored.scattered += 1,
        }
        let silence = Some(now + nexus.e_d_tov);
        let end = earliest(silence, self.exchanges[xid].burst.until);
        self.exchanges.set_timer(xid, end);
        let last = header.f_ctl.has(FCtl::END_SEQ).then_some(header.seq_cnt);
        self.advance(now, xid, last);
    }

    /// Goes on if the burst is whole, or can't become whole any more. `last` is SEQ_CNT of its last
    /// frame, if it is that one that has come.
    fn advance(&mut self, now: Instant, xid: Xid, last: Option<u16>) {
        let exchange = &self.exchanges[xid];
        let Burst { offset, len, came, .. } = exchange.burst;
        let has_all = if self.rules.keeps(Rule::CountOnce) {
            exchange.received.has(offset..offset + len)
        } else {
            exchange.received.count() >= offset + len
        };
        if has_all || last.is_some() && !self.rules.keeps(Rule::ExecuteWhole) {
            self.end_burst(xid);
            self.nexuses[self.exchanges[xid].nexus].window.grow();
            if self.exchanges[xid].moved < self.exchanges[xid].len {
                self.wait_for_burst(xid);
            } else {
                self.execute(xid);
                self.grant_bursts();
            }
        } else if let Some(last) = last {
            // Without a gap, the sender has not sent what it was asked for.
            let is_short = u32::from(last) + 1 == came;
            let outcome = if is_short {
                Outcome::of_code(ResponseCode::DataLengthInvalid)
            } else {
                Outcome::data_phase_error()
            };
            self.lose(now, xid, outcome);
        }
    }

    /// A burst has not come in its time. If nothing else has come of its initiator either, that one
    /// is not asked for what else it wants to write: this would last a burst's time for each.
    pub(super) fn miss(&mut self, now: Instant, xid: Xid) {
        let place = self.exchanges[xid].nexus;
        let nexus = &mut self.nexuses[place];
        if nexus.is_silent(now) && self.rules.keeps(Rule::ShareRing) {
            nexus.window.close();
            while let Some(waiting) = self.nexuses[place].waiting.pop_front() {
                self.outputs.ignored.not_asked += 1;
                self.respond(waiting, Outcome::data_phase_error());
            }
            self.turns.retain(|it| *it != place);
        }
        self.lose(now, xid, Outcome::data_phase_error());
    }

    /// Data are missing: the command fails, so that its initiator sends it again.
    pub(super) fn lose(&mut self, now: Instant, xid: Xid, outcome: Outcome) {
        let exchange = &mut self.exchanges[xid];
        let nexus = &mut self.nexuses[exchange.nexus];
        nexus.window.shrink();
        let until = now + nexus.r_a_tov;
        exchange.late_until = self.rules.keeps(Rule::Quarantine).then_some(until);
        self.outputs.ignored.lost_data += 1;
        self.stop_gathering(xid);
        self.respond(xid, outcome);
    }
}
