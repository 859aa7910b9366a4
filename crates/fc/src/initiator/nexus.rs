//! Targets and their logical units.

use std::time::Duration;

use tyche_fc_wire::fcp::{Command as CommandUnit, CommandFrame, PreparedHead};
use tyche_fc_wire::{Ethernet, FCtl, Frame, Header, Kind, Mac, PortId, Wwn, Xid};
use tyche_time::Instant;

use super::Lane;
use super::command::{Data, Failure, Nexus, Unit};
use super::task::{Phase, Task};
use crate::Rules;
use crate::port::Login;

/// The time that REC_TOV is longer than E_D_TOV, so that the target finds lost data first (FCP-4).
const REC_MARGIN: Duration = Duration::from_secs(1);

/// A target, and our port as it is logged in there.
pub(super) struct Target {
    pub(super) login: Login,
    pub(super) port: PortId,
    pub(super) mac: Mac,
    pub(super) is_logged_in: bool,
    /// Whether it answers questions about exchanges (REC).
    pub(super) answers: bool,
    /// Whether the user has been asked for another login.
    pub(super) is_given_up: bool,
    /// The head of data frames.
    pub(super) head: PreparedHead,
    /// The last reference number of its commands (CRN) with each XID, by the XID's index; 0 before
    /// the first.
    crns: Box<[u8]>,
}

/// A logical unit.
pub(super) struct LogicalUnit {
    pub(super) nexus: u16,
    pub(super) lun: [u8; 8],
    /// Its commands, but for what differs.
    pub(super) frame: CommandFrame,
    /// Whether its commands have reference numbers.
    pub(super) is_numbered: bool,
    /// Whether a command of this login that hears attentions has been answered.
    pub(super) has_answered: bool,
}

impl Target {
    fn new((port, mac): (PortId, Mac), login: &Login, xids: usize) -> Self {
        let ethernet = Ethernet { destination: login.mac, source: mac };
        let header = Header {
            f_ctl: FCtl::WRITE_DATA,
            ..Header::request(Kind::FcpData, port, login.id, Xid::NONE)
        };
        Self {
            login: *login,
            port,
            mac,
            is_logged_in: true,
            answers: true,
            is_given_up: false,
            head: PreparedHead::new(ethernet, &header),
            crns: vec![0; xids].into(),
        }
    }

    /// The next reference number of a command with the XID of that index: never 0.
    pub(super) fn next_crn(&mut self, index: u16) -> u8 {
        let crn = &mut self.crns[usize::from(index)];
        *crn = crn.checked_add(1).unwrap_or(1);
        *crn
    }

    /// The time without progress after which the target is asked (REC_TOV).
    pub(super) fn rec_tov(&self) -> Duration {
        self.login.e_d_tov + REC_MARGIN
    }

    /// The addresses of a frame to it.
    pub(super) fn ethernet(&self) -> Ethernet {
        Ethernet { destination: self.login.mac, source: self.mac }
    }

    /// The header of a request to it.
    pub(super) fn request(&self, kind: Kind, ox_id: Xid) -> Header {
        Header::request(kind, self.port, self.login.id, ox_id)
    }

    /// Whether a frame comes from it, to us.
    pub(super) fn has_sent(&self, frame: &Frame<'_>) -> bool {
        let Frame { ethernet, header, .. } = frame;
        let is_from_it = ethernet.source == self.login.mac && header.s_id == self.login.id;
        is_from_it && ethernet.destination == self.mac && header.d_id == self.port
    }

    fn command_frame(&self, lun: [u8; 8]) -> CommandFrame {
        let header = self.request(Kind::FcpCmnd, Xid::NONE);
        CommandFrame::new(self.ethernet(), &header, &CommandUnit::new(lun, [0; 16]))
    }
}

impl<R: Rules> Lane<R> {
    /// Takes a login with a target, or what else has been agreed about it. `port` and `mac` are our
    /// port's. `None` if the other end is no target, or there are as many as there may be.
    pub fn logged_in(
        &mut self,
        now: Instant,
        (port, mac): (PortId, Mac),
        login: &Login,
    ) -> Option<Nexus> {
        if !login.functions.target {
            self.logged_out(now, login.wwpn);
            return None;
        }
        let xids = self.exchanges.capacity();
        let nexus = match self.find_target(login.wwpn) {
            Some(nexus) => {
                let target = &mut self.targets[usize::from(nexus)];
                let is_same = (target.port, target.login.id) == (port, login.id);
                if target.is_logged_in && is_same {
                    target.login = *login;
                    return Some(Nexus(nexus));
                }
                // Nothing of another login is left.
                self.end(now, nexus);
                self.exchanges.forget_rx_ids(nexus);
                self.targets[usize::from(nexus)] = Target::new((port, mac), login, xids);
                nexus
            }
            None if self.targets.len() == self.config.targets => return None,
            None => {
                self.targets.push(Target::new((port, mac), login, xids));
                self.targets.len() as u16 - 1
            }
        };
        let target = &self.targets[usize::from(nexus)];
        for unit in self.units.iter_mut().filter(|it| it.nexus == nexus) {
            (unit.frame, unit.has_answered) = (target.command_frame(unit.lun), false);
        }
        Some(Nexus(nexus))
    }

    /// Takes the end of a login: all commands of the target are completed. Nothing of it is at work
    /// here then.
    pub fn logged_out(&mut self, now: Instant, wwpn: Wwn) {
        if let Some(nexus) = self.find_target(wwpn) {
            self.end(now, nexus);
        }
    }

    /// A logical unit of a target; `None` if there are as many as there may be.
    pub fn unit(&mut self, nexus: Nexus, lun: [u8; 8]) -> Option<Unit> {
        let found = self.units.iter().position(|it| (it.nexus, it.lun) == (nexus.0, lun));
        if let Some(index) = found {
            return Some(Unit(index as u16));
        }
        if self.units.len() == self.config.units {
            return None;
        }
        let frame = self.targets[usize::from(nexus.0)].command_frame(lun);
        self.units.push(LogicalUnit {
            nexus: nexus.0,
            lun,
            frame,
            is_numbered: false,
            has_answered: false,
        });
        Some(Unit(self.units.len() as u16 - 1))
    }

    /// Has the commands of a logical unit numbered from now on, or not (CRN). A target of ours then
    /// knows a command that the network has repeated from a new one with the same OX_ID. Others are
    /// to have none: the numbers are not those that FCP has for precise delivery.
    pub fn number_commands(&mut self, unit: Unit, is_numbered: bool) {
        self.units[usize::from(unit.0)].is_numbered = is_numbered;
    }

    /// Has a logical unit count as one that has answered a command of this login that hears
    /// attentions: to another lane. What the first answer has told of is known then.
    pub fn note_answered(&mut self, unit: Unit) {
        self.units[usize::from(unit.0)].has_answered = true;
    }

    fn find_target(&self, wwpn: Wwn) -> Option<u16> {
        self.targets.iter().position(|it| it.login.wwpn == wwpn).map(|it| it as u16)
    }

    /// Ends all exchanges of a target.
    fn end(&mut self, now: Instant, nexus: u16) {
        let target = &mut self.targets[usize::from(nexus)];
        if !std::mem::take(&mut target.is_logged_in) {
            return;
        }
        let until = now + target.login.r_a_tov;
        // Its commands are not sent any more when others make room.
        let exchanges = &self.exchanges;
        for budget in [&mut self.reads, &mut self.writes] {
            budget.waiting.retain(|xid| exchanges.nexus(*xid) != Some(nexus));
        }
        for xid in self.exchanges.xids() {
            if self.exchanges.nexus(xid) != Some(nexus) {
                continue;
            }
            if let Some(task) = self.exchanges.task(xid) {
                let (may_modify, is_sent) = (task.may_modify(), task.is_sent());
                self.complete(xid, Err(Failure::LoggedOut { may_modify }));
                if !is_sent {
                    self.exchanges.close(xid);
                    continue;
                }
            }
            self.exchanges.quarantine(xid, until);
        }
    }
}

impl Task {
    /// Whether a target that we hear nothing of any more may execute it.
    fn may_modify(&self) -> bool {
        let has_data = match self.data {
            Data::Out(len) => self.moved() == len,
            Data::None | Data::In(_) => true,
        };
        self.modifies && self.is_sent() && has_data && self.phase != Phase::Confirming
    }
}
