//! Path manager and failure detector: opens, probes, suspects and drops the channels of a session.
//!
//! Ports hear the target's addresses; they are paired, and each pair gets its channels. The
//! requests in flight of a lost channel are reissued on others: reads at once, modifications after
//! the target has confirmed the fence. A lost channel is opened again for as long as the session
//! lives.

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_wire::{
    Accept, AcceptFlags, ChannelId, Greeting, Mac, Offer, Reason, Reject, Rejection, Uuid,
};

use super::pairing;
use super::path::Path;
use super::port::Port;
use super::quest::Heard;
use super::{ExportState, Failure, PortConfig, Problem, Session, SessionEvent, State};
use crate::generation::Loss;
use crate::initiator::{Initiator, Piece};
use crate::rules::Rules;
use crate::time::{Instant, earliest};

/// Smallest `damq` that is requested for a channel, in pages: room for eight of the largest
/// requests.
const DAMQ_PAGES_MIN: u32 = 2048;
/// Channels of a queue at most.
pub(super) const PATHS_MAX: usize = 64;
/// Silence of a channel with requests in flight after which all channels are asked for a sign of
/// life. The question is repeated after half of that time.
const DOUBT: Duration = Duration::from_millis(100);
/// Silence after which a channel is given up if another is heard. Lower: channels are lost when the
/// target is busy for a moment. Higher: requests wait longer on a dead link.
const GIVE_UP: Duration = Duration::from_millis(400);
/// How long a frame may stay without an ack if there is another channel. The channel may be heard:
/// frames may get lost in one direction only.
const STALL: Duration = Duration::from_millis(600);

impl<R: Rules> Session<R> {
    /// Adds a local link; returns its index.
    pub fn add_port(&mut self, now: Instant, config: PortConfig) -> usize {
        self.now = now;
        let gap = self.ports.iter().position(Option::is_none);
        let index = gap.unwrap_or_else(|| {
            self.ports.push(None);
            self.ports.len() - 1
        });
        self.ports[index] = Some(Port::new(config, now));
        index
    }

    /// Removes a local link. The requests in flight of its channels take others, or wait for one.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn remove_port(&mut self, now: Instant, port: usize) {
        self.lose_port(now, port, Problem::Removed);
        self.ports[port] = None;
    }

    /// Gives up the channels of a local link that is known not to carry frames any more, or only
    /// shorter ones. If it is down and no other link has a live channel, nothing is given up: the
    /// link may return before the target has noticed.
    pub fn lose_port(&mut self, now: Instant, port: usize, problem: Problem) {
        self.now = now;
        let is_other = |path: &Path<R>| path.port != port && path.live().is_some();
        if problem == Problem::Down && !self.paths.iter().any(is_other) {
            return;
        }
        for path in 0..self.paths.len() {
            let it = &self.paths[path];
            // An attempt in progress finds out the frame length by its probes.
            let suffers = it.live().is_some() || (it.is_busy() && problem != Problem::Narrowed);
            if it.port == port && suffers {
                self.lose(path, problem);
            }
        }
        self.issue();
    }

    pub(super) fn handle_offer(
        &mut self,
        port: usize,
        src: Mac,
        offer: &Offer,
    ) -> Result<(), Reject> {
        let link = self.ports[port].as_mut().ok_or(Reject::Unexpected)?;
        if !link.has_asked(src, offer.nonce) {
            return Err(Reject::Unexpected);
        }
        match self.quest.hear(offer, self.config.read_only) {
            Heard::Nothing => return Err(Reject::Unexpected),
            Heard::Wanted => link.hear(self.now, src, offer.target),
            Heard::Changed => self.fail(Failure::ExportChanged),
        }
        Ok(())
    }

    /// Takes a frame of another version of the protocol.
    pub(super) fn handle_greeting(&mut self, port: usize, src: Mac, greeting: &Greeting) {
        let link = self.ports[port].as_mut();
        let Some(link) = link.filter(|link| link.has_asked(src, greeting.nonce)) else { return };
        if link.note_version(src, greeting.versions) {
            let event = SessionEvent::OtherVersion(port, src, greeting.versions);
            self.events.push_back(event);
        }
    }

    /// Begins attempts on all pairs of links and addresses that lack channels and whose pause is
    /// over.
    pub(super) fn pair(&mut self) {
        let aim = match self.quest.choose() {
            Ok(Some(aim)) => aim,
            Ok(None) => return,
            Err(both) => return self.fail(Failure::Ambiguous(*both)),
        };
        let hears = |port: &Option<Port>| {
            port.as_ref().map_or_else(ArrayVec::new, |port| port.heard(aim.target))
        };
        let heard: Vec<_> = self.ports.iter().map(hears).collect();
        let is_heard = |path: &&Path<R>| heard[path.port].contains(&path.peer);
        let kept = self.paths.iter().filter(|path| path.is_busy() || is_heard(path));
        let mut pairs: Vec<_> = kept.map(|path| (path.port, path.peer)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs.extend(pairing::pair(&heard, &pairs));
        for &pair in &pairs {
            let is_member = |path: &&Path<R>| (path.port, path.peer) == pair;
            let members = self.paths.iter().filter(is_member).count();
            for _ in members..self.config.channels {
                self.add_path(pair, &pairs);
            }
        }
        let part = self.config.damq_pages / (pairs.len() * self.config.channels).max(1) as u32;
        let damq_pages = part.max(DAMQ_PAGES_MIN.min(self.config.damq_pages));
        for path in self.paths.iter_mut().filter(|path| path.idle_until().is_some()) {
            let port = self.ports[path.port].as_mut();
            let Some(port) = port.filter(|_| heard[path.port].contains(&path.peer)) else {
                continue;
            };
            match path.idle_until() {
                Some(until) if until > self.now => port.ask_at(until),
                _ => path.begin(self.now, (self.random)(), (port.config, aim), damq_pages),
            }
        }
    }

    /// Adds a path for a pair. It replaces an idle path that is not of one of `pairs`, if there is
    /// any.
    fn add_path(&mut self, pair: (usize, Mac), pairs: &[(usize, Mac)]) {
        let is_spare = |path: &Path<R>| !path.is_busy() && !pairs.contains(&(path.port, path.peer));
        let Some(port) = &self.ports[pair.0] else { return };
        let spare = self.paths.iter().position(is_spare);
        let index = spare.unwrap_or(self.paths.len());
        if index == PATHS_MAX {
            return;
        }
        let channel = ChannelId(self.channel_first + index as u16);
        let path = Path::new(channel, self.mark, pair, port.config);
        match spare {
            Some(index) => self.paths[index] = path,
            None => self.paths.push(path),
        }
    }

    pub(super) fn accepted(&mut self, path: usize, accept: &Accept) {
        // Channels of another generation are lost: their completions would count for the new one,
        // whose cache does not hold the writes.
        for other in (0..self.paths.len()).filter(|&other| other != path) {
            if self.paths[other].boot().is_some_and(|boot| boot != accept.boot) {
                self.lose(other, Problem::Outdated);
            }
        }
        let flag = |flag| accept.flags.contains(flag);
        let size_before = self.seat.size();
        let state = ExportState {
            target: accept.target,
            uuid: accept.export,
            size: accept.size,
            block_size: accept.block_size,
            read_only: flag(AcceptFlags::READ_ONLY),
            write_cache: flag(AcceptFlags::WRITE_CACHE),
            discard: flag(AcceptFlags::DISCARD),
            rotational: flag(AcceptFlags::ROTATIONAL),
            boot: accept.boot,
        };
        if let Some(before) = self.export {
            if before.uuid != state.uuid || before.block_size != state.block_size {
                return self.fail(Failure::ExportChanged);
            }
            match Loss::between(before.boot, state.boot) {
                Some(Loss::Cache) if before.write_cache => self.lose_cache(before.boot),
                // No flush could report the loss.
                Some(_) if !before.read_only => return self.fail(Failure::WritesLost),
                _ => {}
            }
            if size_before != state.size {
                self.events.push_back(SessionEvent::Resized(state.size));
            }
        }
        self.export = Some(state);
        self.seat.connect(state);
        self.quest.settle(state.read_only);
        self.note_former();
        let joined = &self.paths[path];
        self.events.push_back(SessionEvent::Joined(joined.port, joined.peer));
        self.share_ports();
        if self.state != State::Live {
            self.state = State::Live;
            self.watch.revived(self.now);
            self.events.push_back(SessionEvent::Connected);
        }
    }

    /// The target may have lost its cache of the generation `boot`, with the writes that no flush
    /// has covered.
    fn lose_cache(&mut self, boot: Uuid) {
        if R::REDO_LOST {
            self.operations.lose_cache();
            self.fences.lose_cache();
        }
        if self.cache.lose(boot, R::LOST_CACHE_FAILS_FLUSH) && R::LOST_CACHE_FAILS_FLUSH {
            self.events.push_back(SessionEvent::CacheLost);
        }
    }

    pub(super) fn rejected(&mut self, path: usize, rejection: Rejection) {
        let reason = rejection.reason;
        self.events.push_back(SessionEvent::Rejected(Box::new(rejection)));
        let other = self.others(path).any(Path::is_busy);
        let may_pass = match reason {
            Reason::UnknownExport | Reason::Held | Reason::NoState => self.state != State::New,
            Reason::NoResources => self.state != State::New || other,
            _ => false,
        };
        if may_pass {
            self.lose(path, Problem::NoAccept);
        } else {
            self.fail(Failure::Rejected(reason));
        }
    }

    /// All paths but one.
    fn others(&self, path: usize) -> impl Iterator<Item = &Path<R>> {
        let others = self.paths.iter().enumerate().filter(move |&(it, _)| it != path);
        others.map(|(_, other)| other)
    }

    /// Gives up a channel or an attempt. Its requests in flight are reissued, modifications after a
    /// fence.
    pub(super) fn lose(&mut self, path: usize, problem: Problem) {
        let link = &self.paths[path];
        let (port, peer) = (link.port, link.peer);
        let was_live = link.live().is_some();
        if let (Some(initiator), Some(identity)) = (link.live(), link.identity()) {
            self.past += initiator.channel.stats;
            // Whatever the reason of the loss, requests may still be on their way to the target.
            let is_fenced = match problem {
                Problem::Reset => R::FENCE_AFTER_RESET,
                Problem::Outdated => R::FENCE_AFTER_LOST_CACHE,
                _ => true,
            };
            let fenced = |(_, piece): &(_, Piece)| {
                R::FENCE_BEFORE_REISSUE && is_fenced && piece.opcode.modifies()
            };
            let free = initiator.pieces().filter(|piece| !fenced(piece));
            self.operations.reissue(free.map(|(_, piece)| piece));
            let pieces: Vec<_> = initiator.pieces().filter(fenced).collect();
            if !pieces.is_empty() {
                self.fences.add(self.now, identity, pieces);
            }
        }
        let delay = match problem {
            Problem::Reset | Problem::Outdated | Problem::Removed => Duration::ZERO,
            _ => self.config.reconnect_delay,
        };
        let others = self.others(path).any(|other| other.live().is_some());
        self.paths[path].fail(self.now, problem, delay, others);
        if let (Some(port), Some(until)) = (&mut self.ports[port], self.paths[path].idle_until()) {
            port.ask_at(until);
        }
        if !was_live {
            return self.reconsider();
        }
        self.events.push_back(SessionEvent::Parted(port, peer, problem));
        self.share_ports();
        if others {
            return;
        }
        match self.state {
            State::Closing { leaves, .. } => self.end(leaves),
            _ => {
                self.state = State::Lost(self.now);
                self.events.push_back(SessionEvent::Lost(problem));
            }
        }
    }

    /// Looks for another target, if no channel could be opened to the one that was found.
    fn reconsider(&mut self) {
        if !self.quest.is_settled() && !self.paths.iter().any(Path::is_busy) {
            self.quest.reconsider();
            self.ports.iter_mut().flatten().for_each(Port::forget);
        }
    }

    /// Divides the receive window of each link among its channels.
    fn share_ports(&mut self) {
        for port in 0..self.ports.len() {
            let live = |path: &&mut Path<R>| path.port == port && path.live().is_some();
            let count = self.paths.iter_mut().filter(live).count();
            for path in self.paths.iter_mut().filter(live) {
                let initiator = path.live_mut().expect("only live paths are left");
                initiator.channel.share_receiver(count);
            }
        }
    }

    /// Gives up channels that are silent or stalled, if another is fine. All channels are asked for
    /// a sign of life: if the target is silent on all of them, giving up one would not help.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.doubt_at = None;
        if self.paths.iter().filter(|path| path.live().is_some()).count() < 2 {
            return;
        }
        let mut doubtful = false;
        for path in 0..self.paths.len() {
            let Some(initiator) = self.paths[path].live() else { continue };
            let problem = match suspect(initiator, now) {
                Suspicion::None => continue,
                Suspicion::Doubtful => None,
                Suspicion::Dead(problem) => Some(problem),
            };
            doubtful = true;
            let fine = |other: &Path<R>| other.live().is_some_and(|it| is_fine(it, now));
            let instead = self.others(path).any(fine);
            if let Some(problem) = problem.filter(|_| instead) {
                if problem == Problem::Stall {
                    self.lose_alike(now, path);
                }
                self.lose(path, problem);
            }
        }
        if doubtful {
            for initiator in self.paths.iter_mut().filter_map(Path::live_mut) {
                initiator.channel.ask_for_life(now);
            }
            self.doubt_at = Some(now + DOUBT / 2);
        }
    }

    /// Gives up a channel that the target has reset. If a request has waited on it for as long as
    /// the target takes to detect a stall, a stall was the reason, and similar channels are given
    /// up, too.
    pub(super) fn lose_reset(&mut self, path: usize) {
        let now = self.now;
        let is_stalled = self.paths[path].live().is_some_and(|initiator| {
            let waits = |piece: &Piece| now.since(self.operations.since(piece));
            initiator.pieces().any(|(_, piece)| waits(&piece) >= stall(initiator))
        });
        if is_stalled {
            self.lose_alike(now, path);
        }
        self.lose(path, Problem::Reset);
    }

    /// Gives up the other channels on the port of a stalled channel whose frames are as long or
    /// longer, if a channel of another port is fine. Otherwise a request could wait for an ack on
    /// one after the other. The probes of new attempts find out which frames get through now.
    fn lose_alike(&mut self, now: Instant, stalled: usize) {
        let (port, frame_len) = (self.paths[stalled].port, self.paths[stalled].frame_len());
        let fine = |path: &Path<R>| path.live().is_some_and(|it| is_fine(it, now));
        if !self.paths.iter().any(|path| path.port != port && fine(path)) {
            return;
        }
        for path in (0..self.paths.len()).filter(|&path| path != stalled) {
            let it = &self.paths[path];
            if it.port == port && it.live().is_some() && it.frame_len() >= frame_len {
                self.lose(path, Problem::Stall);
            }
        }
    }

    /// When to call [`doubt`](Self::doubt), if nothing is heard until then.
    pub(super) fn doubt_timeout(&self) -> Option<Instant> {
        if self.doubt_at.is_some() {
            return self.doubt_at;
        }
        let live = || self.paths.iter().filter_map(Path::live);
        live().nth(1)?;
        let silent = live().filter_map(|it| it.silent_since()).min().map(|at| at + DOUBT);
        let stalled = live().filter_map(|it| Some(it.channel.stuck_since()? + stall(it)));
        earliest(silent, stalled.min())
    }
}

/// How long an answer may take: with a long queue on the way, it is late, not lost.
fn patience<R: Rules>(initiator: &Initiator<R>) -> Duration {
    initiator.channel.rtt() * 4
}

/// How long a frame of a channel may stay without an ack.
fn stall<R: Rules>(initiator: &Initiator<R>) -> Duration {
    STALL.max(patience(initiator))
}

/// Result of the failure detector for a live channel.
enum Suspicion {
    None,
    /// It is asked for a sign of life.
    Doubtful,
    /// It is given up if another is fine.
    Dead(Problem),
}

/// Examines a live channel.
fn suspect<R: Rules>(initiator: &Initiator<R>, now: Instant) -> Suspicion {
    let (channel, silent) = (&initiator.channel, initiator.silent_for(now));
    if channel.is_stalled(now, stall(initiator)) {
        return Suspicion::Dead(Problem::Stall);
    }
    let asked = channel.asked_for(now) >= DOUBT * 2;
    if silent >= GIVE_UP.max(patience(initiator)) && asked {
        return Suspicion::Dead(Problem::Silence);
    }
    if silent >= DOUBT { Suspicion::Doubtful } else { Suspicion::None }
}

/// Whether a channel is heard and not stalled, so that others may be given up.
fn is_fine<R: Rules>(initiator: &Initiator<R>, now: Instant) -> bool {
    let channel = &initiator.channel;
    channel.unheard_for(now) < DOUBT * 2 && !channel.is_stalled(now, stall(initiator))
}
