//! A session with a disk and the requests of its first lane, without the loop that drives it and
//! the threads that submit.

use std::collections::VecDeque;
use std::sync::Arc;

use tyche_block::Geometry;
use tyche_engine::{Done, Job, Ports, Protocol, RequestCounts, Service, identity, now};
use tyche_fc::port::{self, Cause};
use tyche_fc::wire::Wwn;
use tyche_fc::wire::els::Code;
use tyche_proto::wire::Uuid;
use tyche_proto::{ExportState, Failure, Problem, ResumeState};
use tyche_remote::{HostReport, Notice};
use tyche_scsi::Lun;
use tyche_scsi::initiator::Disk;
use tyche_scsi::vpd::Identity;
use tyche_time::Instant;

use super::INITIATOR;
use super::obstacle::Obstacle;
use super::options::FcoeHostOptions;
use super::report::{report, take_ended};
use super::role::{Event, InitiatorRole};
use super::shared::SessionShared;
use crate::n_port::{self, NPort};

/// The service of the first lane: the port with its role, and what explains the state of the
/// session. After each round its owner takes `done` first and then `notices`, because a notice may
/// say that no more answers follow.
pub(super) struct Driver {
    port: NPort<InitiatorRole>,
    device: Uuid,
    resumes: Option<ExportState>,
    /// The disk as it was reported.
    export: Option<ExportState>,
    counts: RequestCounts,
    /// Why the target was lost.
    problem: Option<Problem>,
    /// Why the last login has failed.
    refusal: Option<(Code, port::Failure)>,
    /// The fault of the logical unit.
    unit: Option<Obstacle>,
    is_down: bool,
    stopping: bool,
    /// Finished requests.
    pub(super) done: Vec<Done>,
    /// Notices for the owner.
    pub(super) notices: VecDeque<Notice>,
}

impl Driver {
    /// The driver, and the ports of its interface.
    pub(super) fn new(options: FcoeHostOptions, shared: &Arc<SessionShared>) -> (Self, Ports) {
        let config = options.config(&*options.port.interface.fcoe);
        let role = InitiatorRole::new(config, shared.handle(0));
        if options.resumes.is_some_and(|it| it.geometry.write_cache) {
            // Of the former session, which may not have been flushed.
            shared.inherit();
        }
        let (port, ports) = options.port.open(INITIATOR, role);
        let driver = Self {
            port,
            device: options.device,
            resumes: options.resumes,
            export: None,
            counts: RequestCounts::new(now()),
            problem: None,
            refusal: None,
            unit: None,
            is_down: false,
            stopping: false,
            done: Vec::new(),
            notices: VecDeque::new(),
        };
        (driver, ports)
    }

    /// Takes a request, or gives it back if there is no room.
    pub(super) fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        self.port.role.submit(now, job)
    }

    /// Ends the session and logs out: requests fail. It is [over](Service::is_over) when those with
    /// a command in progress have ended.
    pub(super) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        self.port.role.stop(now);
        self.port.log_out(now);
    }

    /// The properties of the disk, once it is known.
    pub(super) fn geometry(&self) -> Option<Geometry> {
        self.port.role.disk().map(|disk| disk.geometry)
    }

    /// Whether all requests fail, for good.
    pub(super) fn has_failed(&self) -> bool {
        self.port.role.is_over()
    }

    /// Reports the state of the session, and of its first lane.
    pub(super) fn report(&mut self, now: Instant, ports: &mut Ports) -> HostReport {
        let role = &self.port.role;
        let mut report = report(now, &role.lane, (ports, self.port.rejects()), &mut self.counts);
        report.lost_for = role.lost_since.map(|at| now.since(at));
        report.time_left = role.give_up_at().map(|at| at.since(now));
        report.fails_fast_in = role.fails_fast_at().map(|at| at.since(now));
        (report.export, report.problem) = (self.export, self.problem);
        report
    }

    /// The obstacle on the way to the disk; `None` if it can be used.
    pub(super) fn obstacle(&self, ports: &Ports) -> Option<Obstacle> {
        let role = &self.port.role;
        if role.is_ready() {
            return None;
        }
        let trouble = ports.iter().find_map(|(_, port)| port.trouble());
        let before = Obstacle::before_login(&self.port, trouble, role.config().target);
        if before.is_some() {
            return before;
        }
        if !role.is_logged_in() {
            return Some(Obstacle::NoLogin(self.refusal));
        }
        Some(self.unit.clone().unwrap_or(Obstacle::Asking))
    }

    /// Keeps what explains why the disk can't be used.
    fn note(&mut self, notice: n_port::Notice) {
        let target = self.port.role.config().target;
        match notice {
            n_port::Notice::Login(port::Event::LoggedOut(wwpn, cause)) if wwpn == target => {
                self.problem = Some(match cause {
                    _ if self.is_down => Problem::Down,
                    Cause::Gone => Problem::Silence,
                    Cause::Logout => Problem::Disconnected,
                    Cause::Anew => Problem::Reset,
                    Cause::User => Problem::Stall,
                });
            }
            n_port::Notice::Login(port::Event::Failed(wwpn, code, failure)) if wwpn == target => {
                self.refusal = Some((code, failure));
            }
            n_port::Notice::Login(port::Event::LoggedIn(login)) if login.wwpn == target => {
                self.refusal = None;
            }
            _ => {}
        }
    }

    fn tell(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Ready => self.found(now),
            Event::Away if self.export.is_some() => {
                let problem = self.problem.unwrap_or(Problem::Silence);
                self.tell(Notice::Lost(problem));
            }
            Event::Away => {}
            Event::FailsFast => self.tell(Notice::FailsFast),
            Event::Resumed => self.tell(Notice::Resumed),
            Event::Resized => {
                if let Some(geometry) = self.geometry() {
                    self.tell(Notice::Resized(geometry.size));
                }
            }
            Event::CacheLost => self.tell(Notice::CacheLost),
            Event::Changed => self.tell(Notice::Failed(Failure::ExportChanged)),
            Event::GivenUp => self.tell(Notice::Failed(Failure::TargetLost)),
            Event::NoLun(luns) => self.unit = Some(Obstacle::NoLun(luns)),
            Event::Unusable(error) => self.unit = Some(Obstacle::Unusable(error)),
        }
    }

    /// The disk is there, for the first time or again.
    fn found(&mut self, now: Instant) {
        let role = &mut self.port.role;
        let Some(disk) = role.disk().copied() else { return };
        (self.unit, self.problem) = (None, None);
        let export = state(role.config().target, role.config().lun, &disk);
        if self.resumes.is_some_and(|known| known.uuid != export.uuid) {
            role.fail(now);
            self.tell(Notice::Failed(Failure::ExportChanged));
            return;
        }
        if self.export.replace(export) != Some(export) {
            self.tell(Notice::ResumeState(ResumeState { device: self.device, export }));
        }
        self.tell(Notice::Connected(export));
    }
}

/// The identities of a disk and its target, as those of an export.
fn state(target: Wwn, lun: Lun, disk: &Disk) -> ExportState {
    let port = target.0.to_be_bytes();
    let uuid = match disk.identity {
        Some(Identity::Uuid(uuid)) => uuid,
        Some(name) => identity::derived("scsi", name.as_bytes()),
        None => identity::derived("lun", &[port, lun.0].concat()),
    };
    ExportState {
        target: identity::derived("port", &port),
        uuid,
        geometry: disk.geometry,
        generation: Uuid::nil(),
    }
}

impl Service for Driver {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.is_down = ports.iter().any(|(_, port)| port.is_down());
        let mut worked = self.port.attend(now, ports);
        if self.port.role.listen(now) {
            worked = true;
            self.port.settle(now);
        }
        worked
    }

    /// Collects answers and notices.
    fn work(&mut self, now: Instant) -> bool {
        let mut worked =
            take_ended(now, &mut self.port.role.lane, &mut self.counts, &mut self.done);
        while let Some(notice) = self.port.poll_notice() {
            self.note(notice);
        }
        while let Some(event) = self.port.role.events.pop_front() {
            worked = true;
            self.handle_event(now, event);
        }
        worked
    }

    fn is_over(&self) -> bool {
        self.stopping && self.port.role.lane.requests.count() == 0
    }
}
