//! Frames of targets.

use tyche_fc_wire::fcp::{Residual, Response, ResponseCode, TransferReady, data_offset};
use tyche_fc_wire::{FCtl, Frame, Header, Kind, Xid};
use tyche_time::Instant;

use super::Lane;
use super::command::{CommandAnswer, Data, Failure, Placement, Taken};
use super::exchanges::Exchange;
use super::task::{Burst, Phase, Task};
use crate::exchange::Found;
use crate::target_end::is_later;
use crate::{Rule, Rules};

/// The status of a command that has done what it should.
const GOOD: u8 = 0;
/// Those of a command that was not begun: busy, reservation conflict, task set full.
const REFUSALS: [u8; 3] = [0x08, 0x18, 0x28];
/// The time for data that a response has overtaken: a link keeps frames in order.
const OVERTAKEN_MAX_NS: u64 = 1_000_000;

impl<R: Rules> Lane<R> {
    /// Takes a frame, whose CRC is right: [`Frame::parse`] has checked it.
    pub fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) -> Taken {
        let header = &frame.header;
        if !header.f_ctl.has(FCtl::EX_CTX) {
            return Taken::NotOurs;
        }
        let exchange = match self.exchanges.find(header.ox_id) {
            None => return Taken::NotOurs,
            Some(Found::Open(exchange)) => exchange,
            Some(Found::Quarantined) => {
                self.ignored.late += 1;
                return Taken::Done;
            }
            Some(Found::Nothing) => {
                self.ignored.no_exchange += 1;
                return Taken::Done;
            }
        };
        let (nexus, rx_id) = match exchange {
            Exchange::Command(name) => {
                (self.exchanges.at(name).nexus, self.exchanges.at(name).rx_id)
            }
            Exchange::Service(service) => (service.nexus, Xid::NONE),
        };
        if !self.targets[usize::from(nexus)].has_sent(frame) {
            self.ignored.stranger += 1;
            return Taken::Done;
        }
        let (xid, payload) = (header.ox_id, frame.payload);
        match (exchange, header.kind) {
            (Exchange::Service(_), Kind::ElsReply) => self.handle_reply(now, xid, payload),
            (Exchange::Command(name), kind) if is_of_command(kind) => {
                let is_its = match rx_id {
                    Xid::NONE => !self.is_former(name, header),
                    _ => rx_id == header.rx_id,
                };
                if !is_its {
                    self.ignored.other_rx_id += 1;
                    return Taken::Done;
                }
                return self.handle_command_frame(now, name, header, payload);
            }
            _ => self.ignored.unexpected += 1,
        }
        Taken::Done
    }

    /// Whether a frame may be one of an earlier exchange with the same XID, though the command has
    /// had no other. Targets of ours answer a numbered command with an RX_ID that is later than
    /// those before; of others nothing is known.
    fn is_former(&self, name: u16, header: &Header) -> bool {
        let task = self.exchanges.at(name);
        let is_ours = self.units[usize::from(task.unit)].is_numbered;
        if !is_ours || !self.rules.keeps(Rule::RefuseFormerRxIds) {
            return false;
        }
        if header.rx_id == Xid::NONE {
            // That of our ABTS.
            return header.kind != Kind::BaRjt;
        }
        let former = self.exchanges.former_rx_id(task.nexus, header.ox_id);
        former.is_some_and(|former| !is_later(header.rx_id, former))
    }

    /// Takes a frame of the command with that number.
    fn handle_command_frame(
        &mut self,
        now: Instant,
        exchange: u16,
        header: &Header,
        payload: &[u8],
    ) -> Taken {
        let xid = header.ox_id;
        match header.kind {
            Kind::FcpData => {
                if let Some(offset) = self.handle_data(now, exchange, header, payload.len()) {
                    return Taken::Place(Placement { exchange, offset });
                }
            }
            Kind::FcpXferRdy => self.handle_transfer_ready(now, exchange, header, payload),
            Kind::FcpRsp => self.handle_response(now, exchange, header, payload),
            Kind::BaAcc => self.handle_abort_accepted(now, header, payload),
            _ => self.handle_abort_rejected(now, xid, payload),
        }
        Taken::Done
    }

    /// Takes data of a read; returns where they are to be placed, if they are.
    fn handle_data(&mut self, now: Instant, name: u16, header: &Header, len: usize) -> Option<u32> {
        let xid = header.ox_id;
        let ignored = &mut self.ignored;
        let task = self.exchanges.at_mut(name);
        let Data::In(data_len) = task.data else {
            ignored.unexpected += 1;
            return None;
        };
        if !matches!(task.phase, Phase::Sent | Phase::Answered) {
            ignored.late += 1;
            return None;
        }
        let Ok(offset) = data_offset(header, len) else {
            ignored.malformed += 1;
            return None;
        };
        let len = len as u32;
        if offset + len > data_len {
            ignored.beyond += 1;
            return None;
        }
        let marked = if self.rules.keeps(Rule::CountOnce) {
            task.moved.mark(offset, len)
        } else {
            Ok(task.moved.add(len))
        };
        match marked {
            Ok(0) => {
                ignored.duplicate += 1;
                return None;
            }
            Ok(_) => {}
            Err(_) => {
                ignored.scattered += 1;
                return None;
            }
        }
        task.has_progressed(header);
        match task.answer {
            // The timer stays: the rest must be there by then.
            Some((answer, confirm)) if task.has_all(&answer) => {
                self.finish(now, xid, answer, confirm);
            }
            Some(_) => {}
            None => self.wait(now, xid),
        }
        Some(offset)
    }

    fn handle_transfer_ready(&mut self, now: Instant, name: u16, header: &Header, payload: &[u8]) {
        let xid = header.ox_id;
        let ignored = &mut self.ignored;
        let task = self.exchanges.at_mut(name);
        let Data::Out(data_len) = task.data else {
            ignored.unexpected += 1;
            return;
        };
        if task.phase != Phase::Sent {
            ignored.late += 1;
            return;
        }
        let Ok(TransferReady { offset, len }) = TransferReady::parse(payload) else {
            ignored.malformed += 1;
            return;
        };
        let end = offset + len;
        let is_fresh = !task.moved.has(offset..end);
        if end <= data_len && !is_fresh {
            // Repeated by the network: the same data twice may be too many for the target.
            ignored.duplicate += 1;
            return;
        }
        let is_possible = end <= data_len && task.burst.is_none();
        if !is_possible || task.moved.mark(offset, len) != Ok(len) {
            ignored.beyond += 1;
            self.repairs.wrong_request += 1;
            task.has_progressed(header);
            self.abort(xid);
            return;
        }
        task.has_progressed(header);
        task.seq_id = task.seq_id.wrapping_add(1);
        task.burst = Some(Burst { next: offset, end, seq_cnt: 0 });
        self.wait(now, xid);
        self.bursts.push(xid, self.exchanges.index(xid));
    }

    fn handle_response(&mut self, now: Instant, name: u16, header: &Header, payload: &[u8]) {
        let xid = header.ox_id;
        let ignored = &mut self.ignored;
        let task = self.exchanges.at_mut(name);
        let is_taken = match task.phase {
            Phase::Sent | Phase::Doubted => true,
            // It has crossed ours.
            _ => task.is_aborting() && !task.is_completed,
        };
        if !is_taken {
            let is_duplicate = task.phase == Phase::Answered;
            let counter = if is_duplicate { &mut ignored.duplicate } else { &mut ignored.late };
            *counter += 1;
            return;
        }
        let response = Response::parse(payload);
        let Some(response) = response.ok().filter(|it| task.is_possible(it)) else {
            ignored.malformed += 1;
            return;
        };
        let (answer, confirm) = (CommandAnswer::new(&response), response.confirm);
        let refused = response.code.filter(|it| *it != ResponseCode::Complete.to_wire());
        if let Some(code) = refused {
            task.has_progressed(header);
            self.close(now, xid, confirm, Err(Failure::Refused(code)));
        } else if answer.status != GOOD || task.has_all(&answer) {
            task.has_progressed(header);
            self.finish(now, xid, answer, confirm);
        } else if matches!(task.data, Data::Out(_)) {
            // It cannot be done without data: a response of another time.
            ignored.premature += 1;
        } else if task.phase == Phase::Sent {
            task.has_progressed(header);
            (task.phase, task.answer) = (Phase::Answered, Some((answer, confirm)));
            self.exchanges.set_timer(xid, Some(now.plus_ns(OVERTAKEN_MAX_NS)));
        } else {
            // Its data came after the ABTS, and were not placed.
            ignored.late += 1;
        }
    }

    /// A command has its answer, and all data that belong to it.
    fn finish(&mut self, now: Instant, xid: Xid, answer: CommandAnswer, confirm: bool) {
        let data = self.exchanges.task(xid).map_or(Data::None, |it| it.data);
        match self.budget(data) {
            Some(budget) if tells_of_lost_data(&answer) => budget.lost(now),
            Some(budget) => budget.arrived(now),
            None => {}
        }
        self.close(now, xid, confirm, Ok(answer));
    }

    /// Completes a command whose response has come, and ends its exchange unless an ABTS is still
    /// to be answered.
    fn close(
        &mut self,
        now: Instant,
        xid: Xid,
        confirm: bool,
        end: Result<CommandAnswer, Failure>,
    ) {
        self.complete(xid, end);
        let Some(task) = self.exchanges.task_mut(xid) else { return };
        if task.is_aborting() {
            return;
        }
        task.answer = end.ok().map(|answer| (answer, confirm));
        if confirm {
            task.phase = Phase::Confirming;
            self.exchanges.set_timer(xid, None);
            self.push_urgent(xid);
        } else {
            self.free(now, xid);
        }
    }

    /// Ends an exchange whose command is completed. Data of it may still be on the way, in either
    /// direction.
    pub(super) fn free(&mut self, now: Instant, xid: Xid) {
        if self.exchanges.task(xid).is_some_and(Task::is_whole) {
            self.exchanges.close(xid);
        } else {
            self.quarantine(now, xid);
        }
    }

    /// Waits for the next frame of a command.
    pub(super) fn wait(&mut self, now: Instant, xid: Xid) {
        let Some(nexus) = self.exchanges.nexus(xid) else { return };
        let rec_tov = self.targets[usize::from(nexus)].rec_tov();
        self.exchanges.set_timer(xid, Some(now + rec_tov));
    }

    /// Ends an exchange whose frames may still be on the way.
    pub(super) fn quarantine(&mut self, now: Instant, xid: Xid) {
        let Some(nexus) = self.exchanges.nexus(xid) else { return };
        let r_a_tov = self.targets[usize::from(nexus)].login.r_a_tov;
        if self.rules.keeps(Rule::Quarantine) {
            self.exchanges.quarantine(xid, now + r_a_tov);
        } else {
            self.exchanges.close(xid);
        }
    }
}

impl Task {
    /// Notes a frame of the target: what was asked about the command is answered by that.
    fn has_progressed(&mut self, header: &Header) {
        (self.rx_id, self.question, self.silence) = (header.rx_id, None, 0);
    }

    /// Whether a response can be one to the command.
    fn is_possible(&self, response: &Response<'_>) -> bool {
        !matches!(response.residual, Residual::Under(len) if len > self.data.len())
    }

    /// Whether it has its answer, and no data of it can be on the way any more.
    fn is_whole(&self) -> bool {
        let is_whole = |answer: &CommandAnswer| match self.data {
            // A target that fails a write may not have had all that was sent.
            Data::Out(_) if answer.status != GOOD && self.moved() > 0 => false,
            // It has not been begun.
            _ if REFUSALS.contains(&answer.status) && self.moved() == 0 => true,
            _ => self.has_all(answer),
        };
        self.answer.is_some_and(|(answer, _)| is_whole(&answer)) && self.burst.is_none()
    }

    /// Whether all data have been moved that there are.
    fn has_all(&self, answer: &CommandAnswer) -> bool {
        let missing = match answer.residual {
            Residual::Under(len) => len,
            Residual::None | Residual::Over(_) => 0,
        };
        self.moved() >= self.data.len() - missing
    }
}

/// Whether a target has missed data of a write: aborted command, data phase error (SPC-4).
fn tells_of_lost_data(answer: &CommandAnswer) -> bool {
    let sense: &[u8] = &answer.sense;
    let key = sense.get(2).map(|it| it & 0x0f);
    (key, sense.get(12..14)) == (Some(0x0b), Some(&[0x4b, 0x00][..]))
}

/// Whether a frame of that kind is about a command, if it comes from a target.
fn is_of_command(kind: Kind) -> bool {
    let kinds = [Kind::FcpData, Kind::FcpXferRdy, Kind::FcpRsp, Kind::BaAcc, Kind::BaRjt];
    kinds.contains(&kind)
}
