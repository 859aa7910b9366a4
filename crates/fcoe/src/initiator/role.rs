//! The role of an initiator that uses one logical unit: logins, questions, and the requests of a
//! volume, without the loop that drives it.
//!
//! ```text
//!        login            REPORT LUNS, once      questions of scsi
//! Away ─────────► Listing ─────────────► Asking ─────────────────► Ready
//!  ▲                                                                 │
//!  └───────────────────────── logout ────────────────────────────────┘
//! ```
//!
//! Requests wait until the disk is ready. After each login the disk is asked for its properties
//! again: it must be the same.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_block::Errno;
use tyche_engine::{Composed, Frames, Job, Sink};
use tyche_fc::exchange::Xids;
use tyche_fc::initiator::{
    Answer, Completion, Event as LaneEvent, Failure, Ignored, Lane, LaneConfig, Nexus, Refused,
    Repairs, Taken, Unit, WRITE_FRAMES,
};
use tyche_fc::wire::{Frame, Mac, PortId, Wwn};
use tyche_fc::{Outgoing, Rules, Sound, port};
use tyche_link::Mac as LinkMac;
use tyche_scsi::initiator::{
    self as scsi, Discovery, DiscoveryError, Disk, Progress, Scan, Verdict, classify,
};
use tyche_scsi::vpd::T10_VENDOR;
use tyche_scsi::{Attention, Lun};
use tyche_time::{Instant, earliest};

use super::commands::{Commands, Owner, Place};
use super::losses::Losses;
use super::question;
use super::requests::{Ended, Requests};
use crate::role::Role;

/// The time after which a command is aborted (ULP_TOV).
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a question that is to be asked later.
const QUESTION_PAUSE: Duration = Duration::from_secs(1);
/// The most targets, and logical units, that the lane knows: ours, and its LUN 0.
const TARGETS: usize = 1;
const UNITS: usize = 2;
/// The most requests in progress; the rest waits in the queue of the volume.
const REQUESTS_MAX: u16 = 1024;

/// The options of an initiator.
#[derive(Clone, Copy, Debug)]
pub struct InitiatorConfig {
    /// The port of the target.
    pub target: Wwn,
    /// The logical unit.
    pub lun: Lun,
    /// The most commands at a time.
    pub depth: usize,
    /// The most frames that reads may cause at a time.
    pub frames: u32,
    /// Whether to refuse writes.
    pub read_only: bool,
    /// The time that requests wait for a lost target; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The first and last number of the exchanges of commands: some thousands, for those of which
    /// frames were lost are out of use for R_A_TOV.
    pub xids: (u16, u16),
}

/// A change that the loop has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The disk can be used, for the first time or again.
    Ready,
    /// It can't be used now: requests wait.
    Away,
    /// It has another size.
    Resized,
    /// Writes that were done may be lost: the next flush fails.
    CacheLost,
    /// It is another disk than before.
    Changed,
    /// The target was lost for too long.
    GivenUp,
    /// There is no such logical unit; there are these.
    NoLun(Vec<Lun>),
    /// It can't be used at all.
    Unusable(DiscoveryError),
}

/// The step on the way to a disk that can be used.
enum Phase {
    Away,
    Listing(Scan),
    Asking(Box<Discovery>),
    Ready,
    /// For good: requests fail.
    Over,
}

/// See the module.
pub struct InitiatorRole<R = Sound> {
    pub(super) config: InitiatorConfig,
    pub(super) lane: Lane<R>,
    own: Option<(PortId, Mac)>,
    nexus: Option<Nexus>,
    phase: Phase,
    /// Whether a question is in progress.
    is_asking: bool,
    /// When the next question is to be asked.
    ask_at: Option<Instant>,
    /// When the target was lost, if it was.
    pub(super) lost_since: Option<Instant>,
    /// The disk, once it is known.
    pub(super) disk: Option<Disk>,
    pub(super) requests: Requests,
    pub(super) losses: Losses,
    pub(super) commands: Commands,
    /// The most commands of requests, as the target has shown, and when it may grow.
    pub(super) room: usize,
    pub(super) grow_at: Option<Instant>,
    pub(super) events: VecDeque<Event>,
    drained: VecDeque<Wwn>,
    restarts: VecDeque<Wwn>,
    frame: Outgoing,
}

impl InitiatorRole {
    /// An initiator that is not logged in.
    pub(super) fn new(config: InitiatorConfig) -> Self {
        Self::with_rules(config, Sound)
    }
}

impl<R: Rules> InitiatorRole<R> {
    /// An initiator that is not logged in, with other rules than those of the product.
    pub fn with_rules(config: InitiatorConfig, rules: R) -> Self {
        let lane_config = LaneConfig {
            xids: Xids::new(config.xids, 0, 0),
            depth: config.depth,
            targets: TARGETS,
            units: UNITS,
            read_frames: config.frames,
            write_frames: WRITE_FRAMES,
            command_timeout: COMMAND_TIMEOUT,
        };
        Self {
            lane: Lane::with_rules(lane_config, rules),
            own: None,
            nexus: None,
            phase: Phase::Away,
            is_asking: false,
            ask_at: None,
            lost_since: None,
            disk: None,
            requests: Requests::new(REQUESTS_MAX),
            losses: Losses::default(),
            commands: Commands::new(2 * config.depth),
            room: config.depth,
            grow_at: None,
            events: VecDeque::new(),
            drained: VecDeque::new(),
            restarts: VecDeque::new(),
            frame: Outgoing::new(),
            config,
        }
    }

    /// Whether requests are executed.
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether all requests fail.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Whether the target is logged in.
    pub fn is_logged_in(&self) -> bool {
        self.nexus.is_some()
    }

    /// Counters of the lane.
    pub fn counters(&self) -> (Ignored, Repairs) {
        (self.lane.ignored(), self.lane.repairs())
    }

    /// Takes a request, or gives it back if there is no room.
    ///
    /// # Errors
    /// The request, if there is no room for it now.
    pub fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        if self.is_over() {
            self.requests.refuse(now, job, Errno::IO);
            return Ok(());
        }
        self.requests.add(now, job)?;
        self.advance(now);
        Ok(())
    }

    /// The disk, once it is known.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Takes the requests that have ended, in this order.
    pub fn take_ended(&mut self) -> impl Iterator<Item = Ended> {
        self.requests.ended.drain(..)
    }

    /// The next change of the disk.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends all requests, now and for good; those with a command in progress when that ends.
    pub(super) fn fail(&mut self, errno: Errno) {
        self.phase = Phase::Over;
        self.requests.end_waiting(errno);
    }

    /// Has requests, or the next question, go on.
    pub(super) fn advance(&mut self, now: Instant) {
        match self.phase {
            Phase::Listing(_) | Phase::Asking(_) => self.ask(now),
            Phase::Ready => self.issue(),
            Phase::Away | Phase::Over => {}
        }
    }

    /// Submits the question of the phase, if it is time.
    fn ask(&mut self, now: Instant) {
        if self.is_asking || self.ask_at.is_some_and(|at| now < at) {
            return;
        }
        let (lun, request) = match &self.phase {
            Phase::Listing(scan) => (Lun::ZERO, Some(scan.request())),
            Phase::Asking(discovery) => (self.config.lun, discovery.request()),
            _ => return,
        };
        self.ask_at = None;
        let (Some(unit), Some(request)) = (self.unit(lun), request) else { return };
        let place = if request.data.is_empty() { Place::None } else { Place::Answer };
        match self.lane.submit(&question::command(unit, &request)) {
            Ok(number) => {
                self.is_asking = true;
                self.commands.set(number, Owner::Question, place);
            }
            Err(Refused::Full) => self.ask_at = Some(now + QUESTION_PAUSE),
            Err(Refused::LoggedOut) => {}
        }
    }

    /// A logical unit of the target, while it is logged in.
    fn unit(&mut self, lun: Lun) -> Option<Unit> {
        self.lane.unit(self.nexus?, lun.0)
    }

    /// The logical unit of the disk, while the target is logged in.
    pub(super) fn own_unit(&mut self) -> Option<Unit> {
        self.unit(self.config.lun)
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.lane.poll_event() {
            match event {
                LaneEvent::Completed(completion) => self.handle_completion(now, &completion),
                LaneEvent::Restart(wwpn) => self.restarts.push_back(wwpn),
            }
        }
        self.advance(now);
    }

    fn handle_completion(&mut self, now: Instant, completion: &Completion) {
        if completion.attention_lost {
            self.hear(Attention::PowerOn);
        }
        match (self.commands.take(completion.exchange), &completion.end) {
            (Owner::Nobody, _) => {}
            (Owner::Question, end) => {
                self.is_asking = false;
                self.handle_answer(now, end);
            }
            (Owner::Request(number), end) => self.handle_end(now, number, end),
        }
    }

    /// Takes an attention of the disk.
    pub(super) fn hear(&mut self, attention: Attention) {
        if attention.may_lose_writes() && self.losses.lose() {
            self.events.push_back(Event::CacheLost);
        }
        if attention == Attention::CapacityChanged && matches!(self.phase, Phase::Ready) {
            self.phase = Phase::Asking(Box::default());
        }
    }

    /// Takes the answer to a question.
    fn handle_answer(&mut self, now: Instant, end: &Result<Answer, Failure>) {
        let Ok(answer) = end else {
            // It was lost, or the login has ended: it is asked again.
            return;
        };
        if let Verdict::Attention(attention) = classify(answer.status, &answer.sense, None) {
            self.hear(attention);
        }
        let asked = match &self.phase {
            Phase::Listing(scan) => Some(scan.request()),
            Phase::Asking(discovery) => discovery.request(),
            _ => None,
        };
        let Some(asked) = asked else { return };
        let data = self.commands.answer(question::answered(&asked, answer));
        let answer = scsi::Answer { status: answer.status, sense: &answer.sense, data };
        let progress = match &mut self.phase {
            Phase::Listing(scan) => scan.handle(answer),
            Phase::Asking(discovery) => discovery.handle(answer),
            _ => return,
        };
        match progress {
            Progress::Next => {}
            Progress::Later => self.ask_at = Some(now + QUESTION_PAUSE),
            Progress::Failed(error) => {
                self.events.push_back(Event::Unusable(error));
                // Another login, or a change at the target, may mend that.
                self.phase = Phase::Asking(Box::default());
                self.ask_at = Some(now + QUESTION_PAUSE);
            }
            Progress::Done => self.learn(now),
        }
    }

    /// Goes on when all that was asked for is known.
    fn learn(&mut self, now: Instant) {
        match &self.phase {
            Phase::Listing(scan) => {
                let (luns, wanted) = (scan.luns(), self.config.lun.number());
                if !luns.iter().any(|lun| lun.number() == wanted) {
                    self.events.push_back(Event::NoLun(luns.to_vec()));
                    self.ask_at = Some(now + QUESTION_PAUSE);
                    self.phase = Phase::Listing(Scan::default());
                    return;
                }
                self.phase = Phase::Asking(Box::default());
            }
            Phase::Asking(discovery) => {
                let Some(mut disk) = discovery.disk().copied() else { return };
                disk.geometry.read_only |= self.config.read_only;
                self.found(disk);
            }
            _ => {}
        }
    }

    fn found(&mut self, disk: Disk) {
        if let Some(known) = &self.disk {
            if is_another(known, &disk) {
                self.events.push_back(Event::Changed);
                self.fail(Errno::IO);
                return;
            }
            if known.geometry.size != disk.geometry.size {
                self.events.push_back(Event::Resized);
            }
        }
        // A target of ours then knows a command that the network has repeated.
        let is_ours = disk.vendor.as_str() == T10_VENDOR;
        for lun in [self.config.lun, Lun::peripheral(0)] {
            if let Some(unit) = self.unit(lun) {
                self.lane.number_commands(unit, is_ours);
            }
        }
        self.disk = Some(disk);
        self.lost_since = None;
        self.phase = Phase::Ready;
        self.events.push_back(Event::Ready);
    }

    /// When all requests fail if the target does not come back.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        Some(self.lost_since? + self.config.ctrl_loss_tmo?)
    }

    fn log_in(&mut self, now: Instant, login: &port::Login) {
        let Some(own) = self.own.filter(|_| login.wwpn == self.config.target) else { return };
        let is_new = self.nexus.is_none();
        self.nexus = self.lane.logged_in(now, own, login);
        if self.nexus.is_some() && is_new && !self.is_over() {
            (self.is_asking, self.ask_at) = (false, None);
            self.phase = match self.disk {
                None => Phase::Listing(Scan::default()),
                Some(_) => Phase::Asking(Box::default()),
            };
        }
    }

    fn log_out(&mut self, now: Instant, wwpn: Wwn) {
        self.drained.push_back(wwpn);
        if wwpn != self.config.target {
            return;
        }
        self.lane.logged_out(now, wwpn);
        if self.nexus.take().is_some() && !self.is_over() {
            self.phase = Phase::Away;
            self.lost_since = self.lost_since.or(self.disk.map(|_| now));
            self.events.push_back(Event::Away);
        }
    }
}

/// Whether two disks are known to differ.
fn is_another(known: &Disk, found: &Disk) -> bool {
    let blocks = |disk: &Disk| disk.geometry.block_size;
    known.identity != found.identity || blocks(known) != blocks(found)
}

impl<R: Rules> Role for InitiatorRole<R> {
    type Rules = R;

    fn rules(&self) -> R {
        self.lane.rules()
    }

    fn handle_address(&mut self, address: (PortId, Mac)) {
        self.own = Some(address);
    }

    fn handle_login(&mut self, now: Instant, event: port::Event) {
        match event {
            port::Event::LoggedIn(login) => self.log_in(now, &login),
            port::Event::LoggedOut(wwpn, _) => self.log_out(now, wwpn),
            port::Event::Failed(wwpn, request, failure) => {
                tracing::debug!(%wwpn, ?request, ?failure, "login failed");
            }
        }
        self.handle_events(now);
    }

    fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) {
        match self.lane.handle_frame(now, frame) {
            Taken::NotOurs => tracing::trace!(header = ?frame.header, "a frame for nobody"),
            Taken::Done => {}
            Taken::Place(placement) => {
                let at = (placement.exchange, placement.offset);
                self.commands.place(&mut self.requests, at, frame.payload);
            }
        }
        self.handle_events(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        self.requests.expire(now);
        self.grow(now);
        if !self.is_over() && self.give_up_at().is_some_and(|at| at <= now) {
            self.events.push_back(Event::GivenUp);
            self.fail(Errno::IO);
        }
        self.handle_events(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let requests = earliest(self.requests.poll_timeout(), self.grow_at);
        let give_up = self.give_up_at().filter(|_| !self.is_over());
        // While nothing is to be asked, the time for it may have passed.
        let is_inquiring = matches!(self.phase, Phase::Listing(_) | Phase::Asking(_));
        let ask_at = self.ask_at.filter(|_| is_inquiring);
        let questions = earliest(ask_at, give_up);
        earliest(earliest(self.lane.poll_timeout(), questions), requests)
    }

    fn poll_drained(&mut self) -> Option<Wwn> {
        self.drained.pop_front()
    }

    fn poll_restart(&mut self) -> Option<Wwn> {
        self.restarts.pop_front()
    }

    fn frames(&mut self) -> impl Frames<'_> {
        let Self { lane, commands, requests, frame, .. } = self;
        Composing { lane, commands, requests, frame }
    }
}

/// The frames of the lane, with data where they lie.
struct Composing<'d, R> {
    lane: &'d mut Lane<R>,
    commands: &'d Commands,
    requests: &'d Requests,
    frame: &'d mut Outgoing,
}

impl<'d, R: Rules> Frames<'d> for Composing<'d, R> {
    fn compose(&mut self, now: Instant) -> Option<Composed> {
        self.lane.poll_transmit(now, self.frame).then(Composed::default)
    }

    fn write(&mut self, _: LinkMac, sink: impl Sink<'d>) {
        let (commands, requests): (&'d Commands, &'d Requests) = (self.commands, self.requests);
        let data = self.frame.part().map(|part| commands.part(requests, &part));
        self.frame.write(data.as_slice(), |front, data, tail| sink.gather(front, data, tail));
    }
}
