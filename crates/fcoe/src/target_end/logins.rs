//! Logins, as the threads of a port have them.
//!
//! ```text
//!                 Mail: address, admissions
//! first thread ──────────────────────────────► further threads
//!   (logins)   ──────────────────────────────►   (commands)
//!      ▲          Order: a login has ended           │
//!      └──────────── the order is dropped ───────────┘
//! ```
//!
//! The first thread lets initiators in, and tells the others before its answer leaves. A login has
//! ended when none of them is at work with a command of it, nor has a frame of it left to send.

use tyche_fc::port::Login;
use tyche_fc::target_end::exchange_named;
use tyche_fc::wire::{FCtl, Frame, Kind, Mac, PortId, Wwn};
use tyche_fc::{Rule, Rules};
use tyche_time::Instant;

use super::mail::{Admission, Mail, SentOn};
use super::nexus::{EndedLogin, Nexus};
use super::peers::Tasks;
use super::role::TargetRole;
use crate::lanes::thread_of;
use crate::role::Role;

impl<R: Rules> TargetRole<R> {
    /// Lets an initiator in, or takes what is new of its login.
    pub(super) fn admit(&mut self, login: &Login) {
        let Some(own) = self.own.filter(|_| login.functions.initiator) else { return };
        let wwpn = login.wwpn;
        let id = match self.nexus(wwpn) {
            Some(nexus) => nexus.id,
            None => match self.units.login(wwpn, self.port) {
                Ok(id) => {
                    tracing::info!(%wwpn, "initiator logged in");
                    id
                }
                Err(_) => {
                    tracing::warn!(%wwpn, "no room for another initiator");
                    return;
                }
            },
        };
        let confirms = login.confirms && self.lane.rules().keeps(Rule::AwaitConfirmation);
        if confirms {
            self.units.server().expect_confirmation(id);
        }
        let admission = Admission { own, login: *login, id, confirms };
        self.let_in(&admission);
        self.management.peer.tell(&Mail::LoggedIn(Box::new(admission)));
    }

    /// Takes an initiator that is let in, or what is new of its login.
    fn let_in(&mut self, admission: &Admission) {
        let Admission { own, login, id, confirms } = admission;
        if self.nexus(login.wwpn).is_none() {
            self.nexuses.push(Nexus::new(login.wwpn, *id));
        }
        if let Some(nexus) = self.nexuses.iter_mut().find(|it| it.wwpn == login.wwpn) {
            nexus.confirms = *confirms;
        }
        self.lane.logged_in(*own, login);
    }

    /// The port has an address, which its other threads are to know.
    pub(super) fn take_address(&mut self, address: (PortId, Mac)) {
        self.own = Some(address);
        self.management.peer.tell(&Mail::Address(address));
    }

    /// Ends the login of an initiator, on all threads of the port.
    pub(super) fn let_go(&mut self, wwpn: Wwn) {
        if self.management.peer.place().1 > 1 && self.nexus(wwpn).is_some() {
            let others = self.management.peer.order_port(Tasks::LoggedOut(wwpn));
            self.ended_logins.push(EndedLogin { wwpn, others, is_drained: false });
        }
        self.lane.logged_out(wwpn);
    }

    /// Nothing of an initiator's former login is at work in this thread any more.
    pub(super) fn leave(&mut self, wwpn: Wwn) {
        if !self.is_first() {
            self.forget(wwpn);
            self.management.drained(wwpn);
        } else if let Some(ended) = self.ended_logins.iter_mut().find(|it| it.wwpn == wwpn) {
            ended.is_drained = true;
            self.settle_logins();
        } else {
            self.end_login(wwpn);
        }
    }

    /// Ends the logins that other threads were at work with, and are no longer. False if there is
    /// none.
    pub(super) fn settle_logins(&mut self) -> bool {
        if self.ended_logins.is_empty() {
            return false;
        }
        let is_over = |it: &mut EndedLogin| it.is_drained && it.others.left() == 0;
        let over: Vec<_> = self.ended_logins.extract_if(.., is_over).collect();
        over.iter().for_each(|it| self.end_login(it.wwpn));
        !over.is_empty()
    }

    /// Forgets an initiator of which nothing is at work any more.
    fn end_login(&mut self, wwpn: Wwn) {
        if let Some(id) = self.nexus(wwpn).map(|nexus| nexus.id) {
            self.units.server().logout(id);
            tracing::info!(%wwpn, "initiator logged out");
        }
        self.forget(wwpn);
        self.drained.push_back(wwpn);
    }

    fn forget(&mut self, wwpn: Wwn) {
        self.memory.forget(wwpn);
        self.nexuses.retain(|it| it.wwpn != wwpn);
    }

    /// Takes the messages of the other threads of the port; false if there is none.
    pub(super) fn read_mail(&mut self, now: Instant) -> bool {
        if !self.management.peer.has_mail() {
            return false;
        }
        for mail in self.management.peer.take_mail() {
            match mail {
                Mail::Address(address) => self.own = Some(address),
                Mail::LoggedIn(admission) => self.let_in(&admission),
                Mail::Frame(sent_on) if self.is_first() => self.sent_on.push_back(sent_on),
                Mail::Frame(sent_on) => self.handle_frame(now, &sent_on.frame()),
            }
        }
        true
    }

    /// Sends a frame on to the thread of the port that it is for: whether that is another one.
    pub(super) fn sends_on(&self, frame: &Frame<'_>) -> bool {
        let (own, threads) = self.management.peer.place();
        if threads == 1 {
            return false;
        }
        let to = match frame.header.kind {
            // About an exchange that an initiator has begun.
            Kind::ElsRequest | Kind::Fc4Request => {
                exchange_named(frame).map_or(own, |ox_id| thread_of(ox_id, threads))
            }
            // Of a login of before the port was started: who sends it is to know.
            Kind::Abts if !frame.header.f_ctl.has(FCtl::EX_CTX) => {
                if self.lane.knows_sender(frame) { own } else { 0 }
            }
            _ => own,
        };
        if to != own && !self.management.peer.send(to, Mail::Frame(SentOn::new(frame))) {
            tracing::trace!(header = ?frame.header, "a thread has too many frames of others");
        }
        to != own
    }

    /// Whether it is the first thread of its port.
    fn is_first(&self) -> bool {
        self.management.peer.place().0 == 0
    }
}
