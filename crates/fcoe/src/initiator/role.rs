//! The role of an initiator that uses one logical unit: logins, questions, and the requests of the
//! first lane, without the loop that drives it.
//!
//! ```text
//!        login            REPORT LUNS, once      questions of scsi
//! Away ─────────► Listing ─────────────► Asking ─────────────────► Ready
//!  ▲                                                                 │
//!  └───────────────────────── logout ────────────────────────────────┘
//! ```
//!
//! Requests wait until the disk is ready, or fail after `fast_io_fail_tmo`. After each login the
//! disk is asked for its properties again: it must be the same. Further lanes take the
//! [state](super::shared) from here. A login has ended when the last of them has noticed.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_engine::{Frames, Job};
use tyche_fc::initiator::{CommandAnswer, Failure, Ignored, Refused, Repairs};
use tyche_fc::wire::{Frame, Mac, PortId, Wwn};
use tyche_fc::{AllRules, Rule, Rules, port};
use tyche_scsi::Lun;
use tyche_scsi::initiator::{
    self as scsi, Discovery, DiscoveryError, Disk, Progress, Scan, Verdict, classify,
};
use tyche_time::{Instant, earliest};

use super::lane::{InitiatorConfig, InitiatorLane};
use super::question;
use super::requests::Ended;
use super::shared::{LaneHandle, LaneNews, State};
use crate::role::Role;

/// The pause before a question that is to be asked later.
const QUESTION_PAUSE: Duration = Duration::from_secs(1);

/// A change that the loop has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The disk can be used, for the first time or again.
    Ready,
    /// It can't be used now: requests wait.
    Away,
    /// It was away for long: requests fail until it can be used again.
    FailsFast,
    /// Requests are taken again after that.
    Resumed,
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

/// The initiator's part of one port: the first lane of a session, and the phase of the logical
/// unit. It decides on the state of the session, and publishes it to the other lanes.
pub struct InitiatorRole<R = AllRules> {
    pub(super) lane: InitiatorLane<R>,
    /// The state of the session, as all lanes have to know it.
    state: State,
    phase: Phase,
    /// Whether a question is in progress.
    is_asking: bool,
    /// When the next question is to be asked.
    ask_at: Option<Instant>,
    /// Whether the disk was not asked yet since the login.
    is_fresh: bool,
    /// When the disk was lost, if it was.
    pub(super) lost_since: Option<Instant>,
    pub(super) events: VecDeque<Event>,
    /// Ports whose login has ended, with the state that all lanes must have taken in.
    drains: VecDeque<(u64, Wwn)>,
    restarts: VecDeque<Wwn>,
    /// Whether the port is to begin anew.
    reclaims: bool,
}

impl InitiatorRole {
    /// An initiator that is not logged in: the first lane.
    pub(super) fn new(config: InitiatorConfig, handle: LaneHandle) -> Self {
        Self::with_rules(config, handle, AllRules)
    }
}

impl<R: Rules> InitiatorRole<R> {
    /// An initiator that is not logged in, with other rules than those of the product.
    pub fn with_rules(config: InitiatorConfig, handle: LaneHandle, rules: R) -> Self {
        Self {
            lane: InitiatorLane::new(config, handle, rules),
            state: State::default(),
            phase: Phase::Away,
            is_asking: false,
            ask_at: None,
            is_fresh: false,
            lost_since: None,
            events: VecDeque::new(),
            drains: VecDeque::new(),
            restarts: VecDeque::new(),
            reclaims: false,
        }
    }

    /// Its configuration.
    pub(super) fn config(&self) -> &InitiatorConfig {
        &self.lane.config
    }

    /// Whether requests are executed.
    pub fn is_ready(&self) -> bool {
        self.lane.is_ready()
    }

    /// Whether all requests fail.
    pub fn is_over(&self) -> bool {
        self.state.is_over
    }

    /// Whether requests fail until the disk can be used again.
    pub fn fails_fast(&self) -> bool {
        self.state.fails_fast
    }

    /// Whether the target is logged in.
    pub fn is_logged_in(&self) -> bool {
        self.lane.is_logged_in()
    }

    /// Counters of the first lane.
    pub fn counters(&self) -> (Ignored, Repairs) {
        self.lane.counters()
    }

    /// Takes a request, or gives it back if there is no room.
    ///
    /// # Errors
    /// The request, if there is no room for it now.
    pub fn submit(&mut self, now: Instant, job: Job) -> Result<(), Job> {
        self.lane.submit(now, job)
    }

    /// The disk, once it is known.
    pub fn disk(&self) -> Option<&Disk> {
        self.state.disk.as_ref()
    }

    /// Takes the requests that have ended, in this order.
    pub fn take_ended(&mut self) -> impl Iterator<Item = Ended> {
        self.lane.requests.ended.drain(..)
    }

    /// The next change of the disk.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes what further lanes have told; false if there was nothing. The owner
    /// [settles](crate::NPort::settle) the port then.
    pub fn listen(&mut self, now: Instant) -> bool {
        let told = self.lane.handle.take_told();
        if let Some(told) = told {
            self.hear(now, told);
            self.ask(now);
        }
        told.is_some()
    }

    /// Ends all requests, now and for good; those with a command in progress when that ends.
    pub(super) fn fail(&mut self, now: Instant) {
        self.phase = Phase::Over;
        (self.state.is_over, self.state.is_ready) = (true, false);
        self.publish(now);
    }

    /// Has the threads of all lanes end, after [`fail`](Self::fail).
    pub(super) fn stop(&mut self, now: Instant) {
        self.state.is_stopped = true;
        self.fail(now);
    }

    /// Has all lanes take the state; returns its number.
    fn publish(&mut self, now: Instant) -> u64 {
        let version = self.lane.handle.publish(&self.state);
        self.lane.take(now, &self.state);
        version
    }

    /// Goes on after an input to the first lane.
    fn follow(&mut self, now: Instant) {
        if let Some(end) = self.lane.answer.take() {
            self.is_asking = false;
            self.handle_answer(now, &end);
        }
        let told = std::mem::take(&mut self.lane.told);
        self.hear(now, told);
        self.ask(now);
    }

    /// Takes what a lane has heard.
    fn hear(&mut self, now: Instant, told: LaneNews) {
        let LaneNews { restart, is_lossy, is_changed, is_cache_lost, is_aborted } = told;
        if is_aborted && !self.is_over() {
            self.fail(now);
        }
        if is_cache_lost {
            self.events.push_back(Event::CacheLost);
        }
        let is_asked = match &self.phase {
            Phase::Ready => true,
            // All else that may change is asked for last.
            Phase::Asking(discovery) => discovery.generation().is_some(),
            _ => false,
        };
        if is_changed && is_asked {
            self.phase = Phase::Asking(Box::default());
            self.state.is_ready = false;
            self.publish(now);
        }
        // Not if it was about an earlier login.
        if restart == Some(self.state.logouts) {
            self.restarts.push_back(self.config().target);
        }
        self.reclaims |= is_lossy == Some(self.state.logouts) && self.is_logged_in();
    }

    /// Submits the question of the phase, if it is time.
    fn ask(&mut self, now: Instant) {
        if self.is_asking || self.ask_at.is_some_and(|at| now < at) {
            return;
        }
        let (lun, request) = match &self.phase {
            Phase::Listing(scan) => (Lun::ZERO, Some(scan.request())),
            Phase::Asking(discovery) => (self.config().lun, discovery.request()),
            _ => return,
        };
        self.ask_at = None;
        let Some(request) = request else { return };
        match self.lane.ask(lun, &request) {
            Ok(()) => self.is_asking = true,
            Err(Refused::Full) => self.ask_at = Some(now + QUESTION_PAUSE),
            Err(Refused::LoggedOut) => {}
        }
    }

    /// Takes the answer to a question.
    fn handle_answer(&mut self, now: Instant, end: &Result<CommandAnswer, Failure>) {
        let Ok(answer) = end else {
            // It was lost, or the login has ended: it is asked again.
            return;
        };
        if let Verdict::Attention(attention) = classify(answer.status, &answer.sense, None) {
            self.lane.hear(attention);
            let told = std::mem::take(&mut self.lane.told);
            self.hear(now, told);
        }
        let asked = match &self.phase {
            Phase::Listing(scan) => Some(scan.request()),
            Phase::Asking(discovery) => discovery.request(),
            _ => None,
        };
        let Some(asked) = asked else { return };
        let data = self.lane.commands.answer(question::answered(&asked, answer));
        let answer = scsi::CommandAnswer { status: answer.status, sense: &answer.sense, data };
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
                self.note_lost(now);
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
                let (luns, wanted) = (scan.luns(), self.lane.config.lun.number());
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
                disk.geometry.read_only |= self.config().read_only;
                self.found(now, disk);
            }
            _ => {}
        }
    }

    fn found(&mut self, now: Instant, disk: Disk) {
        if let Some(known) = &self.state.disk {
            if is_another(known, &disk) {
                self.events.push_back(Event::Changed);
                self.fail(now);
                return;
            }
            if known.geometry.size != disk.geometry.size {
                self.events.push_back(Event::Resized);
            }
        }
        self.compare_generations(&disk);
        (self.lost_since, self.is_fresh) = (None, false);
        self.phase = Phase::Ready;
        (self.state.disk, self.state.is_ready) = (Some(disk), true);
        let failed_fast = std::mem::take(&mut self.state.fails_fast);
        self.publish(now);
        self.events.push_back(Event::Ready);
        if failed_fast {
            self.events.push_back(Event::Resumed);
        }
    }

    /// If the disk has another generation than before, writes may be lost that were done. A target
    /// that lives tells by the next flush whether they are.
    fn compare_generations(&mut self, disk: &Disk) {
        let compares = self.lane.lane.rules().keeps(Rule::CompareGenerations);
        let generation = disk.generation.filter(|_| compares);
        let (generations, losses) = (self.lane.handle.generations(), self.lane.handle.losses());
        let is_first = !generations.are_there();
        if !generations.asked(generation) {
            match is_first {
                // What a former session has left in the cache.
                true if losses.is_dirty() => losses.suspect_loss(),
                // What it accounts for was lost before the session.
                true => generations.count(generation),
                false if self.is_fresh => losses.log_in(),
                false => {}
            }
            return;
        }
        if !self.is_fresh {
            return losses.suspect_loss();
        }
        generations.count(generation);
        self.lane.lose();
        if std::mem::take(&mut self.lane.told.is_cache_lost) {
            self.events.push_back(Event::CacheLost);
        }
    }

    /// A disk that was known is lost, with its target or alone.
    fn note_lost(&mut self, now: Instant) {
        self.lost_since = self.lost_since.or(self.state.disk.map(|_| now));
    }

    /// When all requests fail if the disk does not come back.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        Some(self.lost_since? + self.config().ctrl_loss_tmo?)
    }

    /// When requests fail if the disk does not come back, while the session goes on. Nothing of
    /// what fails happens later: the end of the login has ended all commands at this end, and the
    /// next login ends them at the target before the disk can be used.
    pub(super) fn fails_fast_at(&self) -> Option<Instant> {
        let timeout = self.config().fast_io_fail_tmo.filter(|_| !self.fails_fast())?;
        Some(self.lost_since? + timeout)
    }

    fn log_in(&mut self, now: Instant, login: &port::Login) {
        if login.wwpn != self.config().target {
            return;
        }
        let is_new = !self.is_logged_in();
        self.state.login = Some(*login);
        self.publish(now);
        if self.is_logged_in() && is_new && !self.is_over() {
            (self.is_asking, self.ask_at, self.is_fresh) = (false, None, true);
            self.phase = match self.state.disk {
                None => Phase::Listing(Scan::default()),
                Some(_) => Phase::Asking(Box::default()),
            };
        }
    }

    fn log_out(&mut self, now: Instant, wwpn: Wwn) {
        if wwpn != self.config().target {
            self.drains.push_back((0, wwpn));
            return;
        }
        let was_logged_in = self.is_logged_in();
        (self.state.login, self.state.is_ready) = (None, false);
        self.state.logouts += 1;
        let version = self.publish(now);
        self.drains.push_back((version, wwpn));
        if was_logged_in && !self.is_over() {
            self.phase = Phase::Away;
            self.note_lost(now);
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
        self.lane.lane.rules()
    }

    fn handle_address(&mut self, address: (PortId, Mac)) {
        self.state.own = Some(address);
        self.lane.handle.publish(&self.state);
    }

    fn handle_login(&mut self, now: Instant, event: port::Event) {
        match event {
            port::Event::LoggedIn(login) => self.log_in(now, &login),
            port::Event::LoggedOut(wwpn, _) => self.log_out(now, wwpn),
            port::Event::Failed(wwpn, request, failure) => {
                tracing::debug!(%wwpn, ?request, ?failure, "login failed");
            }
        }
        self.follow(now);
    }

    fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) {
        self.lane.handle_frame(now, frame);
        self.follow(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        if !self.is_over() && self.give_up_at().is_some_and(|at| at <= now) {
            self.events.push_back(Event::GivenUp);
            self.fail(now);
        }
        if !self.is_over() && self.fails_fast_at().is_some_and(|at| at <= now) {
            self.state.fails_fast = true;
            self.publish(now);
            self.events.push_back(Event::FailsFast);
        }
        self.follow(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let ends = earliest(self.fails_fast_at(), self.give_up_at());
        let ends = ends.filter(|_| !self.is_over());
        // While nothing is to be asked, the time for it may have passed.
        let is_inquiring = matches!(self.phase, Phase::Listing(_) | Phase::Asking(_));
        let ask_at = self.ask_at.filter(|_| is_inquiring);
        earliest(self.lane.poll_timeout(), earliest(ask_at, ends))
    }

    fn poll_drained(&mut self) -> Option<Wwn> {
        let (version, _) = self.drains.front()?;
        if !self.lane.handle.is_everywhere(*version) {
            return None;
        }
        self.drains.pop_front().map(|it| it.1)
    }

    fn poll_restart(&mut self) -> Option<Wwn> {
        self.restarts.pop_front()
    }

    fn poll_reclaim(&mut self) -> bool {
        std::mem::take(&mut self.reclaims)
    }

    fn frames(&mut self) -> impl Frames<'_> {
        self.lane.frames()
    }
}
