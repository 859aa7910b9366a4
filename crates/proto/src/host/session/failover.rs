//! Fail-over and reconnect: what a session does when channels open and are lost.
//!
//! The requests in flight of a lost channel are reissued on others: reads at once, modifications
//! after the target has confirmed the fence. A lost channel is opened again for as long as the
//! session lives.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tyche_wire::{
    Accept, Content, Control, Flags, Greeting, Kind, Mac, Offer, Reason, Reject, Rejection, Tag,
};

use super::detector;
use super::path::Path;
use super::paths::PATHS_MAX;
use super::target_search::Heard;
use super::{ExportState, Failure, NextKey, PortConfig, Problem, Session, SessionEvent, State};
use crate::channel::outgoing::Outgoing;
use crate::host::initiator::{Initiator, Piece};
use crate::rules::{Rule, Rules};
use crate::target_end::generation::Loss;
use crate::time::Instant;

impl<R: Rules> Session<R> {
    /// Adds a local link; returns its index.
    pub fn add_port(&mut self, now: Instant, config: PortConfig) -> usize {
        self.now = now;
        self.paths.add_port(now, config)
    }

    /// Sets the longest frame of a local link, in bytes, which has grown: later attempts use it,
    /// and a channel with shorter frames is replaced when longer ones get through.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn set_frame_len_max(&mut self, port: usize, frame_len_max: usize) {
        let port = self.paths.port_mut(port).expect("a link that exists");
        port.config.frame_len_max = frame_len_max;
    }

    /// Removes a local link. The requests in flight of its channels take others, or wait for one.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn remove_port(&mut self, now: Instant, port: usize) {
        self.lose_port(now, port, Problem::Removed);
        self.paths.remove_port(port);
    }

    /// Gives up the channels of a local link that is known not to carry frames any more, or only
    /// shorter ones. If it is down and no other link has a live channel, nothing is given up: the
    /// link may return before the target has noticed.
    pub fn lose_port(&mut self, now: Instant, port: usize, problem: Problem) {
        self.now = now;
        let is_other = |path: &Path<R>| path.port != port && path.live().is_some();
        if problem == Problem::Down && !self.paths.all().iter().any(is_other) {
            return;
        }
        for path in 0..self.paths.all().len() {
            let it = &self.paths.all()[path];
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
        let link = self.paths.port_mut(port).ok_or(Reject::Unexpected)?;
        if !link.has_asked(src, offer.nonce) {
            return Err(Reject::Unexpected);
        }
        let lot = self.paths.draw();
        match self.search.hear(offer, self.config.read_only, lot) {
            Heard::Nothing => return Err(Reject::Unexpected),
            Heard::Wanted { shows_key } => {
                self.paths.hear(self.now, port, (src, offer.target), shows_key);
            }
            // Anybody may send an Offer. With keys, the target says whether the name is right.
            Heard::Changed if self.config.keys.is_some() => return Err(Reject::Unexpected),
            Heard::Changed => self.fail(Failure::ExportChanged),
        }
        Ok(())
    }

    /// Takes a frame of another version of the protocol.
    pub(super) fn handle_greeting(&mut self, port: usize, src: Mac, greeting: &Greeting) {
        let link = self.paths.port_mut(port);
        let Some(link) = link.filter(|link| link.has_asked(src, greeting.nonce)) else { return };
        if link.note_version(src, greeting.versions) {
            let event = SessionEvent::OtherVersion(port, src, greeting.versions);
            self.events.push_back(event);
        }
    }

    /// Begins attempts on all pairs of links and addresses that lack channels and whose pause is
    /// over.
    pub(super) fn pair(&mut self) {
        let resolved = match self.search.choose() {
            Ok(Some(resolved)) => resolved,
            Ok(None) => return,
            Err(both) => return self.fail(Failure::Ambiguous(*both)),
        };
        let is_heard = self.paths.pair(self.now, resolved, &self.config);
        self.paths.widen();
        if !is_heard {
            // Perhaps it was somebody else who has offered it.
            self.reconsider();
        }
    }

    /// Opens a channel with longer frames for a path that is live and carries them.
    pub(super) fn replace(&mut self, path: usize) {
        if let Ok(Some(resolved)) = self.search.choose() {
            self.paths.replace(self.now, path, resolved);
        }
    }

    /// Takes a live channel into use. `next_key`: see [`SessionEvent::NextKey`].
    pub(super) fn accepted(&mut self, path: usize, accept: &Accept, next_key: Option<NextKey>) {
        self.know_by(next_key);
        // Channels of another generation are lost: their completions would count for the new one,
        // whose cache does not hold the writes. The answers to attempts in progress may be from
        // before the loss, and would be taken for another.
        if self.export.is_some_and(|before| before.generation != accept.generation) {
            for other in 0..self.paths.all().len() {
                let it = &self.paths.all()[other];
                if it.is_busy() && it.generation() != Some(accept.generation) {
                    self.lose(other, Problem::Outdated);
                }
            }
        }
        let size_before = self.handle.size();
        let state = ExportState {
            target: accept.target,
            uuid: accept.export,
            geometry: accept.geometry,
            generation: accept.generation,
        };
        let disk = state.geometry;
        if let Some(before) = self.export {
            if before.uuid != state.uuid || before.geometry.block_size != disk.block_size {
                return self.fail(Failure::ExportChanged);
            }
            match Loss::between(before.generation, state.generation) {
                Some(Loss::Cache) if before.geometry.write_cache => {
                    self.lose_cache();
                }
                // No flush could report the loss.
                Some(_) if !before.geometry.read_only => return self.fail(Failure::WritesLost),
                _ => {}
            }
            if size_before != disk.size {
                self.events.push_back(SessionEvent::Resized(disk.size));
            }
        }
        self.export = Some(state);
        self.handle.connect(state);
        self.search.settle(disk.read_only);
        self.note_resume_state();
        self.note_status();
        let joined = &self.paths.all()[path];
        self.events.push_back(SessionEvent::Joined(joined.port, joined.peer));
        if self.state != State::Live {
            self.state = State::Live;
            self.progress_timeout.revived(self.now);
            self.events.push_back(SessionEvent::Connected);
            self.resume();
        }
        if let Some(shorter) = self.paths.take_replaced(path) {
            self.lose(shorter, Problem::Replaced);
            // It is the turn of the next path that carries longer frames.
            self.paths.widen();
        }
    }

    /// Tells the other queues whether the target takes BlockStatus on all channels of this one.
    fn note_status(&self) {
        let live = self.paths.all().iter().filter_map(Path::live);
        self.handle.note_status(!live.into_iter().all(Initiator::tells_status));
    }

    /// The target may have lost its cache, with the writes that no flush has covered.
    fn lose_cache(&mut self) {
        if R::keeps(Rule::RedoLost) {
            self.operations.lose_cache();
            self.fences.lose_cache();
        }
        if self.cache.lose(R::keeps(Rule::LostCacheFailsFlush))
            && R::keeps(Rule::LostCacheFailsFlush)
        {
            self.events.push_back(SessionEvent::CacheLost);
        }
    }

    pub(super) fn rejected(&mut self, path: usize, rejection: Rejection) {
        let reason = rejection.reason;
        if self.paths.all()[path].replaces.is_some() {
            // The channel that it was to replace goes on.
            return self.lose(path, Problem::NoAccept);
        }
        self.events.push_back(SessionEvent::Rejected(Box::new(rejection)));
        let other = self.paths.others(path).any(Path::is_busy);
        // Of a session with keys, anybody's Offer may have led there.
        let is_other = matches!(reason, Reason::UnknownExport | Reason::OtherTarget);
        let is_misled = self.config.keys.is_some() && is_other;
        let may_pass = match reason {
            _ if is_misled => true,
            Reason::UnknownExport | Reason::Held | Reason::NoState | Reason::Offline => {
                self.state != State::New
            }
            Reason::NoResources => self.state != State::New || other,
            _ => false,
        };
        if may_pass {
            self.lose(path, Problem::NoAccept);
        } else {
            self.fail(Failure::Rejected(reason));
        }
    }

    /// Gives up a channel or an attempt. Its requests in flight are reissued, modifications after a
    /// fence.
    pub(super) fn lose(&mut self, path: usize, problem: Problem) {
        let link = &self.paths.all()[path];
        let (port, peer) = (link.port, link.peer);
        let Some(lost) = self.paths.lose(self.now, path, problem, &self.config) else {
            return self.reconsider();
        };
        self.note_status();
        // Whatever the reason of the loss, requests may still be on their way to the target.
        let is_fenced = match problem {
            Problem::Reset => R::keeps(Rule::FenceAfterReset),
            Problem::Outdated => R::keeps(Rule::FenceAfterLostCache),
            _ => true,
        };
        let fenced = |(_, piece): &(Tag, Piece)| {
            R::keeps(Rule::FenceBeforeReissue) && is_fenced && piece.opcode.modifies()
        };
        let (pieces, free) = lost.initiator.pieces().partition::<Vec<_>, _>(fenced);
        for (tag, piece) in free {
            self.operations.reissue(piece.op, lost.initiator.rest(tag, piece));
        }
        // The target keeps the memory of a channel until it knows that it has ended.
        let is_kept = !matches!(problem, Problem::Reset | Problem::Disconnected);
        if !pieces.is_empty() || (is_kept && is_fenced && R::keeps(Rule::FenceBeforeReissue)) {
            let lot = self.paths.draw();
            self.fences.add(self.now, lost.identity, pieces, lot);
        }
        self.events.push_back(SessionEvent::Parted(port, peer, problem));
        if self.paths.is_live() {
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

    /// Gives up all channels and attempts that have keys, and opens others: the memory of this
    /// machine was put back to an earlier state, so the packet numbers that are next for these keys
    /// may have been used. No farewell is sent, for it would be sealed.
    pub fn renew_keys(&mut self, now: Instant) {
        self.now = now;
        if self.config.keys.is_none() || self.is_over() {
            return;
        }
        for path in 0..self.paths.all().len() {
            if self.paths.all()[path].is_busy() {
                self.lose(path, Problem::Restored);
            }
        }
    }

    /// Knows the target by another key from now on, if it says one, which only the owner of the
    /// key that it has proved can. A late answer by a former key says nothing.
    fn know_by(&mut self, next_key: Option<NextKey>) {
        let (Some(keys), Some(said)) = (&self.config.keys, next_key) else { return };
        let is_news = keys.target == said.former && said.former != said.next;
        if is_news && self.handle.shared().know_by(&said) {
            self.events.push_back(SessionEvent::NextKey(said));
        }
        self.learn_key();
    }

    /// Knows the target by the key that a queue of the session was told.
    pub(super) fn learn_key(&mut self) {
        let Some(keys) = &mut self.config.keys else { return };
        let Some(told) = self.handle.target_key().filter(|&told| told != keys.target) else {
            return;
        };
        Arc::make_mut(keys).target = told;
        self.paths.set_key(told);
        self.search.set_key(told);
    }

    /// Looks for another target, if no channel could be opened to the one that was found.
    fn reconsider(&mut self) {
        if !self.search.is_settled() && !self.paths.all().iter().any(Path::is_busy) {
            self.search.reconsider();
            self.paths.forget();
        }
    }

    /// Gives up the channels that the failure detector names. If it suspects any, all others are
    /// asked for a sign of life.
    pub(super) fn detect_failures(&mut self) {
        let given_up = self.detector.examine(self.now, &detector::live(self.paths.all()));
        let Some(given_up) = given_up else { return };
        for (path, problem) in given_up {
            self.lose(path, problem);
        }
        for initiator in self.paths.all_live_mut() {
            initiator.channel.ask_for_life(self.now);
        }
    }

    /// Composes a fence, if one is due on that port.
    pub(super) fn poll_fence(&mut self, now: Instant, port: usize, out: &mut Outgoing) -> bool {
        !self.fences.is_empty() && self.compose_fence(now, port, out)
    }

    /// Composes a Fence, if one is due. Not inlined: while requests run, there is none to send.
    #[cold]
    fn compose_fence(&mut self, now: Instant, port: usize, out: &mut Outgoing) -> bool {
        let paths = self.paths.all().iter().enumerate();
        let live = || paths.clone().filter(|(_, path)| path.live().is_some());
        let only = live().count() == 1;
        let paths = live().filter(|(_, path)| path.port == port).map(|(index, _)| index);
        let paths: ArrayVec<usize, PATHS_MAX> = paths.collect();
        let Some((path, fence)) = self.fences.poll(now, &paths.iter().copied(), only) else {
            return false;
        };
        let initiator = self.paths.live_mut(path).expect("only live paths are asked");
        let header = initiator.channel.unsequenced(now, Kind::Fence, Flags::NONE);
        let fence = Content::Control(Control::Fence(fence));
        initiator.channel.address(out, header, fence);
        true
    }

    /// Gives up a channel that the target has reset, and those that a stall has made useless with
    /// it.
    pub(super) fn lose_reset(&mut self, path: usize) {
        let waits = |(_, piece): (Tag, Piece)| self.now.since(self.operations.since(&piece));
        let pieces = self.paths.all()[path].live().map(|initiator| initiator.pieces());
        let waited = pieces.and_then(|pieces| pieces.map(waits).max()).unwrap_or_default();
        let live = detector::live(self.paths.all());
        for other in detector::stalled_with(self.now, path, waited, live) {
            self.lose(other, Problem::Stall);
        }
        self.lose(path, Problem::Reset);
    }
}
