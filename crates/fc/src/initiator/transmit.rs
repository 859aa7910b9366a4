//! Frames to be sent.

use tyche_fc_wire::els::{self, Request};
use tyche_fc_wire::{FCtl, Header, Kind, Xid};
use tyche_time::Instant;

use super::Lane;
use super::command::Data;
use super::task::{Phase, Service, ServiceKind};
use crate::Rules;
use crate::outgoing::{Outgoing, PAYLOAD_MAX, Part};

impl<R: Rules> Lane<R> {
    /// Makes `frame` the next one to send; false if there is none. The data of a write are needed
    /// as long as the frame is, even if the command is completed meanwhile.
    pub fn poll_transmit(&mut self, now: Instant, frame: &mut Outgoing) -> bool {
        while let Some(xid) = self.urgent.first() {
            self.urgent.remove_first(self.exchanges.index(xid));
            if self.send_urgent(now, xid, frame) {
                return true;
            }
        }
        while let Some(xid) = self.bursts.first() {
            let (is_sent, has_more) = self.send_data(now, xid, frame);
            if !has_more {
                self.bursts.remove_first(self.exchanges.index(xid));
            }
            if is_sent {
                return true;
            }
        }
        false
    }

    /// Makes the frame of an exchange that is not of data, if it has one.
    fn send_urgent(&mut self, now: Instant, xid: Xid, frame: &mut Outgoing) -> bool {
        if let Some(service) = self.exchanges.service(xid) {
            if service.kind == ServiceKind::Rec && self.asked(xid, service.about).is_none() {
                // It has become superfluous.
                self.exchanges.close(xid);
                return false;
            }
            self.send_service(now, xid, service, frame);
            return true;
        }
        match self.exchanges.task(xid).map(|it| it.phase) {
            Some(Phase::Ready) => self.send_command(now, xid, frame),
            Some(Phase::Aborting(repeats)) => self.send_abort(now, xid, repeats, frame),
            Some(Phase::Confirming) => self.send_confirmation(now, xid, frame),
            _ => return false,
        }
        true
    }

    fn send_command(&mut self, now: Instant, xid: Xid, frame: &mut Outgoing) {
        let index = self.exchanges.index(xid);
        let Some(task) = self.exchanges.task_mut(xid) else { return };
        let unit = &self.units[usize::from(task.unit)];
        let target = &mut self.targets[usize::from(task.nexus)];
        let crn = if unit.is_numbered { target.next_crn(index) } else { 0 };
        let rec_tov = target.rec_tov();
        (task.phase, task.sent_at, task.is_first) = (Phase::Sent, now, !unit.has_answered);
        // The sequences of numbered commands are told apart by it, too.
        task.seq_id = crn;
        let directions = (matches!(task.data, Data::In(_)), matches!(task.data, Data::Out(_)));
        let mut command = unit.frame;
        command.patch((xid, task.seq_id), crn, directions, &task.cdb, task.data.len());
        frame.set_command(&command);
        self.exchanges.set_timer(xid, Some(now + rec_tov));
    }

    fn send_abort(&mut self, now: Instant, xid: Xid, repeats: u8, frame: &mut Outgoing) {
        let Some(task) = self.exchanges.task_mut(xid) else { return };
        task.phase = Phase::Aborting(repeats + 1);
        task.seq_id = task.seq_id.wrapping_add(1);
        let (seq_id, rx_id) = (task.seq_id, task.rx_id);
        let target = &self.targets[usize::from(task.nexus)];
        let request = target.request(Kind::Abts, xid);
        let header = Header { f_ctl: FCtl::ABTS, seq_id, rx_id, ..request };
        frame.set(target.ethernet(), &header, &[]);
        self.exchanges.set_timer(xid, Some(now + 2 * target.login.r_a_tov));
        self.repairs.aborts += 1;
    }

    /// The exchange has been kept for this frame only.
    fn send_confirmation(&mut self, now: Instant, xid: Xid, frame: &mut Outgoing) {
        let Some(task) = self.exchanges.task(xid) else { return };
        let target = &self.targets[usize::from(task.nexus)];
        let (seq_id, rx_id) = (task.seq_id.wrapping_add(1), task.rx_id);
        let request = target.request(Kind::FcpConf, xid);
        let header = Header { f_ctl: FCtl::CONFIRMATION, seq_id, rx_id, ..request };
        frame.set(target.ethernet(), &header, &[]);
        self.free(now, xid);
    }

    fn send_service(&mut self, now: Instant, xid: Xid, service: Service, frame: &mut Outgoing) {
        let Service { nexus, kind, about } = service;
        let target = &self.targets[usize::from(nexus)];
        let rx_id = self.exchanges.task(about).map_or(Xid::NONE, |it| it.rx_id);
        let about = els::Exchange { originator: target.port, ox_id: about, rx_id };
        let request = match kind {
            ServiceKind::Rec => Request::Rec(about),
            ServiceKind::Rrq => Request::Rrq(about),
        };
        let mut payload = [0; PAYLOAD_MAX];
        let len = request.emit(&mut payload);
        let header = target.request(Kind::ElsRequest, xid);
        frame.set(target.ethernet(), &header, &payload[..len]);
        self.exchanges.set_timer(xid, Some(now + target.rec_tov()));
    }

    /// Makes a frame of a burst; returns whether there was one, and whether there are more.
    fn send_data(&mut self, now: Instant, xid: Xid, frame: &mut Outgoing) -> (bool, bool) {
        let Some(exchange) = self.exchanges.name(xid) else { return (false, false) };
        let task = self.exchanges.at_mut(exchange);
        let Some(burst) = task.burst.as_mut().filter(|_| task.phase == Phase::Sent) else {
            return (false, false);
        };
        let target = &self.targets[usize::from(task.nexus)];
        let len = (burst.end - burst.next).min(target.login.payload_max as u32);
        let (offset, seq_cnt) = (burst.next, burst.seq_cnt);
        (burst.next, burst.seq_cnt) = (offset + len, seq_cnt.wrapping_add(1));
        let has_more = burst.next < burst.end;
        let mut head = target.head;
        let f_ctl = if has_more { FCtl::WRITE_DATA } else { FCtl::WRITE_DATA_END };
        head.set_exchange(xid, task.rx_id);
        head.set_data(f_ctl, (task.seq_id, seq_cnt), offset, len as usize);
        frame.set_data(&head, Part { exchange, offset, len });
        if !has_more {
            task.burst = None;
            self.exchanges.set_timer(xid, Some(now + target.rec_tov()));
        }
        (true, has_more)
    }
}
