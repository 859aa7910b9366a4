//! The frames of exchanges: FCP_XFER_RDY, data of reads, FCP_RSP.

use tyche_fc_wire::fcp::TransferReady;
use tyche_fc_wire::{FCtl, Kind, Xid};
use tyche_time::Instant;

use super::Lane;
use super::exchange::{Phase, State};
use super::outputs::Action;
use crate::Rules;
use crate::outgoing::{Outgoing, PAYLOAD_MAX, Part};

/// Frames that an initiator is sent before it is another's turn, or that of another of its
/// exchanges: about 64 KiB.
const TURN_FRAMES: u32 = 32;
/// Times E_D_TOV in which all of a burst must come, however its frames are spread.
const BURST_TIMES: u32 = 4;

impl<R: Rules> Lane<R> {
    /// Composes the next frame to send; false if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        if self.outputs.compose(out) {
            return true;
        }
        let Some(&place) = self.senders.front() else { return false };
        let xid = *self.nexuses[place].ready.front().expect("it has a frame to send");
        self.turn += 1;
        match self.exchanges[xid].state {
            State::Gathering(_) => self.compose_transfer_ready(now, xid, out),
            _ if self.exchanges[xid].moved < self.exchanges[xid].len => {
                self.compose_data(xid, out);
            }
            _ => self.compose_response(xid, out),
        }
        if self.turn == TURN_FRAMES && self.senders.front() == Some(&place) {
            let ready = &mut self.nexuses[place].ready;
            if ready.front() == Some(&xid) {
                ready.rotate_left(1);
            }
            self.senders.rotate_left(1);
            self.turn = 0;
        }
        true
    }

    /// An exchange has a frame to send.
    pub(super) fn make_ready(&mut self, xid: Xid) {
        let exchange = &mut self.exchanges[xid];
        if std::mem::replace(&mut exchange.is_ready, true) {
            return;
        }
        let ready = &mut self.nexuses[exchange.nexus].ready;
        if ready.is_empty() {
            self.senders.push_back(exchange.nexus);
        }
        ready.push_back(xid);
    }

    /// An exchange has none any more.
    pub(super) fn make_unready(&mut self, xid: Xid) {
        let exchange = &mut self.exchanges[xid];
        if !std::mem::replace(&mut exchange.is_ready, false) {
            return;
        }
        let place = exchange.nexus;
        let ready = &mut self.nexuses[place].ready;
        if ready.front() == Some(&xid) {
            ready.pop_front();
        } else {
            ready.retain(|it| *it != xid);
        }
        if !ready.is_empty() {
            return;
        }
        if self.senders.front() == Some(&place) {
            self.turn = 0;
        }
        self.senders.retain(|it| *it != place);
    }

    fn compose_transfer_ready(&mut self, now: Instant, xid: Xid, out: &mut Outgoing) {
        let exchange = &mut self.exchanges[xid];
        let nexus = &self.nexuses[exchange.nexus];
        exchange.state = State::Gathering(Phase::Asked);
        let mut header = nexus.header(Kind::FcpXferRdy, FCtl::XFER_RDY, exchange.ids());
        header.seq_id = exchange.begin_sequence();
        let (offset, len) = (exchange.burst.offset, exchange.burst.len);
        out.set(nexus.ethernet, &header, &TransferReady { offset, len }.to_bytes());
        exchange.burst.until = Some(now + BURST_TIMES * nexus.e_d_tov);
        let end = now + nexus.e_d_tov;
        self.exchanges.set_timer(xid, Some(end));
        self.make_unready(xid);
    }

    /// All data of a read are one sequence.
    fn compose_data(&mut self, xid: Xid, out: &mut Outgoing) {
        let index = self.exchanges.index_of(xid);
        let exchange = &mut self.exchanges[xid];
        let nexus = &mut self.nexuses[exchange.nexus];
        let offset = exchange.moved;
        let len = (exchange.len - offset).min(nexus.payload_max as u32);
        if offset == 0 {
            exchange.sequence = (exchange.begin_sequence(), 0);
        }
        let is_last = offset + len == exchange.len;
        let f_ctl = if is_last { FCtl::READ_DATA_END } else { FCtl::READ_DATA };
        nexus.data_head.set_exchange(exchange.ox_id, exchange.rx_id);
        nexus.data_head.set_data(f_ctl, exchange.sequence, offset, len as usize);
        out.set_data(&nexus.data_head, Part { exchange: index, offset, len });
        exchange.moved += len;
        exchange.sequence.1 = exchange.sequence.1.wrapping_add(1);
    }

    fn compose_response(&mut self, xid: Xid, out: &mut Outgoing) {
        let exchange = &mut self.exchanges[xid];
        let nexus = &self.nexuses[exchange.nexus];
        let is_last = !exchange.outcome.confirm;
        let f_ctl = if is_last { FCtl::RESPONSE } else { FCtl::RESPONSE_TO_CONFIRM };
        let mut header = nexus.header(Kind::FcpRsp, f_ctl, exchange.ids());
        header.seq_id = exchange.begin_sequence();
        let mut payload = [0; PAYLOAD_MAX];
        let len = exchange.outcome.response().emit(&mut payload);
        out.set(nexus.ethernet, &header, &payload[..len]);
        self.make_unready(xid);
        self.release(xid);
        self.exchanges.retire(xid);
    }

    /// The user is to have nothing more of an exchange.
    pub(super) fn release(&mut self, xid: Xid) {
        if std::mem::replace(&mut self.exchanges[xid].is_lent, false) {
            let exchange = self.exchanges.index_of(xid);
            self.outputs.actions.push_back(Action::Release { exchange });
        }
    }
}
