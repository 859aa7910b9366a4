//! A host's connection to one export, over any number of links: a session, or one queue of it.
//!
//! The session takes operations of any length, cuts them into pieces of at most 1 MiB, spreads the
//! pieces over its live channels, and answers each operation once. The requests in flight of a lost
//! channel are reissued on another, or on the same path when it is connected again; modifications
//! only after the target has confirmed that the lost channel is closed (*fence before reissue*).
//! While no channel is live, all operations wait. After `fast_io_fail_tmo` without a channel, they
//! fail, and so do new ones, until the target is back ([`fast_fail`]); after `ctrl_loss_tmo` the
//! session fails.
//!
//! ```text
//! Port .. Port      local links: which of the target's addresses are heard? port
//!     pairs         so that each NIC of both sides has its part             paths, pairing
//! Path .. Path      a channel each: probed, connected, live, lost, again    path, detector
//! pieces            to the channel that will be done first                  issue, choice, trial
//! ```
//!
//! The session joins parts that do not call each other: the path manager ([`paths`]), the failure
//! detector ([`detector`]), the path scheduler ([`choice`]), the operation table ([`operations`])
//! and the fences ([`fencing`]). What happens when a channel opens or is lost is in [`failover`].
//!
//! One input ([`Session::submit`], [`Session::handle_frame`], [`Session::handle_timeout`], ...),
//! then drain the outputs: [`Session::poll_event`] until `None`, then [`Session::poll_transmit`]
//! for each local link until false.

mod cache;
mod choice;
mod closing;
mod config;
mod detector;
mod ending;
mod event;
mod failover;
mod fast_fail;
mod fencing;
mod issue;
mod operations;
mod pairing;
mod path;
mod paths;
mod port;
mod probes;
mod problem;
mod progress_timeout;
mod repeat;
mod report;
mod sample;
mod sealed_handshake;
mod shared;
mod target_search;
mod trial;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tyche_wire::{
    Body, ChannelId, Checksums, Control, Cookie, Echo, Event, Fate, Flags, Geometry, Greeting,
    Header, Kind, Mac, Reject, Status, Tag,
};

use cache::Cache;
use choice::Chooser;
pub use choice::NodeCounts;
use config::ConnectParams;
pub use config::{ChannelChoice, SessionConfig};
use detector::FailureDetector;
use ending::Endings;
pub use event::{ExportState, Failure, NextKey, ResumeState, SessionEvent};
use fencing::Fences;
pub use issue::SubmitError;
use operations::Operations;
use path::{Path, PathEvent};
use paths::Paths;
pub use port::PortConfig;
pub use problem::Problem;
use progress_timeout::ProgressTimeout;
pub use report::{PathReport, PlaceableChannel, Waiting};
pub use shared::{QUEUES_MAX, QueueHandle, SessionShared};
use target_search::TargetSearch;
pub use target_search::{ExportId, OfferedBy, TargetId, parse_export};
pub use trial::Favourite;

use crate::channel::{
    body::{RawFrame, open_body},
    outgoing::Outgoing,
    protection::Opened,
    stats::RejectCounts,
};
use crate::host::initiator::{Arrived, Initiator};
use crate::host::operation::OpId;
use crate::rules::{AllRules, Rule, Rules};
use crate::time::{Instant, earliest};

/// Number of farewells on each path, and how long an answer is awaited after each.
const FAREWELLS: u32 = 20;
const FAREWELL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never connected.
    New,
    Live,
    /// Lost at that time.
    Lost(Instant),
    Failed,
    /// Sending farewells. `leaves`: only this queue ends, not the session.
    Closing {
        round: u32,
        next: Instant,
        leaves: bool,
    },
    Closed,
}

/// The host's protocol state machine for one queue of a session, without I/O. It owns the queue's
/// channels and operations; its user has the buffers, the links and the clock.
pub struct Session<R = AllRules> {
    config: SessionConfig,
    state: State,
    paths: Paths<R>,
    detector: FailureDetector,
    chooser: Chooser,
    search: TargetSearch,
    progress_timeout: ProgressTimeout,
    /// Operations fail at once.
    fails_fast: bool,
    operations: Operations,
    fences: Fences,
    handle: QueueHandle,
    cache: Cache,
    export: Option<ExportState>,
    /// The last state that the owner was told of.
    resume_state: Option<ResumeState>,
    events: VecDeque<SessionEvent>,
    rejects: RejectCounts,
    now: Instant,
}

impl<R: Rules> Session<R> {
    /// A session with one queue, which looks for its target at once on all `ports`. `random`: a
    /// cryptographic source. A session that takes over a device begins as if it had just lost its
    /// target.
    ///
    /// # Panics
    /// If it shall have no channels.
    pub fn new(
        config: SessionConfig,
        ports: &[PortConfig],
        random: Box<dyn FnMut() -> u64 + Send>,
        now: Instant,
    ) -> Self {
        let shared = Self::shared(&config, 1);
        Self::with_handle(config, shared.handle(0), ports, random, now)
    }

    /// The state that the queues of a session with this configuration share, for
    /// [`with_handle`](Self::with_handle).
    ///
    /// # Panics
    /// Unless there are 1 to [`QUEUES_MAX`] queues.
    pub fn shared(config: &SessionConfig, queues: usize) -> Arc<SessionShared> {
        SessionShared::with(queues, config.resumes, R::keeps(Rule::RememberFormerGeneration))
    }

    /// A queue of a session, as [`new`](Self::new). All queues have the same configuration. The
    /// first has to be connected before the others are made, which begin with the export that it
    /// has found.
    ///
    /// # Panics
    /// If it shall have no channels.
    pub fn with_handle(
        config: SessionConfig,
        handle: QueueHandle,
        ports: &[PortConfig],
        random: Box<dyn FnMut() -> u64 + Send>,
        now: Instant,
    ) -> Self {
        assert!(config.channels > 0, "a session without channels");
        let export = handle.export();
        let resume_state = export.map(|export| ResumeState { device: config.device, export });
        let key = config.keys.as_ref().map(|keys| keys.target);
        let known = export.map(|known| (known.target, known.uuid, known.geometry.read_only));
        let mut session = Self {
            state: if resume_state.is_some() { State::Lost(now) } else { State::New },
            paths: Paths::new(
                now,
                (config.session, handle.queue(), handle.queues()),
                ports,
                random,
                key,
            ),
            detector: FailureDetector::default(),
            chooser: Chooser::new(config.choice),
            search: TargetSearch::new(
                (config.target, config.export),
                config.keys.as_deref(),
                known,
            ),
            progress_timeout: ProgressTimeout::new(config.ctrl_loss_tmo, now),
            fails_fast: false,
            operations: Operations::new(config.operations_max, config.stages),
            fences: Fences::default(),
            cache: Cache::new(handle.clone(), config.operations_max),
            handle,
            export,
            resume_state,
            events: VecDeque::new(),
            rejects: RejectCounts::default(),
            config,
            now,
        };
        session.learn_key();
        session
    }

    /// What the session wants.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The export, once connected; from the beginning if the session takes over a device.
    pub fn export(&self) -> Option<ExportState> {
        let export = self.export?;
        let geometry = Geometry { size: self.handle.size(), ..export.geometry };
        Some(ExportState { geometry, ..export })
    }

    /// The state to keep for the next session of the device.
    pub fn resume_state(&self) -> Option<ResumeState> {
        self.handle.resumable().map(|export| ResumeState { device: self.config.device, export })
    }

    /// Reports a change of [`resume_state`](Self::resume_state).
    pub(super) fn note_resume_state(&mut self) {
        let resume_state = self.resume_state();
        if resume_state != self.resume_state {
            self.resume_state = resume_state;
            self.events.push_back(SessionEvent::ResumeStateChanged);
        }
    }

    /// Whether a channel is live.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether the session has failed or is closed.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Failed | State::Closed)
    }

    /// The operation in a slot of the channel whose frames have this cookie. For tests and
    /// simulations, which look at entries of sent frames.
    pub fn locate(&self, cookie: Cookie, slot: u16) -> Option<OpId> {
        let mut paths = self.paths.all().iter();
        let path = paths.find(|it| it.identity().is_some_and(|(its, _)| its == cookie))?;
        let piece = path.live()?.piece(slot)?;
        Some(OpId(piece.op))
    }

    /// The requests in flight on the channel whose frames have this cookie. For simulations, which
    /// cannot look at entries of sealed frames.
    pub fn carried(&self, cookie: Cookie) -> impl Iterator<Item = (Tag, OpId)> {
        let mut paths = self.paths.all().iter();
        let path = paths.find(|it| it.identity().is_some_and(|(its, _)| its == cookie));
        let pieces = path.and_then(Path::live).into_iter().flat_map(Initiator::pieces);
        pieces.map(|(tag, piece)| (tag, OpId(piece.op)))
    }

    /// Sends an echo request of `frame_len` bytes on any live channel; each reply is a
    /// [`SessionEvent::Echoed`]. Lost echo frames are not sent again. False if no channel is live,
    /// the frames are longer than any channel carries, or too many wait to be sent.
    ///
    /// # Panics
    /// If the echo asks for too many replies, or a frame would be too short.
    pub fn echo(&mut self, echo: Echo, frame_len: usize) -> bool {
        self.paths.all_live_mut().any(|initiator| initiator.echo(echo, frame_len))
    }

    /// Takes a frame that came on a local link. A rejected frame is counted. Returns the payload
    /// in the clear, in `opened` if the frame was sealed.
    pub fn handle_frame<'p>(
        &mut self,
        now: Instant,
        port: usize,
        frame: impl Into<RawFrame<'p>>,
        opened: &'p mut Opened,
    ) -> &'p [u8] {
        self.now = now;
        let frame @ RawFrame { head, payload, .. } = frame.into();
        let clear = self.try_handle_frame(port, &frame, opened).unwrap_or_else(|reject| {
            self.rejects.add(reject);
            if reject == Reject::Version
                && let Some(greeting) = Greeting::parse(head, payload)
            {
                self.handle_greeting(port, Mac::source(head), &greeting);
            }
            payload
        });
        self.issue();
        clear
    }

    fn try_handle_frame<'p>(
        &mut self,
        port: usize,
        frame: &RawFrame<'p>,
        opened: &'p mut Opened,
    ) -> Result<&'p [u8], Reject> {
        let RawFrame { head, payload, .. } = *frame;
        let (src, header) = (Mac::source(head), Header::parse(head)?);
        // Other hosts ask everybody.
        if header.kind != Kind::Discover && Mac::destination(head).is_group() {
            return Err(Reject::Destination);
        }
        if header.kind.on_channel() {
            return self.handle_channel_frame((port, src), &header, frame, opened);
        }
        let Body::Control(pdu) = Body::parse(&header, payload, &Checksums)? else {
            return Err(Reject::Unexpected);
        };
        self.handle_control(port, src, &header, pdu.decode()).map(|()| payload)
    }

    /// Takes a frame that belongs to no channel.
    fn handle_control(
        &mut self,
        port: usize,
        src: Mac,
        header: &Header,
        control: Control,
    ) -> Result<(), Reject> {
        if matches!(control, Control::Discover(_)) {
            // Other hosts ask everybody.
            return Ok(());
        }
        if self.is_over() {
            return Err(Reject::Unexpected);
        }
        if let Control::Reset(reset) = &control {
            let path = self.paths.reset_by(port, src, reset).ok_or(Reject::Unexpected)?;
            self.lose_reset(path);
            return Ok(());
        }
        if matches!(self.state, State::Closing { .. }) {
            // A channel that opened now would never be used.
            return Err(Reject::Unexpected);
        }
        if let Control::Offer(offer) = &control {
            return self.handle_offer(port, src, offer);
        }
        if let Control::Accept(accept) = &control
            && self.knows((accept.cookie, accept.channel))
        {
            return Err(Reject::Unexpected);
        }
        let params = ConnectParams { session: &self.config, resume: self.handle.is_connected() };
        let answer = (header, control);
        match self.paths.handle_control(self.now, (port, src), answer, params)? {
            Some((path, PathEvent::Accepted(accept, key))) => self.accepted(path, &accept, key),
            Some((path, PathEvent::Rejected(rejection))) => self.rejected(path, rejection),
            Some((path, PathEvent::Wider)) => self.replace(path),
            None => {}
        }
        Ok(())
    }

    /// Whether the session has, or fences, a channel of the target with that identity. A second one
    /// would have the same tags: a fence of one would report the outcomes of the other.
    fn knows(&self, identity: (Cookie, ChannelId)) -> bool {
        self.paths.knows(identity) || self.fences.await_end_of(identity)
    }

    fn handle_channel_frame<'p>(
        &mut self,
        (port, src): (usize, Mac),
        header: &Header,
        frame: &RawFrame<'p>,
        opened: &'p mut Opened,
    ) -> Result<&'p [u8], Reject> {
        let path = self.paths.index(header.channel);
        let (initiator, guard) = self.paths.live_on(port, path).ok_or(Reject::Channel)?;
        initiator.channel.check_origin(src, header)?;
        let (payload, body) = open_body::<R>(guard, header, frame, opened)?;
        let mut endings = Endings {
            now: self.now,
            operations: &mut self.operations,
            cache: &mut self.cache,
            events: &mut self.events,
        };
        let (mut resized, mut removed) = (None, false);
        initiator.handle_frame(self.now, header, &body, |arrived| match arrived {
            Arrived::Data { op, offset, len, source } => {
                let data = SessionEvent::Data { op: OpId(op), offset, len, source };
                endings.events.push_back(data);
            }
            Arrived::Done(piece, status, stage_sample) => {
                endings.end::<R>(&piece, status, stage_sample);
            }
            Arrived::Event(Event::Resized(size)) => resized = Some(size),
            Arrived::Event(Event::Removed) => removed = true,
            Arrived::Echo(echo) => endings.events.push_back(SessionEvent::Echoed(echo)),
        })?;
        if frame.is_congested {
            initiator.channel.note_congestion();
        }
        if let Body::Control(pdu) = &body
            && let Control::Fenced(fenced) = pdu.decode()
        {
            // Modifications that are not known to have been executed are reissued.
            for (piece, fate) in self.fences.confirmed(self.now, &fenced) {
                match fate {
                    Fate::Executed(status) if R::keeps(Rule::UseOutcomes) => {
                        endings.end::<R>(&piece, status, None);
                    }
                    _ => endings.operations.reissue_smaller(piece),
                }
            }
            self.resume();
        }
        if let Some(size) = resized
            && self.handle.resize(size)
        {
            self.events.push_back(SessionEvent::Resized(size));
        }
        if resized.is_some() {
            self.note_resume_state();
        }
        if removed {
            self.fail(Failure::ExportRemoved);
        } else if header.kind == Kind::Disconnect {
            self.handle_disconnect(path, header);
        }
        Ok(payload)
    }

    fn handle_disconnect(&mut self, path: usize, header: &Header) {
        // Only a session that has sent a farewell awaits an answer.
        if header.flags.contains(Flags::REPLY) && !matches!(self.state, State::Closing { .. }) {
            return;
        }
        self.lose(path, Problem::Disconnected);
    }

    fn fail(&mut self, failure: Failure) {
        if self.is_over() {
            return;
        }
        self.state = State::Failed;
        self.handle.end(Some(failure));
        self.fail_operations();
        self.events.push_back(SessionEvent::Failed(failure));
    }

    /// Ends all operations in progress with an I/O error, and all channels with them.
    fn fail_operations(&mut self) {
        self.paths.close(self.now);
        self.handle.note_status(false);
        self.fences.clear();
        let ended = |index| SessionEvent::Completed { op: OpId(index), status: Status::Io };
        self.events.extend(self.operations.fail().into_iter().map(ended));
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.is_over() {
            return;
        }
        if let Some(failure) = self.handle.failure() {
            return self.fail(failure);
        }
        self.learn_key();
        if let State::Closing { round, next, leaves } = self.state {
            if now >= next && round == FAREWELLS {
                self.end(leaves);
            } else if now >= next {
                let (round, next) = (round + 1, now + FAREWELL_INTERVAL);
                self.state = State::Closing { round, next, leaves };
            }
            return;
        }
        for path in 0..self.paths.all().len() {
            let params =
                ConnectParams { session: &self.config, resume: self.handle.is_connected() };
            if let Some(problem) = self.paths.handle_timeout(now, path, params) {
                self.lose(path, problem);
            }
        }
        self.detect_failures();
        let (again, live) = (self.config.reconnect_delay, self.is_live());
        if self.paths.handle_port_timeouts(now, again, live) {
            self.pair();
        }
        if self.time_left(now) == Some(Duration::ZERO) {
            self.fail(Failure::TargetLost);
        } else if self.is_live() && self.progress_timeout.is_over(now, self.oldest_wait()) {
            self.fail(Failure::NoProgress);
        } else if self.time_to_fail_fast(now) == Some(Duration::ZERO) {
            self.fail_fast();
        }
        self.issue();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let deadline = match self.state {
            State::Closing { next, .. } => return Some(next),
            State::Lost(since) => {
                let loss = self.config.ctrl_loss_tmo.map(|timeout| since + timeout);
                earliest(loss, self.fails_fast_at())
            }
            State::Live => {
                let suspicion = self.detector.poll_timeout(detector::live(self.paths.all()));
                let timers = earliest(self.fences.poll_timeout(), suspicion);
                earliest(timers, self.progress_timeout.poll_timeout())
            }
            _ => None,
        };
        earliest(deadline, self.paths.poll_timeout())
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        let event = self.events.pop_front()?;
        if let SessionEvent::Completed { op, .. } = event {
            self.operations.release(op.0);
        }
        Some(event)
    }

    /// Composes the next frame for a local link; false if there is none to send now.
    pub fn poll_transmit(&mut self, now: Instant, port: usize, out: &mut Outgoing) -> bool {
        if self.is_over() {
            return false;
        }
        if let State::Closing { round, .. } = self.state {
            return self.paths.poll_farewell(now, port, round, out);
        }
        if self.poll_fence(now, port, out) {
            return true;
        }
        self.paths.poll_transmit(now, port, (self.config.host, &self.search), out)
    }
}
