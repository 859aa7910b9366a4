//! The data of writes: bursts are asked for, in turn, and their frames taken.

use tyche_fc_wire::fcp::{ResponseCode, data_offset};
use tyche_fc_wire::{FCtl, Frame, Xid};
use tyche_time::Instant;

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
        self.exchanges[xid].state = State::Gathering(Phase::Waiting);
        self.waiting.push_back(xid);
        self.grant_bursts();
    }

    /// Asks for bursts, as long as there is room for their frames.
    pub(super) fn grant_bursts(&mut self) {
        while let Some(&xid) = self.waiting.front() {
            let exchange = &mut self.exchanges[xid];
            let nexus = &self.nexuses[exchange.nexus];
            let room = self.window.size().saturating_mul(nexus.write_len());
            let len = (exchange.len - exchange.moved).min(self.burst_len).min(room);
            let frames = nexus.frames(len);
            if !self.window.take(frames) {
                return;
            }
            exchange.burst = Burst { offset: exchange.moved, len, frames, came: 0 };
            exchange.moved += len;
            exchange.state = State::Gathering(Phase::Granted);
            self.waiting.pop_front();
            self.make_ready(xid);
        }
    }

    /// The burst that was asked for is over, one way or the other.
    fn end_burst(&mut self, xid: Xid) {
        let burst = std::mem::take(&mut self.exchanges[xid].burst);
        self.window.give(burst.frames);
        self.exchanges.set_timer(xid, None);
    }

    /// Ends the wait for data.
    pub(super) fn stop_gathering(&mut self, xid: Xid) {
        self.waiting.retain(|it| *it != xid);
        self.end_burst(xid);
        self.grant_bursts();
    }

    /// Takes a frame of data.
    pub(super) fn handle_data(&mut self, now: Instant, frame: &Frame<'_>) {
        let header = &frame.header;
        let ignored = &mut self.outputs.ignored;
        let Some(exchange) = self.exchanges.get_mut(header.rx_id) else {
            ignored.unknown += 1;
            return;
        };
        let nexus = &self.nexuses[exchange.nexus];
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
                let exchange = self.exchanges.index_of(header.rx_id);
                self.outputs.actions.push_back(Action::Place { exchange, offset, len });
            }
            Err(_) => ignored.scattered += 1,
        }
        let end = now + nexus.e_d_tov;
        self.exchanges.set_timer(header.rx_id, Some(end));
        let last = header.f_ctl.has(FCtl::END_SEQ).then_some(header.seq_cnt);
        self.advance(now, header.rx_id, last);
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
            self.window.grow();
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

    /// Data are missing: the command fails, so that its initiator sends it again.
    pub(super) fn lose(&mut self, now: Instant, xid: Xid, outcome: Outcome) {
        let exchange = &mut self.exchanges[xid];
        let until = now + self.nexuses[exchange.nexus].r_a_tov;
        exchange.late_until = self.rules.keeps(Rule::Quarantine).then_some(until);
        self.outputs.ignored.lost_data += 1;
        self.window.shrink();
        self.stop_gathering(xid);
        self.respond(xid, outcome);
    }
}
