//! Path manager of a queue: its local links, and the paths over them.
//!
//! Ports hear the target's addresses; they are paired, and each pair gets its channels. A lost
//! channel is opened again for as long as its address is heard. What a loss means to the requests
//! in flight is the session's business.

#[cfg(test)]
mod tests;

use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_crypto::PublicKey;
use tyche_wire::{ChannelId, Control, Cookie, Header, Kind, Mac, Reject, Reset, Uuid};

use super::config::ConnectParams;
use super::config::SessionConfig;
use super::pairing::{self, Pair};
use super::path::{LostChannel, Path, PathEvent};
use super::port::{Port, PortConfig};
use super::problem::Problem;
use super::repeat::spread;
use super::shared::QUEUES_MAX;
use super::target_search::{ResolvedExport, TargetSearch};
use crate::channel::outgoing::Outgoing;
use crate::channel::protection::Guard;
use crate::channel::stats::ChannelStats;
use crate::host::initiator::Initiator;
use crate::question;
use crate::rules::Rules;
use crate::time::{Instant, earliest};

/// Smallest `damq` that is requested for a channel, in pages: room for eight of the largest
/// requests.
const DAMQ_PAGES_MIN: u32 = 2048;
/// Channels of a queue at most.
pub(super) const PATHS_MAX: usize = 64;

/// The path manager of one queue. It owns the queue's ports and paths, and with them its channels;
/// it opens a lost channel again, but leaves the requests of that to the session.
pub(super) struct Paths<R> {
    /// Local links by index; a removed one leaves a gap that is used again.
    ports: Vec<Option<Port>>,
    /// By our index of the channel.
    paths: Vec<Path<R>>,
    /// Queues of the session. Each has as many channels on a path.
    queues: usize,
    /// Our index of the queue's first channel. Each queue has a range of its own.
    channel_first: u16,
    /// The first half of all cookies, which links filter frames by.
    mark: u32,
    /// Cryptographic source, for nonces and cookies.
    random: Box<dyn FnMut() -> u64 + Send>,
    /// The target's key, if it is known.
    key: Option<PublicKey>,
    /// Counters of lost channels.
    past: ChannelStats,
}

impl<R: Rules> Paths<R> {
    /// The path manager of the session's queue with that number, one of `queues`.
    pub(super) fn new(
        now: Instant,
        (session, queue, queues): (Uuid, usize, usize),
        ports: &[PortConfig],
        mut random: Box<dyn FnMut() -> u64 + Send>,
        key: Option<PublicKey>,
    ) -> Self {
        Self {
            ports: ports.iter().map(|&port| Some(Port::new(port, now))).collect(),
            paths: Vec::new(),
            queues,
            channel_first: (queue * PATHS_MAX) as u16,
            mark: mark(session, queue, random()),
            random,
            key,
            past: ChannelStats::default(),
        }
    }

    /// All paths by index.
    #[inline]
    pub(super) fn all(&self) -> &[Path<R>] {
        &self.paths
    }

    /// The path of a channel; beyond the last if the channel is unknown or another queue's.
    #[inline]
    pub(super) fn index(&self, channel: ChannelId) -> usize {
        usize::from(channel.0.wrapping_sub(self.channel_first))
    }

    /// All paths but one.
    pub(super) fn others(&self, path: usize) -> impl Iterator<Item = &Path<R>> {
        let others = self.paths.iter().enumerate().filter(move |&(it, _)| it != path);
        others.map(|(_, other)| other)
    }

    /// Whether a channel is live.
    pub(super) fn is_live(&self) -> bool {
        self.paths.iter().any(|path| path.live().is_some())
    }

    /// The live channel of a path.
    #[inline]
    pub(super) fn live_mut(&mut self, path: usize) -> Option<&mut Initiator<R>> {
        self.paths[path].live_mut()
    }

    /// The live channel of a path, if that is on the local link, and what opens its frames if they
    /// are sealed.
    #[inline]
    pub(super) fn live_on(
        &mut self,
        port: usize,
        path: usize,
    ) -> Option<(&mut Initiator<R>, Option<&mut Guard>)> {
        self.paths.get_mut(path).filter(|path| path.port == port)?.guarded_mut()
    }

    /// The live channels.
    pub(super) fn all_live_mut(&mut self) -> impl Iterator<Item = &mut Initiator<R>> {
        self.paths.iter_mut().filter_map(Path::live_mut)
    }

    /// The local links by index.
    pub(super) fn ports(&self) -> &[Option<Port>] {
        &self.ports
    }

    /// A local link, unless it was removed.
    pub(super) fn port_mut(&mut self, port: usize) -> Option<&mut Port> {
        self.ports[port].as_mut()
    }

    /// Adds a local link; returns its index.
    pub(super) fn add_port(&mut self, now: Instant, config: PortConfig) -> usize {
        let gap = self.ports.iter().position(Option::is_none);
        let index = gap.unwrap_or_else(|| {
            self.ports.push(None);
            self.ports.len() - 1
        });
        self.ports[index] = Some(Port::new(config, now));
        index
    }

    /// Removes a local link, whose channels are lost already.
    pub(super) fn remove_port(&mut self, port: usize) {
        self.ports[port] = None;
    }

    /// Discards what the ports have heard.
    pub(super) fn forget(&mut self) {
        self.ports.iter_mut().flatten().for_each(Port::forget);
    }

    /// Begins attempts to connect to `resolved` on all pairs of links and addresses that lack
    /// channels and whose pause is over. Returns whether its target was heard at any.
    pub(super) fn pair(
        &mut self,
        now: Instant,
        resolved: ResolvedExport,
        config: &SessionConfig,
    ) -> bool {
        let hears = |port: &Option<Port>| {
            port.as_ref().map_or_else(ArrayVec::new, |port| port.heard(resolved.target))
        };
        let heard: Vec<_> = self.ports.iter().map(hears).collect();
        let is_heard = |path: &&Path<R>| heard[path.port].contains(&path.peer);
        let kept = self.paths.iter().filter(|path| !path.is_retired());
        let kept = kept.filter(|path| path.is_busy() || is_heard(path));
        let mut pairs: Vec<Pair> = kept.map(|path| (path.port, path.peer)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut new = pairing::pair(&heard, &pairs);
        if pairs.len() + new.len() > PATHS_MAX {
            self.shuffle(&mut new);
        }
        pairs.extend(new);
        // Each pair gets a channel before any gets two: some may be nobody's address.
        for channels in 1..=config.channels {
            for &pair in &pairs {
                let is_member =
                    |path: &&Path<R>| (path.port, path.peer) == pair && !path.is_retired();
                if self.paths.iter().filter(is_member).count() < channels {
                    self.add(pair, &pairs);
                }
            }
        }
        let part = config.damq_pages / (pairs.len() * config.channels).max(1) as u32;
        let damq_pages = part.max(DAMQ_PAGES_MIN.min(config.damq_pages));
        for path in self.paths.iter_mut().filter(|path| path.idle_until().is_some()) {
            let port = self.ports[path.port].as_mut();
            let Some(port) = port.filter(|_| heard[path.port].contains(&path.peer)) else {
                continue;
            };
            match path.idle_until() {
                Some(until) if until > now => port.ask_at(until),
                _ => {
                    let nonce = question::nonce(self.key.as_ref(), Kind::Hello, (self.random)());
                    path.begin(now, nonce, (port.config, resolved), damq_pages);
                }
            }
        }
        heard.iter().any(|peers| !peers.is_empty())
    }

    /// A random number.
    pub(super) fn draw(&mut self) -> u64 {
        (self.random)()
    }

    /// Notes that a target has answered on a local link: see [`Port::hear`].
    pub(super) fn hear(
        &mut self,
        now: Instant,
        port: usize,
        answer: (Mac, Uuid),
        is_preferred: bool,
    ) {
        let lot = self.draw();
        if let Some(port) = &mut self.ports[port] {
            port.hear(now, answer, is_preferred, lot);
        }
    }

    /// Brings pairs into a random order: there may be more than paths.
    fn shuffle(&mut self, pairs: &mut [Pair]) {
        for last in (1..pairs.len()).rev() {
            let other = (self.random)() % (last as u64 + 1);
            pairs.swap(last, other as usize);
        }
    }

    /// Adds a path for a pair; returns its index. It replaces a retired path, or an idle one that
    /// is not of one of `pairs`, or one at whose address nobody has opened a channel so far.
    fn add(&mut self, pair: Pair, pairs: &[Pair]) -> Option<usize> {
        let is_idle = |path: &Path<R>| !path.is_busy() && !pairs.contains(&(path.port, path.peer));
        let is_spare = |path: &Path<R>| path.is_retired() || is_idle(path);
        let port = self.ports[pair.0].as_ref()?;
        let tried = |path: &Path<R>| path.idle_until().is_some_and(|until| until > Instant(0));
        let is_vain = |path: &Path<R>| tried(path) && !path.was_live;
        let mut spare = self.paths.iter().position(is_spare);
        if spare.is_none() && self.paths.len() == PATHS_MAX {
            spare = self.paths.iter().position(is_vain);
        }
        let index = spare.unwrap_or(self.paths.len());
        if index == PATHS_MAX {
            return None;
        }
        let channel = ChannelId(self.channel_first + index as u16);
        let path = Path::new(channel, self.mark, pair, port.config);
        match spare {
            Some(index) => self.paths[index] = path,
            None => self.paths.push(path),
        }
        Some(index)
    }

    /// Probes all live paths whose links take longer frames than their channels have.
    pub(super) fn widen(&mut self) {
        let Self { paths, ports, random, key, .. } = self;
        for path in paths {
            if let Some(port) = &ports[path.port] {
                let nonce = || question::nonce(key.as_ref(), Kind::Hello, random());
                path.widen(port.config.frame_len_max, nonce);
            }
        }
    }

    /// Begins an attempt that replaces the channel of a path with one for longer frames, unless
    /// another replacement is in progress. The old channel stays until the new one is live.
    pub(super) fn replace(&mut self, now: Instant, path: usize, resolved: ResolvedExport) {
        if self.paths.iter().any(|path| path.replaces.is_some()) {
            return;
        }
        let old = &self.paths[path];
        let (pair, damq_pages) = ((old.port, old.peer), old.damq_pages());
        // No path of a pair that is in use gives its place.
        let pairs: Vec<Pair> = self.paths.iter().map(|path| (path.port, path.peer)).collect();
        let Some(new) = self.add(pair, &pairs) else { return };
        let Some(port) = &self.ports[pair.0] else { return };
        let nonce = question::nonce(self.key.as_ref(), Kind::Hello, (self.random)());
        self.paths[new].replaces = Some(path);
        self.paths[new].begin(now, nonce, (port.config, resolved), damq_pages);
    }

    /// Takes the path that a path, which is live now, was to replace: the one of the two that has
    /// the shorter frames, to be given up.
    pub(super) fn take_replaced(&mut self, path: usize) -> Option<usize> {
        let old = self.paths[path].replaces?;
        if self.paths[old].frame_len() < self.paths[path].frame_len() {
            (self.paths[path].replaces, self.paths[old].replaces) = (None, Some(path));
            return Some(old);
        }
        Some(path)
    }

    /// Gives up a channel or an attempt; returns the channel, if it was live. The next attempt may
    /// begin after the pause that `config` and the kind of the problem ask for.
    pub(super) fn lose(
        &mut self,
        now: Instant,
        path: usize,
        problem: Problem,
        config: &SessionConfig,
    ) -> Option<LostChannel<R>> {
        let delay = match problem {
            Problem::Reset | Problem::Outdated | Problem::Removed | Problem::Restored => {
                Duration::ZERO
            }
            _ => spread(config.reconnect_delay, (self.random)()),
        };
        let others = self.others(path).any(|other| other.live().is_some());
        let link = &mut self.paths[path];
        let lost = link.fail(now, problem, delay, others);
        // Of a path and its replacement, the other one goes on.
        if link.replaces.is_some() {
            link.retire();
        } else if let Some(new) = self.paths.iter_mut().find(|it| it.replaces == Some(path)) {
            new.replaces = None;
            self.paths[path].retire();
        }
        let link = &self.paths[path];
        if let (Some(port), Some(until)) = (&mut self.ports[link.port], link.idle_until()) {
            port.ask_at(until);
        }
        if let Some(lost) = &lost {
            self.past += lost.initiator.channel.stats;
            self.share_ports();
        }
        lost
    }

    /// Gives up all channels and attempts for good.
    pub(super) fn close(&mut self, now: Instant) {
        for path in &mut self.paths {
            if let Some(lost) = path.fail(now, Problem::Disconnected, Duration::MAX, false) {
                self.past += lost.initiator.channel.stats;
            }
        }
    }

    /// Divides the receive window of each link among its channels, and each path among those from
    /// the same link to the same address.
    fn share_ports(&mut self) {
        let live = |path: &&Path<R>| path.live().is_some();
        let pairs: Vec<Pair> =
            self.paths.iter().filter(live).map(|path| (path.port, path.peer)).collect();
        for path in &mut self.paths {
            let pair = (path.port, path.peer);
            let count = pairs.iter().filter(|other| **other == pair).count() * self.queues;
            if let Some(initiator) = path.live_mut() {
                initiator.channel.share_path(count);
            }
        }
        for port in 0..self.ports.len() {
            let live = |path: &&mut Path<R>| path.port == port && path.live().is_some();
            let count = self.paths.iter_mut().filter(live).count();
            for path in self.paths.iter_mut().filter(live) {
                let initiator = path.live_mut().expect("only live paths are left");
                initiator.channel.share_receiver(count);
            }
        }
    }

    /// Whether there is a channel of the target with that identity.
    pub(super) fn knows(&self, identity: (Cookie, ChannelId)) -> bool {
        self.paths.iter().any(|path| path.identity() == Some(identity))
    }

    /// The path whose channel a Reset from `src` names.
    pub(super) fn reset_by(&self, port: usize, src: Mac, reset: &Reset) -> Option<usize> {
        let named = |path: &Path<R>| path.port == port && path.is_reset_by(src, reset);
        self.paths.iter().position(named)
    }

    /// Shows from now on that the session knows this key of the target.
    pub(super) fn set_key(&mut self, key: PublicKey) {
        self.key = Some(key);
    }

    /// Takes an answer to a Hello or Connect; returns what it means to which path.
    ///
    /// # Errors
    /// `Unexpected` if no path has asked for it, or it makes no sense.
    pub(super) fn handle_control(
        &mut self,
        now: Instant,
        (port, src): (usize, Mac),
        (header, control): (&Header, Control),
        params: ConnectParams<'_>,
    ) -> Result<Option<(usize, PathEvent)>, Reject> {
        let asked = |path: &Path<R>| path.port == port && path.has_asked(src, &control);
        let index = self.paths.iter().position(asked).ok_or(Reject::Unexpected)?;
        let path = &mut self.paths[index];
        let event = path.handle_control(now, header, control, params, &mut self.random)?;
        if matches!(event, Some(PathEvent::Accepted(..))) {
            self.share_ports();
        }
        Ok(event.map(|event| (index, event)))
    }

    /// Runs the timers of a path that have expired. Returns why the channel is dead or the attempt
    /// has failed, if so.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        path: usize,
        params: ConnectParams<'_>,
    ) -> Option<Problem> {
        self.paths[path].handle_timeout(now, params, &mut self.random)
    }

    /// Runs the timers of the ports that have expired; true if a round of questions has ended, so
    /// that paths may be [paired](Self::pair). See [`Port::handle_timeout`].
    pub(super) fn handle_port_timeouts(
        &mut self,
        now: Instant,
        again: Duration,
        is_live: bool,
    ) -> bool {
        let Self { ports, random, key, .. } = self;
        let mut nonce = || question::nonce(key.as_ref(), Kind::Discover, random());
        let mut over = false;
        for port in ports.iter_mut().flatten() {
            over |= port.handle_timeout(now, again, is_live, &mut nonce);
        }
        over
    }

    /// When a timer of a port or a path expires, or one of them has a frame to send.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let ports = self.ports.iter().flatten().map(|port| Some(port.poll_timeout()));
        let paths = self.paths.iter().map(Path::poll_timeout);
        ports.chain(paths).fold(None, earliest)
    }

    /// Composes the next frame for a local link; false if there is none to send now. `who`: see
    /// [`Port::poll_transmit`].
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        port: usize,
        who: (Uuid, &TargetSearch),
        out: &mut Outgoing,
    ) -> bool {
        let Some(link) = &mut self.ports[port] else { return false };
        if link.poll_transmit(now, who, out) {
            self.sort(out);
            return true;
        }
        let mut paths = self.paths.iter_mut().filter(|path| path.port == port);
        let is_composed = paths.any(|path| path.poll_transmit(now, out));
        if is_composed && !out.header.kind.on_channel() {
            self.sort(out);
        }
        is_composed
    }

    /// Has a frame outside of channels come to the part of the target's link that has the channels
    /// of this queue: over UDP the kernel may join it with theirs.
    fn sort(&self, out: &mut Outgoing) {
        if out.header.cookie == Cookie(0) {
            out.header.cookie = Cookie(self.mark.into());
        }
    }

    /// Composes the next farewell of a round for a local link: see [`Path::poll_farewell`].
    pub(super) fn poll_farewell(
        &mut self,
        now: Instant,
        port: usize,
        round: u32,
        out: &mut Outgoing,
    ) -> bool {
        let mut paths = self.paths.iter_mut().filter(|path| path.port == port);
        paths.any(|path| path.poll_farewell(now, round, out))
    }

    /// Counters of all channels, including lost ones.
    pub(super) fn stats(&self) -> ChannelStats {
        let mut stats = self.past;
        for initiator in self.paths.iter().filter_map(Path::live) {
            stats += initiator.channel.stats;
        }
        stats
    }
}

/// The first half of a queue's cookies: random but for the first byte. The parts of a target's link
/// divide the channels by that byte, and the queues of a session have consecutive ones, up to 255:
/// so each has a part of its own as long as there are enough.
fn mark(session: Uuid, queue: usize, random: u64) -> u32 {
    const FIRST_MAX: u8 = (256 - QUEUES_MAX) as u8;
    let first = session.as_bytes()[0] % FIRST_MAX + queue as u8;
    (random >> 32) as u32 & !0xff | u32::from(first)
}
