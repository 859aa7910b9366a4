//! A lane of a session: the requests of one thread, and their commands.

use std::time::Duration;

use tyche_block::Errno;
use tyche_engine::{Composed, FrameSink, Frames, Job};
use tyche_fc::initiator::{
    CommandAnswer, Completion, Event as CommandEvent, Failure, Ignored, Lane, LaneConfig, Nexus,
    Refused, Repairs, Taken, Unit, WRITE_FRAMES,
};
use tyche_fc::port::Login;
use tyche_fc::wire::{Frame, Wwn};
use tyche_fc::{Outgoing, Rule, Rules};
use tyche_link::Mac as LinkMac;
use tyche_scsi::initiator::{self as scsi, Disk};
use tyche_scsi::vpd::T10_VENDOR;
use tyche_scsi::{Attention, Lun, Uuid};
use tyche_time::{Instant, earliest};

use super::commands::{Commands, DataPlace, Owner};
use super::question;
use super::requests::Requests;
use super::shared::{LaneHandle, LaneNews, State};
use crate::lanes;

/// The time after which a command is aborted (ULP_TOV).
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The most targets, and logical units, that a lane knows: ours, and its LUN 0.
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
    /// The most commands of a lane at a time.
    pub depth: usize,
    /// The most frames that reads of a lane may cause at a time.
    pub frames: u32,
    /// Whether to refuse writes.
    pub read_only: bool,
    /// The time that requests wait for a lost target; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The time that they wait before they fail while the session goes on; `None`: as long as that.
    pub fast_io_fail_tmo: Option<Duration>,
    /// The first and last number of the exchanges of commands, which the lanes divide: some
    /// thousands for each, for those of which frames were lost are out of use for R_A_TOV.
    pub xids: (u16, u16),
    /// A random number, from which the first of each lane follows.
    pub seed: u64,
}

/// The requests and commands of one thread of a session. It divides requests into commands, sends
/// them again after failures, and follows the login and the state that the first lane publishes.
pub(super) struct InitiatorLane<R> {
    pub(super) config: InitiatorConfig,
    pub(super) handle: LaneHandle,
    pub(super) lane: Lane<R>,
    /// The login with the target, and the target by that, if it is one.
    pub(super) login: Option<Login>,
    nexus: Option<Nexus>,
    /// Logins that had ended in the state that it has taken.
    logouts: u64,
    /// The disk, once it is known.
    pub(super) disk: Option<Disk>,
    is_ready: bool,
    /// Whether requests fail until it is ready.
    fails_fast: bool,
    is_over: bool,
    pub(super) requests: Requests,
    pub(super) commands: Commands,
    /// The most commands of requests, as the target has shown, and when it may grow.
    pub(super) room: usize,
    pub(super) grow_at: Option<Instant>,
    /// The end of a question, to be taken.
    pub(super) answer: Option<Result<CommandAnswer, Failure>>,
    /// News for the session, to be taken.
    pub(super) told: LaneNews,
    frame: Outgoing,
}

impl<R: Rules> InitiatorLane<R> {
    /// A lane that is not logged in.
    pub(super) fn new(config: InitiatorConfig, handle: LaneHandle, rules: R) -> Self {
        let lane_config = LaneConfig {
            xids: lanes::xids(config.xids, handle.lane(), handle.lanes()),
            seed: config.seed,
            depth: config.depth,
            targets: TARGETS,
            units: UNITS,
            read_frames: config.frames,
            // They all come to one queue of the target.
            write_frames: WRITE_FRAMES / handle.lanes() as u32,
            command_timeout: COMMAND_TIMEOUT,
        };
        Self {
            handle,
            lane: Lane::with_rules(lane_config, rules),
            login: None,
            nexus: None,
            logouts: 0,
            disk: None,
            is_ready: false,
            fails_fast: false,
            is_over: false,
            requests: Requests::new(REQUESTS_MAX),
            commands: Commands::new(2 * config.depth),
            room: config.depth,
            grow_at: None,
            answer: None,
            told: LaneNews::default(),
            frame: Outgoing::new(),
            config,
        }
    }

    /// Whether the target is logged in.
    pub(super) fn is_logged_in(&self) -> bool {
        self.nexus.is_some()
    }

    /// Whether requests are executed.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Logins that had ended in the state that it has taken.
    pub(super) fn logouts(&self) -> u64 {
        self.logouts
    }

    /// Whether requests fail until the disk is ready.
    pub(super) fn fails_fast(&self) -> bool {
        self.fails_fast
    }

    /// Whether all requests fail.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Counters of its commands.
    pub(super) fn counters(&self) -> (Ignored, Repairs) {
        (self.lane.ignored(), self.lane.repairs())
    }

    /// Takes the state of the session. When it returns, nothing of an earlier login is at work, but
    /// for frames that wait for room in the interface.
    pub(super) fn take(&mut self, now: Instant, state: &State) {
        if state.logouts != self.logouts {
            self.logouts = state.logouts;
            self.lane.logged_out(now, self.config.target);
            self.nexus = None;
        }
        if let (Some(own), Some(login)) = (state.own, &state.login) {
            self.nexus = self.lane.logged_in(now, own, login);
        }
        (self.login, self.disk, self.is_ready) = (state.login, state.disk, state.is_ready);
        if self.is_ready {
            self.begin();
        }
        (self.fails_fast, self.is_over) = (state.fails_fast, state.is_over);
        self.handle_events(now);
    }

    /// The disk can be used: the first lane has asked it all.
    fn begin(&mut self) {
        // A target of ours knows a command that the network has repeated.
        let is_ours = self.disk.is_some_and(|disk| disk.vendor.as_str() == T10_VENDOR);
        for lun in [self.config.lun, Lun::peripheral(0)] {
            if let Some(unit) = self.unit(lun) {
                self.lane.number_commands(unit, is_ours);
                self.lane.note_answered(unit);
            }
        }
    }

    /// Takes a request, or gives it back if there is no room.
    pub(super) fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        if self.is_over || self.fails_fast {
            self.requests.refuse(now, job, Errno::IO);
            return Ok(());
        }
        self.requests.add(now, job)?;
        self.go();
        Ok(())
    }

    /// Submits a question to a logical unit.
    ///
    /// # Errors
    /// If there is no room for it now, or no login.
    pub(super) fn ask(&mut self, lun: Lun, request: &scsi::Request) -> Result<(), Refused> {
        let unit = self.unit(lun).ok_or(Refused::LoggedOut)?;
        let place = if request.data.is_empty() { DataPlace::None } else { DataPlace::Answer };
        let number = self.lane.submit(&question::command(unit, request))?;
        self.commands.set(number, Owner::Question, place);
        Ok(())
    }

    /// A logical unit of the target, while it is logged in.
    fn unit(&mut self, lun: Lun) -> Option<Unit> {
        self.lane.unit(self.nexus?, lun.0)
    }

    /// The logical unit of the disk, while the target is logged in.
    pub(super) fn own_unit(&mut self) -> Option<Unit> {
        self.unit(self.config.lun)
    }

    /// Has requests go on, or end.
    fn go(&mut self) {
        if self.is_over || self.fails_fast {
            self.requests.end_waiting(Errno::IO);
        } else if self.is_ready {
            self.issue();
        }
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.lane.poll_event() {
            match event {
                CommandEvent::Completed(completion) => self.handle_completion(now, &completion),
                CommandEvent::Restart(_) => self.told.restart = Some(self.logouts),
            }
        }
        self.go();
    }

    fn handle_completion(&mut self, now: Instant, completion: &Completion) {
        if completion.attention_lost {
            self.hear(Attention::PowerOn);
        }
        match (self.commands.take(completion.exchange), &completion.end) {
            (Owner::Nobody, _) => {}
            (Owner::Question, end) => self.answer = Some(*end),
            (Owner::Request(number), end) => self.handle_end(now, number, end),
        }
    }

    /// Takes an attention of the disk. One of ours that was started again shows by its generation
    /// whether it has lost its cache, unless it had not come to tell of an earlier loss. If there
    /// is a later one, it does not know what was written until now.
    pub(super) fn hear(&mut self, attention: Attention) {
        if attention.may_lose_writes() {
            let losses = self.handle.losses();
            match self.handle.generations().are_there() && !losses.is_doubtful() {
                true => losses.log_in(),
                false => self.lose(),
            }
        }
        if let Attention::InquiryChanged(Some(generation)) = attention {
            self.hear_of_generation(generation);
        }
        let is_changed =
            matches!(attention, Attention::CapacityChanged | Attention::InquiryChanged(_));
        self.told.is_changed |= is_changed;
    }

    /// A target that lives has lost writes, and tells by the next flush whether they are ours. That
    /// holds also if the login ends before the disk is asked again. Between a login and the answers
    /// to its questions the loss may be one of before the login.
    fn hear_of_generation(&self, generation: Uuid) {
        let generations = self.handle.generations();
        let counts = self.is_ready && self.lane.rules().keeps(Rule::CompareGenerations);
        if counts && generations.are_there() && generations.asked(Some(generation)) {
            self.handle.losses().suspect_loss();
        }
    }

    /// Writes that were done may be lost.
    pub(super) fn lose(&mut self) {
        let counts = self.handle.lane() == 0 || self.lane.rules().keeps(Rule::ShareLosses);
        if counts && self.handle.losses().lose() {
            self.told.is_cache_lost = true;
        }
    }

    /// Takes a frame of an exchange.
    pub(super) fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) {
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

    /// Runs the timers that have expired.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        self.requests.expire(now);
        self.grow(now);
        self.handle_events(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let requests = earliest(self.requests.poll_timeout(), self.grow_at);
        earliest(self.lane.poll_timeout(), requests)
    }

    /// The frames to send now.
    pub(super) fn frames(&mut self) -> impl Frames<'_> {
        let Self { lane, commands, requests, frame, .. } = self;
        Composing { lane, commands, requests, frame }
    }
}

/// The frames of the commands, with data where they lie.
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

    fn write(&mut self, _: LinkMac, sink: impl FrameSink<'d>) {
        let (commands, requests): (&'d Commands, &'d Requests) = (self.commands, self.requests);
        let data = self.frame.part().map(|part| commands.part(requests, &part));
        self.frame.write(data.as_slice(), |front, data, tail| sink.gather(front, data, tail));
    }
}
