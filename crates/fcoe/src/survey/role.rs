//! The role of a survey: all targets are asked at the same time, each one question after the other.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_engine::{Composed, FrameSink, Frames};
use tyche_fc::exchange::Xids;
use tyche_fc::initiator::{
    CommandAnswer, Event as LaneEvent, Lane, LaneConfig, Nexus, Refused, Taken, WRITE_FRAMES,
};
use tyche_fc::wire::els::Code;
use tyche_fc::wire::{Frame, Mac, PortId, Wwn};
use tyche_fc::{AllRules, Outgoing, port};
use tyche_link::Mac as LinkMac;
use tyche_scsi::initiator::{self as scsi, Discovery, DiscoveryError, Disk, Progress, Scan};
use tyche_scsi::{Lun, UNITS_MAX};
use tyche_time::{Instant, earliest};

use super::{SurveyedTarget, SurveyedUnit, Targets};
use crate::initiator::Obstacle;
use crate::initiator::question::{self, ANSWER_LEN};
use crate::role::Role;

/// The first and last number of the exchanges of questions.
const XIDS: (u16, u16) = (0x0000, 0x03ff);
/// The time after which a question is aborted.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause before a question that is to be asked later.
const PAUSE: Duration = Duration::from_millis(200);

/// The most targets that are found.
const TARGETS_MAX: usize = 64;

/// The next question to a target.
enum Phase {
    /// For its LUNs.
    Listing(Scan),
    /// For the logical unit after those that are known.
    Asking(Box<Discovery>),
    Done,
}

/// A target.
struct Subject {
    wwpn: Wwn,
    nexus: Option<Nexus>,
    /// Why the last login has failed.
    refusal: Option<(Code, port::Failure)>,
    phase: Phase,
    /// The question in progress, as the lane calls it.
    asked: Option<u16>,
    /// When the next question is to be asked.
    ask_at: Option<Instant>,
    /// The data of the answer.
    answer: Box<[u8; ANSWER_LEN]>,
    luns: Vec<Lun>,
    left_out: usize,
    /// Why there is no list, if the target refuses it.
    fault: Option<DiscoveryError>,
    /// The first of the logical units.
    units: Vec<Result<Disk, DiscoveryError>>,
}

impl Subject {
    fn new(wwpn: Wwn) -> Self {
        Self {
            wwpn,
            nexus: None,
            refusal: None,
            phase: Phase::Listing(Scan::default()),
            asked: None,
            ask_at: None,
            answer: Box::new([0; ANSWER_LEN]),
            luns: Vec::new(),
            left_out: 0,
            fault: None,
            units: Vec::new(),
        }
    }

    /// The next question, and the logical unit that it is for.
    fn question(&self) -> Option<(Lun, scsi::Request)> {
        match &self.phase {
            Phase::Listing(scan) => Some((Lun::ZERO, scan.request())),
            Phase::Asking(discovery) => {
                Some((*self.luns.get(self.units.len())?, discovery.request()?))
            }
            Phase::Done => None,
        }
    }

    /// Takes the answer to it.
    fn handle_answer(&mut self, now: Instant, answer: &CommandAnswer) {
        let Some((_, request)) = self.question() else { return };
        let arrived = question::answered(&request, answer) as usize;
        let data = &self.answer[..arrived.min(ANSWER_LEN)];
        let answer = scsi::CommandAnswer { status: answer.status, sense: &answer.sense, data };
        let progress = match &mut self.phase {
            Phase::Listing(scan) => scan.handle(answer),
            Phase::Asking(discovery) => discovery.handle(answer),
            Phase::Done => return,
        };
        match (progress, &self.phase) {
            (Progress::Next, _) => return,
            (Progress::Later, _) => {
                self.ask_at = Some(now + PAUSE);
                return;
            }
            (Progress::Failed(error), Phase::Listing(_)) => self.fault = Some(error),
            (Progress::Failed(error), _) => self.units.push(Err(error)),
            (Progress::Done, Phase::Listing(scan)) => {
                (self.luns, self.left_out) = (scan.luns().to_vec(), scan.left_out());
            }
            (Progress::Done, Phase::Asking(discovery)) => {
                let disk = discovery.disk().copied();
                self.units.push(disk.ok_or(DiscoveryError::NotReady));
            }
            (Progress::Done, Phase::Done) => return,
        }
        self.phase = match self.units.len() < self.luns.len() {
            true => Phase::Asking(Box::default()),
            false => Phase::Done,
        };
    }

    fn found(&self, before_login: Option<Obstacle>) -> SurveyedTarget {
        let obstacle = match &self.phase {
            Phase::Listing(_) if self.nexus.is_some() => Some(Obstacle::Asking),
            Phase::Listing(_) => Some(before_login.unwrap_or(Obstacle::NoLogin(self.refusal))),
            _ => self.fault.map(Obstacle::Unusable),
        };
        let units = self.luns.iter().enumerate().map(|(index, &lun)| {
            let disk = match self.units.get(index) {
                Some(known) => known.map_err(Obstacle::Unusable),
                None => Err(Obstacle::Asking),
            };
            SurveyedUnit { lun, disk }
        });
        let (wwpn, left_out) = (self.wwpn, self.left_out);
        SurveyedTarget { wwpn, units: units.collect(), left_out, obstacle }
    }
}

/// The initiator's part of a survey: a lane, and for each target the question that is next. Each
/// target is asked one question at a time, but all targets at once.
pub(super) struct SurveyRole {
    lane: Lane,
    own: Option<(PortId, Mac)>,
    subjects: Vec<Subject>,
    /// The most of them: more are added as they are found.
    subjects_max: usize,
    drained: VecDeque<Wwn>,
    restarts: VecDeque<Wwn>,
    frame: Outgoing,
}

impl SurveyRole {
    /// A survey that has not begun. `frames`: the most that answers may cause at a time.
    pub(super) fn new(targets: Targets, frames: u32) -> Self {
        let (targets, count) = match targets {
            Targets::Named(named) => {
                let count = named.len();
                (named, count)
            }
            Targets::Fabric => (Vec::new(), TARGETS_MAX),
        };
        let lane = Lane::new(LaneConfig {
            xids: Xids::new(XIDS, 0, 0),
            seed: getrandom::u64().expect("the kernel's random numbers are always there"),
            depth: count,
            targets: count,
            // LUN 0, which is asked for the list, may have another form there.
            units: count * (UNITS_MAX + 1),
            read_frames: frames,
            write_frames: WRITE_FRAMES,
            command_timeout: COMMAND_TIMEOUT,
        });
        Self {
            lane,
            own: None,
            subjects: targets.into_iter().map(Subject::new).collect(),
            subjects_max: count,
            drained: VecDeque::new(),
            restarts: VecDeque::new(),
            frame: Outgoing::new(),
        }
    }

    /// Whether all is known.
    pub(super) fn is_done(&self) -> bool {
        self.subjects.iter().all(|subject| matches!(subject.phase, Phase::Done))
    }

    /// Adds a target that has been found, unless it is there already.
    pub(super) fn find_target(&mut self, wwpn: Wwn) {
        if self.find(wwpn).is_none() && self.subjects.len() < self.subjects_max {
            self.subjects.push(Subject::new(wwpn));
        }
    }

    /// Notes why a login has failed.
    pub(super) fn note_refusal(&mut self, wwpn: Wwn, refusal: (Code, port::Failure)) {
        if let Some(subject) = self.find(wwpn) {
            subject.refusal = Some(refusal);
        }
    }

    /// The answers. `before_login`: the obstacle to a login with a target.
    pub(super) fn found(
        &self,
        before_login: impl Fn(Wwn) -> Option<Obstacle>,
    ) -> Vec<SurveyedTarget> {
        self.subjects.iter().map(|subject| subject.found(before_login(subject.wwpn))).collect()
    }

    fn find(&mut self, wwpn: Wwn) -> Option<&mut Subject> {
        self.subjects.iter_mut().find(|subject| subject.wwpn == wwpn)
    }

    /// Submits the question to each target whose turn it is.
    fn ask(&mut self, now: Instant) {
        let Self { lane, subjects, .. } = self;
        for subject in subjects {
            let Some(nexus) = subject.nexus else { continue };
            if subject.asked.is_some() || subject.ask_at.is_some_and(|at| now < at) {
                continue;
            }
            subject.ask_at = None;
            let Some((lun, request)) = subject.question() else { continue };
            let Some(unit) = lane.unit(nexus, lun.0) else { continue };
            match lane.submit(&question::command(unit, &request)) {
                Ok(number) => subject.asked = Some(number),
                Err(Refused::Full) => subject.ask_at = Some(now + PAUSE),
                Err(Refused::LoggedOut) => {}
            }
        }
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.lane.poll_event() {
            match event {
                LaneEvent::Restart(wwpn) => self.restarts.push_back(wwpn),
                LaneEvent::Completed(completion) => {
                    let number = Some(completion.exchange);
                    let mut subjects = self.subjects.iter_mut();
                    let Some(subject) = subjects.find(|it| it.asked == number) else { continue };
                    subject.asked = None;
                    // Otherwise it was lost, or the login has ended: it is asked again.
                    if let Ok(answer) = &completion.end {
                        subject.handle_answer(now, answer);
                    }
                }
            }
        }
        self.ask(now);
    }
}

impl Role for SurveyRole {
    type Rules = AllRules;

    fn rules(&self) -> AllRules {
        self.lane.rules()
    }

    fn handle_address(&mut self, address: (PortId, Mac)) {
        self.own = Some(address);
    }

    fn handle_login(&mut self, now: Instant, event: port::Event) {
        match event {
            port::Event::LoggedIn(login) => {
                let own = self.own.expect("a port that has logged in has an address");
                self.find_target(login.wwpn);
                // Other neighbours may log in as well.
                if self.find(login.wwpn).is_some() {
                    let nexus = self.lane.logged_in(now, own, &login);
                    self.find(login.wwpn).expect("it was found").nexus = nexus;
                }
            }
            port::Event::LoggedOut(wwpn, _) => {
                self.lane.logged_out(now, wwpn);
                self.drained.push_back(wwpn);
                if let Some(subject) = self.find(wwpn) {
                    subject.nexus = None;
                }
            }
            port::Event::Failed(..) => {}
        }
        self.handle_events(now);
    }

    fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) {
        if let Taken::Place(placement) = self.lane.handle_frame(now, frame) {
            let number = Some(placement.exchange);
            let subject = self.subjects.iter_mut().find(|it| it.asked == number);
            let room = subject.and_then(|it| it.answer.get_mut(placement.offset as usize..));
            // The lane keeps data within those of the command.
            let room = room.and_then(|room| room.get_mut(..frame.payload.len()));
            room.expect("data have a place").copy_from_slice(frame.payload);
        }
        self.handle_events(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
        self.handle_events(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let pauses = self.subjects.iter().filter(|it| it.nexus.is_some());
        let next = pauses.filter_map(|it| it.ask_at).min();
        earliest(self.lane.poll_timeout(), next)
    }

    fn poll_drained(&mut self) -> Option<Wwn> {
        self.drained.pop_front()
    }

    fn poll_restart(&mut self) -> Option<Wwn> {
        self.restarts.pop_front()
    }

    fn frames(&mut self) -> impl Frames<'_> {
        Composing { lane: &mut self.lane, frame: &mut self.frame }
    }
}

/// The frames of the lane: questions have no data.
struct Composing<'d> {
    lane: &'d mut Lane,
    frame: &'d mut Outgoing,
}

impl<'d> Frames<'d> for Composing<'d> {
    fn compose(&mut self, now: Instant) -> Option<Composed> {
        self.lane.poll_transmit(now, self.frame).then(Composed::default)
    }

    fn write(&mut self, _: LinkMac, sink: impl FrameSink<'d>) {
        self.frame.write(&[], |front, data, tail| sink.gather(front, data, tail));
    }
}
