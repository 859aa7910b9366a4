//! The thread of a session with a disk, its handle, and the loop's tenant.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_block::{Arena, Errno};
use tyche_engine::{
    Clock, EventLoop, HostReport, Intake, Latency, Ports, Protocol, RequestCounts, Submission,
    Tenant, Volume, VolumeQueue, identity,
};
use tyche_fc::port::{self, Cause};
use tyche_fc::vn2vn::{self, Functions};
use tyche_fc::wire::els::Code;
use tyche_fc::wire::{PortId, Wwn};
use tyche_numa::Home;
use tyche_proto::wire::Uuid;
use tyche_proto::{ExportState, Failure, Former, Problem};
use tyche_scsi::Lun;
use tyche_scsi::initiator::Disk;
use tyche_scsi::vpd::Identity;
use tyche_time::Instant;
use tyche_wake::{MakePoller, Spin};

use super::obstacle::Obstacle;
use super::report::{Counted, report};
use super::requests::Ended;
use super::role::{Event, InitiatorConfig, InitiatorRole};
use crate::interface::Interface;
use crate::n_port::{NPort, NPortConfig, Notice, RememberAddress};

/// The first and last number of the exchanges of commands.
const XIDS: (u16, u16) = (0x0000, 0x0fff);
/// Time limit for the thread to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Options to use a disk with.
pub struct FcoeHostOptions {
    /// The interface.
    pub interface: Interface,
    /// Name of the port of this end.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The N_Port_ID that the port had before, if that is known.
    pub recorded: Option<PortId>,
    /// Takes each N_Port_ID that it gets.
    pub remember: RememberAddress,
    /// E_D_TOV: a whole number of milliseconds. R_A_TOV is five times that.
    pub e_d_tov: Duration,
    /// Name of the target's port.
    pub target: Wwn,
    /// The logical unit.
    pub lun: Lun,
    /// The most commands at a time.
    pub queue_size: u16,
    /// Whether to refuse writes.
    pub read_only: bool,
    /// The time that requests wait for a lost target; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The device that the disk is for.
    pub device: Uuid,
    /// The disk, as the former session of the device knew it: it must be the same.
    pub resumes: Option<ExportState>,
    /// Pages of memory for the data of requests.
    pub arena_pages: usize,
    /// The longest spin before sleeping.
    pub spin: Duration,
}

impl FcoeHostOptions {
    /// The configuration of the initiator's port.
    pub fn port(&self) -> NPortConfig {
        let functions = Functions { initiator: true, target: false };
        let names = (self.wwpn, self.wwnn);
        NPortConfig { recorded: self.recorded, ..NPortConfig::new(names, functions, self.e_d_tov) }
    }
}

enum Command {
    Report(SyncSender<HostReport>),
    Obstacle(SyncSender<Option<Obstacle>>),
    Adopt(MakePoller),
    Stop,
}

/// The running session. Dropping it aborts the session.
pub struct FcoeHost {
    volume: Arc<Volume>,
    control: FcoeControl,
    thread: Option<JoinHandle<()>>,
}

impl FcoeHost {
    /// Starts the thread, which looks for the target at once. Calls `notify` with each notice, in
    /// order. `notify` must not wait.
    ///
    /// # Errors
    /// The system's error when a thread or an eventfd cannot be created.
    pub fn start(
        options: FcoeHostOptions,
        notify: impl FnMut(tyche_engine::Notice) + Send + 'static,
    ) -> io::Result<Self> {
        let volume = Arc::new(Volume::new([Arena::new(options.arena_pages)])?);
        let (sender, commands) = channel();
        let queue = Arc::clone(&volume.loops()[0]);
        let control = FcoeControl { volume: Arc::clone(&queue), commands: sender };
        let thread = std::thread::Builder::new().name("fcoe-session".into()).spawn(move || {
            // Without the privilege there is no protection, but the disk works.
            if let Err(error) = tyche_block::avoid_reclaim_io() {
                tracing::debug!(%error, "session without protection from memory reclaim");
            }
            let spin = Spin::new(options.spin);
            let (tenant, ports) = HostLoop::new(options, queue, commands, Box::new(notify));
            EventLoop::new(tenant, ports, spin).run().end();
        })?;
        Ok(Self { volume, control, thread: Some(thread) })
    }

    /// The disk. Its geometry is known after the first notice that it is connected.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// A handle for other threads.
    pub fn control(&self) -> FcoeControl {
        self.control.clone()
    }
}

impl Drop for FcoeHost {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a session's thread panicked");
        }
    }
}

/// Controls a session from any thread.
#[derive(Clone)]
pub struct FcoeControl {
    volume: Arc<VolumeQueue>,
    commands: Sender<Command>,
}

impl FcoeControl {
    fn send(&self, command: Command) {
        // Once the session is over the channel is closed: there is nothing to control.
        let _ = self.commands.send(command);
        self.volume.doorbell.ring();
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Option<T> {
        let (sender, receiver) = sync_channel(1);
        self.send(command(sender));
        receiver.recv_timeout(ANSWER).ok()
    }

    /// Ends the session and logs out: all requests in progress fail.
    /// [`Notice::Closed`](tyche_engine::Notice::Closed) follows.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Adds a poller to the thread. It is polled until it ends, even after the end of the session.
    pub fn adopt(&self, make: MakePoller) {
        self.send(Command::Adopt(make));
    }

    /// Reports the state of the session; `None` if it has ended or does not answer within a second.
    pub fn report(&self) -> Option<HostReport> {
        self.ask(Command::Report)
    }

    /// The obstacle on the way to the disk; `None` if it can be used.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.ask(Command::Obstacle).flatten()
    }
}

/// The tenant of the thread's loop.
struct HostLoop {
    port: NPort<InitiatorRole>,
    intake: Intake<Submission>,
    commands: Receiver<Command>,
    notify: Box<dyn FnMut(tyche_engine::Notice) + Send>,
    remember: RememberAddress,
    device: Uuid,
    resumes: Option<ExportState>,
    /// The disk as it was reported.
    export: Option<ExportState>,
    counted: Counted,
    /// Why the target was lost.
    problem: Option<Problem>,
    /// Why the last login has failed.
    refusal: Option<(Code, port::Failure)>,
    /// The fault of the logical unit.
    unit: Option<Obstacle>,
    is_down: bool,
    stopping: bool,
}

impl HostLoop {
    fn new(
        options: FcoeHostOptions,
        volume: Arc<VolumeQueue>,
        commands: Receiver<Command>,
        notify: Box<dyn FnMut(tyche_engine::Notice) + Send>,
    ) -> (Self, Ports) {
        let fcoe = &options.interface.fcoe;
        // A quarter of them is left for what comes beside data.
        let frames = fcoe.receive_capacity(fcoe.frame_len_max()) as u32 / 4 * 3;
        let mut role = InitiatorRole::new(InitiatorConfig {
            target: options.target,
            lun: options.lun,
            depth: options.queue_size.into(),
            frames,
            read_only: options.read_only,
            ctrl_loss_tmo: options.ctrl_loss_tmo,
            xids: XIDS,
        });
        if options.resumes.is_some_and(|it| it.geometry.write_cache) {
            // Of the former session, which may not have been flushed.
            role.losses.written(role.losses.heard());
        }
        let port = NPort::new(options.port(), role);
        let now = Clock::Monotonic.now();
        let tenant = Self {
            port,
            intake: Intake::new(volume),
            commands,
            notify,
            remember: options.remember,
            device: options.device,
            resumes: options.resumes,
            export: None,
            counted: Counted {
                requests: RequestCounts::default(),
                reads: Latency::new(now),
                writes: Latency::new(now),
            },
            problem: None,
            refusal: None,
            unit: None,
            is_down: false,
            stopping: false,
        };
        (tenant, options.interface.into_ports(&Home::default()))
    }

    /// Fails the remaining requests: the session has ended.
    fn end(mut self) {
        self.intake.end(|job| job.complete(Err(Errno::IO)));
        (self.notify)(tyche_engine::Notice::Closed);
    }

    fn tell(&mut self, notice: tyche_engine::Notice) {
        (self.notify)(notice);
    }

    /// Delivers answers, and notices after them; false if there was nothing.
    fn settle(&mut self, now: Instant) -> bool {
        let mut worked = false;
        let Counted { requests, reads, writes } = &mut self.counted;
        for Ended { submission, begun, result } in self.port.role.requests.ended.drain(..) {
            worked = true;
            let (operation, len) = (submission.request.operation, submission.request.len);
            requests.count(operation, len, result);
            match operation {
                tyche_block::Operation::Read if result.is_ok() => reads.add(begun, now),
                tyche_block::Operation::Write { .. } if result.is_ok() => writes.add(begun, now),
                _ => {}
            }
            submission.complete(result);
        }
        while let Some(notice) = self.port.poll_notice() {
            self.note(notice);
        }
        while let Some(event) = self.port.role.events.pop_front() {
            worked = true;
            self.handle_event(event);
        }
        worked
    }

    /// Keeps the address, and what explains why the disk can't be used.
    fn note(&mut self, notice: Notice) {
        let target = self.port.role.config.target;
        match notice {
            Notice::Neighbour(vn2vn::Event::Claimed(id, _)) => (self.remember)(id),
            Notice::Login(port::Event::LoggedOut(wwpn, cause)) if wwpn == target => {
                self.problem = Some(match cause {
                    _ if self.is_down => Problem::Down,
                    Cause::Gone => Problem::Silence,
                    Cause::Logout => Problem::Disconnected,
                    Cause::Anew => Problem::Reset,
                    Cause::User => Problem::Stall,
                });
            }
            Notice::Login(port::Event::Failed(wwpn, code, failure)) if wwpn == target => {
                self.refusal = Some((code, failure));
            }
            Notice::Login(port::Event::LoggedIn(login)) if login.wwpn == target => {
                self.refusal = None;
            }
            _ => {}
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Ready => self.found(),
            Event::Away if self.export.is_some() => {
                let problem = self.problem.unwrap_or(Problem::Silence);
                self.tell(tyche_engine::Notice::Lost(problem));
            }
            Event::Away => {}
            Event::Resized => {
                if let Some(disk) = self.port.role.disk {
                    self.intake.volume().set_geometry(disk.geometry);
                    self.tell(tyche_engine::Notice::Resized(disk.geometry.size));
                }
            }
            Event::CacheLost => self.tell(tyche_engine::Notice::CacheLost),
            Event::Changed => self.tell(tyche_engine::Notice::Failed(Failure::ExportChanged)),
            Event::GivenUp => self.tell(tyche_engine::Notice::Failed(Failure::TargetLost)),
            Event::NoLun(luns) => self.unit = Some(Obstacle::NoLun(luns)),
            Event::Unusable(error) => self.unit = Some(Obstacle::Unusable(error)),
        }
    }

    /// The disk is there, for the first time or again.
    fn found(&mut self) {
        let role = &mut self.port.role;
        let Some(disk) = role.disk else { return };
        (self.unit, self.problem) = (None, None);
        let export = state(role.config.target, role.config.lun, &disk);
        if self.resumes.is_some_and(|known| known.uuid != export.uuid) {
            role.fail(Errno::IO);
            self.tell(tyche_engine::Notice::Failed(Failure::ExportChanged));
            return;
        }
        self.intake.volume().set_geometry(disk.geometry);
        if self.export.replace(export) != Some(export) {
            self.tell(tyche_engine::Notice::Former(Former { device: self.device, export }));
        }
        self.tell(tyche_engine::Notice::Connected(export));
    }

    fn obstacle(&self, ports: &Ports) -> Option<Obstacle> {
        let role = &self.port.role;
        if role.is_ready() {
            return None;
        }
        let trouble = ports.iter().find_map(|(_, port)| port.trouble());
        let before = Obstacle::before_login(&self.port, trouble, role.config.target);
        if before.is_some() {
            return before;
        }
        if !role.is_logged_in() {
            return Some(Obstacle::NoLogin(self.refusal));
        }
        Some(self.unit.clone().unwrap_or(Obstacle::Asking))
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
        boot: Uuid::nil(),
    }
}

impl Tenant for HostLoop {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn obey(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.is_down = ports.iter().any(|(_, port)| port.is_down());
        let mut worked = self.port.attend(now, ports);
        while let Ok(command) = self.commands.try_recv() {
            worked = true;
            match command {
                // The recipient may have timed out.
                Command::Report(to) => {
                    let known = (self.export, self.problem);
                    let report = report(now, &self.port, ports, &mut self.counted, known);
                    let _ = to.send(report);
                }
                Command::Obstacle(to) => {
                    let _ = to.send(self.obstacle(ports));
                }
                Command::Adopt(make) => self.intake.adopt(make),
                Command::Stop => {
                    self.stopping = true;
                    self.port.role.fail(Errno::IO);
                    self.port.log_out(now);
                }
            }
        }
        worked
    }

    fn work(&mut self, now: Instant) -> bool {
        let mut worked = self.settle(now);
        worked |= self.intake.poll();
        let role = &mut self.port.role;
        worked |= self.intake.take(|submission| role.submit(now, submission));
        worked | self.settle(now)
    }

    fn is_over(&self) -> bool {
        self.stopping && self.port.role.requests.count() == 0
    }

    fn may_sleep(&mut self) -> bool {
        self.intake.may_sleep()
    }

    fn awake(&mut self) {
        self.intake.awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.intake.wait_fds()
    }
}
