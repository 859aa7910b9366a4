//! Recovery of what was lost: questions about exchanges (REC), their end before time (ABTS), and
//! the release of their numbers (RRQ).

use tyche_fc_wire::bls::{BaAcc, BaRjt};
use tyche_fc_wire::els::{
    Code, ESTAT_COMPLETE, ESTAT_INITIATIVE, ExchangeStatus, Rejection, Reply,
};
use tyche_fc_wire::{Header, Xid};
use tyche_time::Instant;

use super::Lane;
use super::command::{Data, Event, Failure};
use super::task::{Phase, Service, ServiceKind, Task};
use crate::{Rule, Rules};

/// Questions in a row without an answer after which an exchange is aborted.
const SILENCE_MAX: u8 = 3;
/// How often ABTS is sent before the login is given up.
const ABORTS_MAX: u8 = 3;

impl<R: Rules> Lane<R> {
    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(xid) = self.exchanges.poll_expired(now) {
            if let Some(service) = self.exchanges.service(xid) {
                self.quarantine(now, xid);
                self.unanswered(now, xid, service);
            } else if let Some(task) = self.exchanges.task(xid) {
                self.expire(now, xid, task.phase);
            }
        }
    }

    fn expire(&mut self, now: Instant, xid: Xid, phase: Phase) {
        match phase {
            Phase::Sent => self.inquire(now, xid),
            Phase::Answered => {
                self.repairs.data_lost += 1;
                self.reads.lost(now);
                self.give_up(now, xid, Failure::DataLost);
            }
            Phase::Doubted => {
                self.repairs.not_arrived += 1;
                self.give_up(now, xid, Failure::NotArrived);
            }
            Phase::Aborting(ABORTS_MAX..) => {
                let task = self.exchanges.task_mut(xid).expect("it is a command's");
                task.phase = Phase::Stuck;
                let nexus = task.nexus;
                self.restart(nexus);
            }
            Phase::Aborting(_) => self.push_urgent(xid),
            Phase::Recovering => {
                if self.open_service(xid, ServiceKind::Rrq).is_none() {
                    // The time alone is enough.
                    self.exchanges.close(xid);
                }
            }
            Phase::Waiting | Phase::Ready | Phase::Stuck | Phase::Confirming => {
                unreachable!("{phase:?} has no timer")
            }
        }
    }

    /// A command has made no progress: asks the target about it, or aborts it.
    fn inquire(&mut self, now: Instant, xid: Xid) {
        let timeout = self.config.command_timeout;
        let Some(task) = self.exchanges.task(xid) else { return };
        let over_at = task.sent_at + timeout;
        if over_at <= now {
            self.repairs.timed_out += 1;
            self.note_loss(now, xid);
            self.abort(xid);
        } else if task.burst.is_some() || !self.targets[usize::from(task.nexus)].answers {
            // With a burst, it is the link that takes no frames.
            self.exchanges.set_timer(xid, Some(over_at));
        } else if let Some(question) = self.open_service(xid, ServiceKind::Rec) {
            self.repairs.questions += 1;
            self.exchanges.task_mut(xid).expect("it is a command's").question = Some(question);
        } else {
            self.wait(now, xid);
        }
    }

    /// Has a link service about an exchange sent, if there is an XID for it.
    fn open_service(&mut self, about: Xid, kind: ServiceKind) -> Option<Xid> {
        let nexus = self.exchanges.nexus(about)?;
        let xid = self.exchanges.open_service(Service { nexus, kind, about })?;
        self.push_urgent(xid);
        Some(xid)
    }

    /// The command that a question is about; `None` if it has gone on without the answer.
    pub(super) fn asked(&mut self, question: Xid, about: Xid) -> Option<&mut Task> {
        self.exchanges.task_mut(about).filter(|it| it.question == Some(question))
    }

    /// A link service was not answered in time.
    fn unanswered(&mut self, now: Instant, xid: Xid, service: Service) {
        let Service { kind, about, .. } = service;
        if kind == ServiceKind::Rrq {
            self.exchanges.close(about);
        } else if let Some(task) = self.asked(xid, about) {
            task.question = None;
            task.silence += 1;
            if task.silence < SILENCE_MAX {
                self.inquire(now, about);
            } else {
                self.repairs.silent += 1;
                self.abort(about);
            }
        }
    }

    /// Takes the answer to a link service.
    pub(super) fn handle_reply(&mut self, now: Instant, xid: Xid, payload: &[u8]) {
        let Some(service) = self.exchanges.service(xid) else { return };
        let Service { nexus, kind, about } = service;
        let code = if kind == ServiceKind::Rec { Code::Rec } else { Code::Rrq };
        let reply = match Reply::parse(code, payload) {
            Ok(Reply::Exchange(status)) if status.ox_id != about => Err(()),
            reply => reply.map_err(drop),
        };
        let Ok(reply) = reply else {
            // The right one may still come.
            self.ignored.malformed += 1;
            return;
        };
        // A refusal does not say what it is about: if it came twice, it must find no later
        // question.
        self.quarantine(now, xid);
        if kind == ServiceKind::Rrq {
            self.exchanges.close(about);
            return;
        }
        let Some(task) = self.asked(xid, about) else { return };
        (task.question, task.silence) = (None, 0);
        match reply {
            Reply::Exchange(status) => self.handle_status(now, about, &status),
            Reply::Refused(Rejection { explanation: Rejection::INVALID_XID, .. }) => {
                self.unknown(now, about);
            }
            Reply::Refused(Rejection { reason: Rejection::UNSUPPORTED, .. }) => {
                self.targets[usize::from(nexus)].answers = false;
                self.inquire(now, about);
            }
            Reply::Refused(Rejection { explanation: Rejection::NOT_LOGGED_IN, .. }) => {
                self.wait(now, about);
                self.restart(nexus);
            }
            _ => self.wait(now, about),
        }
    }

    /// The target knows the exchange: waits as long as it is its turn.
    fn handle_status(&mut self, now: Instant, xid: Xid, status: &ExchangeStatus) {
        let task = self.exchanges.task_mut(xid).expect("a question was about it");
        if task.rx_id == Xid::NONE {
            // Without it, some find no exchange to abort.
            task.rx_id = status.rx_id;
        }
        let is_at_work = status.estat & (ESTAT_INITIATIVE | ESTAT_COMPLETE) == ESTAT_INITIATIVE;
        if is_at_work {
            self.wait(now, xid);
        } else {
            self.repairs.out_of_step += 1;
            self.note_loss(now, xid);
            self.abort(xid);
        }
    }

    /// The target does not know the exchange. If it has answered before, it is done with it.
    /// Otherwise the command has not arrived. It may still do, and be executed then, if it needs no
    /// data; and some targets say so as long as they have not answered. So there is time left for
    /// it.
    fn unknown(&mut self, now: Instant, xid: Xid) {
        let Some(task) = self.exchanges.task_mut(xid) else { return };
        let is_read = matches!(task.data, Data::In(_));
        if task.rx_id != Xid::NONE {
            self.repairs.answer_lost += 1;
            if is_read {
                self.reads.lost(now);
            }
            self.give_up(now, xid, Failure::AnswerLost);
        } else if task.is_executable() {
            task.phase = Phase::Doubted;
            let r_a_tov = self.targets[usize::from(task.nexus)].login.r_a_tov;
            let until = task.sent_at + r_a_tov;
            self.exchanges.set_timer(xid, Some(until));
        } else {
            self.repairs.not_arrived += 1;
            self.give_up(now, xid, Failure::NotArrived);
        }
    }

    /// If data of a command were sent, they may be what is missing.
    fn note_loss(&mut self, now: Instant, xid: Xid) {
        let task = self.exchanges.task(xid);
        if task.is_some_and(|it| matches!(it.data, Data::Out(_)) && it.moved() > 0) {
            self.writes.lost(now);
        }
    }

    /// Completes a command without an answer, and quarantines its XID.
    fn give_up(&mut self, now: Instant, xid: Xid, failure: Failure) {
        self.complete(xid, Err(failure));
        self.quarantine(now, xid);
    }

    /// Has the exchange of a command aborted.
    pub(super) fn abort(&mut self, xid: Xid) {
        let task = self.exchanges.task_mut(xid).expect("only commands are aborted");
        // The rest of a burst is not sent, and is not taken as sent.
        let (data, room) = (task.data, task.leave());
        task.phase = Phase::Aborting(0);
        self.exchanges.set_timer(xid, None);
        self.push_urgent(xid);
        if !self.rules.keeps(Rule::AwaitAbort) {
            self.complete(xid, Err(Failure::Aborted));
        }
        // Others need not wait for what does not come any more.
        self.give_back(data, room);
    }

    /// Takes BA_ACC: the target is done with the exchange. The numbers in the header count: in the
    /// payload, Linux leaves them zero.
    pub(super) fn handle_abort_accepted(&mut self, now: Instant, header: &Header, payload: &[u8]) {
        let xid = header.ox_id;
        let Some(task) = self.exchanges.task_mut(xid) else { return };
        if BaAcc::parse(payload).is_err() {
            self.ignored.malformed += 1;
            return;
        }
        if !task.is_aborting() {
            self.ignored.unexpected += 1;
            return;
        }
        if task.rx_id == Xid::NONE {
            task.rx_id = header.rx_id;
        }
        let until = now + self.targets[usize::from(task.nexus)].login.r_a_tov;
        self.complete(xid, Err(Failure::Aborted));
        if !self.rules.keeps(Rule::Quarantine) {
            self.exchanges.close(xid);
            return;
        }
        self.exchanges.task_mut(xid).expect("it is open").phase = Phase::Recovering;
        self.exchanges.set_timer(xid, Some(until));
    }

    /// Takes BA_RJT: the target has no such exchange, or cannot end it now.
    pub(super) fn handle_abort_rejected(&mut self, now: Instant, xid: Xid, payload: &[u8]) {
        let Some(task) = self.exchanges.task(xid) else { return };
        let Ok(rejected) = BaRjt::parse(payload) else {
            self.ignored.malformed += 1;
            return;
        };
        let is_unknown =
            rejected.explanation == BaRjt::INVALID_XID || rejected.reason == BaRjt::LOGICAL;
        if !task.is_aborting() || !is_unknown {
            self.ignored.unexpected += 1;
        } else if task.is_completed {
            self.quarantine(now, xid);
        } else {
            self.unknown(now, xid);
        }
    }

    /// Asks the user for another login of a target, once.
    fn restart(&mut self, nexus: u16) {
        let target = &mut self.targets[usize::from(nexus)];
        if !std::mem::replace(&mut target.is_given_up, true) {
            self.repairs.restarts += 1;
            self.events.push_back(Event::Restart(target.login.wwpn));
        }
    }
}

impl Task {
    /// Whether an ABTS is to be answered.
    pub(super) fn is_aborting(&self) -> bool {
        matches!(self.phase, Phase::Aborting(_) | Phase::Stuck)
    }

    /// Whether it matters if the command is executed late, and the target needs nothing more for
    /// that.
    fn is_executable(&self) -> bool {
        match self.data {
            Data::None => true,
            Data::In(_) => self.modifies,
            Data::Out(len) => len == 0,
        }
    }
}
