//! The end of exchanges before their time: ABTS, task management, logout.
//!
//! A command that is at the store may still change the disk. So nothing says that it is over before
//! the user has: neither BA_ACC, nor the response to a task management function, nor the answer to
//! what has ended the login.

use std::time::Duration;

use tyche_fc_wire::bls::{BaAcc, BaRjt};
use tyche_fc_wire::fcp::{ResponseCode, TaskManagement};
use tyche_fc_wire::{FCtl, Header, Kind, Wwn, Xid};
use tyche_time::Instant;

use super::Lane;
use super::exchange::{Ending, Exchange, Managing, Outcome, State, status};
use super::outputs::{Action, Function};
use crate::{Rule, Rules};

/// The time of a task management function, after which it has failed. Linux waits 10 s for the
/// answer.
const MANAGEMENT_MAX: Duration = Duration::from_secs(8);

impl<R: Rules> Lane<R> {
    /// Takes an ABTS.
    pub(super) fn handle_abts(&mut self, now: Instant, nexus: u16, header: &Header) {
        let found = self.exchanges.find(nexus, header.ox_id);
        let is_it = |it: &Xid| [self.exchanges[*it].rx_id, Xid::NONE].contains(&header.rx_id);
        let Some(xid) = found.filter(is_it) else {
            let nexus = &self.nexuses[nexus];
            let reply = header.reply(Kind::BaRjt, header.rx_id);
            self.outputs.answer(nexus.ethernet, reply, &BaRjt::UNKNOWN.to_bytes());
            return;
        };
        // It holds a slot for R_A_TOV from then on, also if it was done and had none.
        if !self.exchanges[xid].is_held && !self.exchanges.has_room(nexus) {
            self.outputs.ignored.no_room += 1;
            let nexus = &self.nexuses[nexus];
            let reply = header.reply(Kind::BaRjt, header.rx_id);
            self.outputs.answer(nexus.ethernet, reply, &BaRjt::BUSY.to_bytes());
            return;
        }
        let ending = Ending::Abort { seq_id: header.seq_id };
        let exchange = &mut self.exchanges[xid];
        if exchange.is_with_user() && !self.rules.keeps(Rule::DrainAborted) {
            exchange.ending = Some(Ending::Silent);
            self.answer_abts(xid, header.seq_id);
            return;
        }
        exchange.ending = Some(ending);
        if !exchange.is_with_user() {
            self.stop(xid);
            self.finish(now, xid);
        }
    }

    /// Stops what is on the way, in either direction.
    fn stop(&mut self, xid: Xid) {
        self.make_unready(xid);
        if matches!(self.exchanges[xid].state, State::Gathering(_)) {
            self.stop_gathering(xid);
        }
    }

    /// Gives an exchange the end that it is to have: the user is done with it.
    pub(super) fn finish(&mut self, now: Instant, xid: Xid) {
        let exchange = &mut self.exchanges[xid];
        let ending = exchange.ending.take().expect("an exchange that is to end");
        let place = exchange.nexus;
        match ending {
            Ending::TaskAborted => {
                let outcome = Outcome { status: status::TASK_ABORTED, ..Outcome::default() };
                self.respond(xid, outcome);
            }
            Ending::Silent => {
                self.release(xid);
                // Of a former login nothing is known; otherwise its command may come again.
                if self.nexuses[place].is_draining {
                    self.exchanges.forget(xid);
                } else {
                    self.exchanges.retire(xid);
                }
            }
            Ending::Abort { seq_id } => {
                self.release(xid);
                self.answer_abts(xid, seq_id);
                if self.rules.keeps(Rule::Quarantine) {
                    let until = now + self.nexuses[place].r_a_tov;
                    self.exchanges.abort(xid, until);
                } else {
                    self.exchanges.forget(xid);
                }
            }
        }
        self.settle();
    }

    fn answer_abts(&mut self, xid: Xid, seq_id: u8) {
        let Exchange { nexus, ox_id, rx_id, .. } = self.exchanges[xid];
        let nexus = &self.nexuses[nexus];
        let mut header = nexus.header(Kind::BaAcc, FCtl::REPLY, (ox_id, rx_id));
        header.seq_id = seq_id;
        let payload = BaAcc::whole(ox_id, rx_id).to_bytes();
        self.outputs.answer(nexus.ethernet, header, &payload);
    }

    /// Begins a task management function: ends the commands that it is about.
    pub(super) fn manage(&mut self, now: Instant, xid: Xid, management: TaskManagement) {
        let function = match management {
            TaskManagement::ABORT_TASK_SET => Function::AbortTaskSet,
            TaskManagement::CLEAR_TASK_SET => Function::ClearTaskSet,
            TaskManagement::LU_RESET => Function::LuReset,
            TaskManagement::TARGET_RESET => Function::TargetReset,
            _ => {
                self.respond(xid, Outcome::of_code(ResponseCode::ManagementRejected));
                return;
            }
        };
        let manager = &mut self.exchanges[xid];
        manager.state = State::Managing(function, Managing::Draining);
        let (place, lun) = (manager.nexus, manager.lun);
        self.exchanges.set_timer(xid, Some(now + MANAGEMENT_MAX));
        self.stop_tasks(Some(place), |it| is_about(function, (Some(place), lun), it));
        self.settle();
    }

    /// The time of a task management function is over: it has failed, for some command has not
    /// ended.
    pub(super) fn give_up_management(&mut self, now: Instant, xid: Xid) {
        self.outputs.ignored.management_failed += 1;
        let exchange = self.exchanges.index_of(xid);
        self.outputs.actions.push_back(Action::Unmanage { exchange });
        self.end_management(now, xid, ResponseCode::ManagementFailed);
    }

    fn end_management(&mut self, now: Instant, xid: Xid, code: ResponseCode) {
        self.exchanges.set_timer(xid, None);
        if self.exchanges[xid].ending.is_some() {
            self.finish(now, xid);
        } else {
            self.respond(xid, Outcome::of_code(code));
        }
    }

    /// Ends the commands that a function is about, which another lane of the target was asked for,
    /// whoever's they are. `by`: the initiator that wants it, if it has asked another lane of this
    /// port, so that it knows; by another port it is another initiator. Returns the commands that
    /// the user is at work with. The function is not done before each of them has
    /// [ended](Self::is_ending).
    pub fn end_tasks(&mut self, lun: [u8; 8], function: Function, by: Option<Wwn>) -> Vec<u16> {
        let place = by.and_then(|wwpn| self.nexuses.find(wwpn));
        self.end_all(place, |it| is_about(function, (place, lun), it))
    }

    /// The same for all commands of some initiators, by their names, at a logical unit. Those of
    /// former logins are among them.
    pub fn end_tasks_of(&mut self, lun: [u8; 8], is_theirs: impl Fn(Wwn) -> bool) -> Vec<u16> {
        let places: Vec<_> = self.nexuses.places(is_theirs).collect();
        let function = Function::LuReset;
        self.end_all(None, |it| places.contains(&it.nexus) && is_about(function, (None, lun), it))
    }

    fn end_all(&mut self, place: Option<u16>, is_about: impl Fn(&Exchange) -> bool) -> Vec<u16> {
        self.stop_tasks(place, &is_about);
        let ending = self.exchanges.iter().filter(|(_, it)| is_about(it) && it.is_with_user());
        ending.map(|(xid, _)| self.exchanges.index_of(xid)).collect()
    }

    /// Whether the user is still at work with a command that is to end.
    pub fn is_ending(&self, exchange: u16) -> bool {
        let exchange = self.exchanges.get(self.exchanges.at(exchange));
        exchange.is_some_and(|it| it.ending.is_some() && it.is_with_user())
    }

    /// Ends commands, or has them end when the user is done with them. `place`: the initiator that
    /// knows.
    fn stop_tasks(&mut self, place: Option<u16>, is_about: impl Fn(&Exchange) -> bool) {
        for index in 0..self.exchanges.capacity() as u16 {
            let xid = self.exchanges.at(index);
            let Some(task) = self.exchanges.get_mut(xid) else { continue };
            if !is_about(task) {
                continue;
            }
            let is_own = Some(task.nexus) == place;
            let ending = if is_own { Ending::Silent } else { Ending::TaskAborted };
            if task.is_with_user() {
                task.ending.get_or_insert(ending);
            } else if is_own {
                self.stop(xid);
                self.release(xid);
                self.exchanges.retire(xid);
            } else if matches!(task.state, State::Gathering(_)) {
                self.stop(xid);
                self.respond(xid, Outcome { status: status::TASK_ABORTED, ..Outcome::default() });
            }
        }
    }

    /// Ends a task management function that was [offered](Action::Manage).
    ///
    /// # Panics
    /// If the exchange is none of one.
    pub fn managed(&mut self, now: Instant, exchange: u16, code: ResponseCode) {
        let xid = self.exchanges.at(exchange);
        let exchange = &self.exchanges[xid];
        let is_offered = matches!(exchange.state, State::Managing(_, Managing::Offered));
        assert!(is_offered, "a function that was offered");
        self.end_management(now, xid, code);
    }

    /// Ends the login of an initiator, and all its exchanges. [`Action::Drained`] comes when
    /// nothing of them is at work any more.
    pub fn logged_out(&mut self, wwpn: Wwn) {
        let Some(place) = self.nexuses.find(wwpn) else {
            self.outputs.actions.push_back(Action::Drained(wwpn));
            return;
        };
        let nexus = &mut self.nexuses[place];
        nexus.is_draining = true;
        self.outputs.forget_answers(nexus.id());
        for index in 0..self.exchanges.capacity() as u16 {
            let xid = self.exchanges.at(index);
            let Some(exchange) = self.exchanges.get_mut(xid) else { continue };
            if exchange.nexus != place {
                continue;
            }
            if exchange.is_with_user() {
                exchange.ending = Some(Ending::Silent);
            } else {
                self.stop(xid);
                self.release(xid);
                self.exchanges.forget(xid);
            }
        }
        self.settle();
    }

    /// Goes on with functions and logouts for which nothing is at work any more.
    fn settle(&mut self) {
        for index in 0..self.exchanges.capacity() as u16 {
            let xid = self.exchanges.at(index);
            let Some(manager) = self.exchanges.get_mut(xid) else { continue };
            let State::Managing(function, Managing::Draining) = manager.state else { continue };
            let (nexus, lun) = (manager.nexus, manager.lun);
            let is_awaited = |it: &Exchange| {
                let is_about = is_about(function, (Some(nexus), lun), it);
                it.ending.is_some() && it.is_with_user() && is_about
            };
            if self.exchanges.iter().any(|(_, it)| is_awaited(it)) {
                continue;
            }
            self.exchanges[xid].state = State::Managing(function, Managing::Offered);
            let (exchange, initiator) = (self.exchanges.index_of(xid), self.nexuses[nexus].wwpn);
            self.outputs.actions.push_back(Action::Manage { exchange, initiator, lun, function });
        }
        while let Some(place) = self.find_drained() {
            let wwpn = self.nexuses.remove(place);
            self.outputs.actions.push_back(Action::Drained(wwpn));
        }
    }

    /// An initiator that has logged out, and has no exchange any more.
    fn find_drained(&self) -> Option<u16> {
        let has_none = |place: &u16| self.exchanges.iter().all(|(_, it)| it.nexus != *place);
        self.nexuses.draining().find(has_none)
    }
}

/// Whether a function of an initiator at a logical unit is about a command.
fn is_about(function: Function, (nexus, lun): (Option<u16>, [u8; 8]), task: &Exchange) -> bool {
    let is_here = unit(task.lun) == unit(lun);
    let is_task = task.is_live() && !matches!(task.state, State::Managing(..));
    is_task
        && match function {
            Function::AbortTaskSet => is_here && Some(task.nexus) == nexus,
            Function::ClearTaskSet | Function::LuReset => is_here,
            Function::TargetReset => true,
        }
}

/// The same bytes for a logical unit in both forms of its number (SAM-5, 4.7).
fn unit(lun: [u8; 8]) -> [u8; 8] {
    let [first, rest @ ..] = lun;
    let [a, b, c, d, e, f, g] = rest;
    [if first == 0x40 { 0 } else { first }, a, b, c, d, e, f, g]
}
