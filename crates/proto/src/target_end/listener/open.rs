//! A channel that was accepted, with its state at the listener.

use std::collections::VecDeque;
use std::time::Duration;

use arrayvec::ArrayVec;
use tyche_crypto::{PublicKey, Sealer, Secrets};
use tyche_wire::{
    Accept, Body, CREDIT_MIN, ChannelId, CipherSuite, Content, Control, Event, Fenced, Flags,
    Header, Kind, Mac, Reject, SealedAnswer, Uuid,
};

use super::{ListenerEvent, OpenedChannel};
use crate::channel::ChannelConfig;
use crate::channel::outgoing::Outgoing;
use crate::channel::protection::{self, Guard};
use crate::rules::Rules;
use crate::target_end::access::Identity;
use crate::target_end::admission::Grant;
use crate::target_end::requests::{CreditNews, TargetChannel};
use crate::time::{Instant, earliest};

/// Answers to fences that wait on a channel.
const FENCES_MAX: usize = 8;
/// How long a channel may be half-open. A host sends a frame at once, and repeats it.
const HALF_OPEN_LIFE: Duration = Duration::from_secs(2);

/// How long a channel stays open whose export is removed, for its host to acknowledge that it was
/// told. Lower: a host that lost a few frames looks for the export until its time is over. Higher:
/// the store is given back later.
const TELL_REMOVED: Duration = Duration::from_millis(500);

/// The keys of a sealed channel.
pub(super) struct Keys {
    /// The key by which the host knows the target, since the answer.
    pub(super) known: PublicKey,
    suite: CipherSuite,
    secrets: Secrets,
    /// Opens the host's frames.
    pub(super) guard: Guard,
    /// The answer to the connect, for when that comes again.
    pub(super) answer: SealedAnswer,
}

impl Keys {
    pub(super) fn new(
        known: PublicKey,
        (suite, secrets): (CipherSuite, Secrets),
        answer: SealedAnswer,
    ) -> Box<Self> {
        let (_, guard) = protection::ends(suite, &secrets, false);
        Box::new(Self { known, suite, secrets, guard, answer })
    }

    /// Seals frames to the host, from the first on.
    fn sealer(&self) -> Sealer {
        protection::ends(self.suite, &self.secrets, false).0
    }
}

/// A channel in the listener's table, from its Accept until its last request has left the disk. It
/// takes memory for slots and rings with its first valid frame only.
pub(super) struct Open<R> {
    /// The session that it belongs to.
    pub(super) session: Uuid,
    pub(super) config: ChannelConfig,
    pub(super) grant: Grant,
    pub(super) accept: Accept,
    /// The host of the session.
    host: Identity,
    /// The keys of a channel whose frames are sealed.
    pub(super) keys: Option<Box<Keys>>,
    /// The address that its host counts as.
    pub(super) origin: Mac,
    pub(super) accepted_at: Instant,
    /// The target's end of the channel, from its first frame on: a half-open channel takes no
    /// memory.
    pub(super) target: Option<TargetChannel<R>>,
    /// An event of the export before the first frame.
    pub(super) missed: Option<Event>,
    /// Its frames are dropped. The channel is removed when the disk has completed its last request.
    pub(super) closing: bool,
    /// Its host has said farewell, and knows the outcomes of its requests.
    pub(super) is_done: bool,
    /// When its export was removed, and its host told.
    removed_at: Option<Instant>,
    /// When the registry had it asked for a sign of life.
    pub(super) asked_at: Option<Instant>,
    /// It is stalled: the registry decides whether to give it up.
    pub(super) is_doubted: bool,
    /// When it was last found stalled.
    pub(super) doubted_at: Instant,
    /// Answers to fences, to be sent on this channel.
    pub(super) fenced: ArrayVec<Fenced, FENCES_MAX>,
}

impl<R: Rules> Open<R> {
    /// A half-open channel of `session`, which is that host's.
    pub(super) fn new(
        (now, session, host): (Instant, Uuid, Identity),
        config: ChannelConfig,
        grant: Grant,
        accept: Accept,
        keys: Option<Box<Keys>>,
    ) -> Self {
        Self {
            session,
            host,
            config,
            grant,
            accept,
            keys,
            origin: config.peer_mac,
            accepted_at: now,
            target: None,
            missed: None,
            closing: false,
            is_done: false,
            removed_at: None,
            asked_at: None,
            is_doubted: false,
            doubted_at: Instant(0),
            fenced: ArrayVec::new(),
        }
    }

    /// Our index of the channel.
    pub(super) fn id(&self) -> ChannelId {
        self.config.own.0
    }

    /// Takes a frame of this channel, whole or not at all. Memory is taken with the first valid
    /// one.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(super) fn handle_frame(
        &mut self,
        now: Instant,
        header: &Header,
        body: &Body<'_>,
        events: &mut VecDeque<ListenerEvent>,
    ) -> Result<&mut TargetChannel<R>, Reject> {
        let (channel, before) = (header.channel, events.len());
        let is_first = self.target.is_none();
        if is_first {
            let Grant { export, queue_size, damq_pages, .. } = self.grant;
            let ChannelConfig { stages, peer_mac, checksum, .. } = self.config;
            let generation = self.accept.generation;
            events.push_back(ListenerEvent::Opened(Box::new(OpenedChannel {
                channel,
                export,
                generation,
                damq_pages,
                queue_size,
                stages,
                host: self.host.host_id(),
                peer: peer_mac,
                may_place: !checksum && self.keys.is_none(),
            })));
        }
        let Grant { writer, queue_size, damq_pages, credit, .. } = self.grant;
        let target = self.target.get_or_insert_with(|| {
            let mut target = TargetChannel::new(self.config, (queue_size, damq_pages), writer, now);
            target.channel.assume_rtt(now.since(self.accepted_at));
            if let Some(keys) = &self.keys {
                target.channel.seal_with(keys.sealer());
            }
            if credit > CREDIT_MIN {
                target.tell_credit(credit);
            }
            target
        });
        let taken = target.handle_frame(now, header, body, |action| {
            events.push_back(ListenerEvent::Action { channel, action });
        });
        if is_first && taken.is_err() {
            events.truncate(before);
            self.target = None;
        }
        taken?;
        let target = self.target.as_mut().expect("the channel has taken a frame");
        if let Some(event) = self.missed.take() {
            target.notify(event);
        }
        self.closing |= self.removed_at.is_some() && target.has_told_end();
        Ok(target)
    }

    /// Composes the next frame; false if there is none to send now.
    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        let Some(target) = &mut self.target else { return false };
        if let Some(header) = target.farewell.take() {
            target.channel.address(out, header, Content::Empty);
            return true;
        }
        if self.closing {
            return false;
        }
        if let Some(fenced) = self.fenced.pop() {
            let header = target.channel.unsequenced(now, Kind::Fenced, Flags::NONE);
            target.channel.address(out, header, Content::Control(Control::Fenced(fenced)));
            return true;
        }
        target.poll_transmit(now, out)
    }

    /// Runs the timers that have expired.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if !self.closing {
            self.closing = match &mut self.target {
                Some(target) => target.channel.handle_timeout(now).is_err(),
                None => now >= self.half_open_until(),
            };
            self.closing |= self.ends_at().is_some_and(|at| now >= at);
        }
        self.doubt_stalled(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit).
    pub(super) fn timer(&self) -> Option<Instant> {
        match &self.target {
            _ if self.closing => None,
            Some(target) => {
                let timers = earliest(Some(target.channel.poll_timeout()), self.stalls_at());
                earliest(timers, self.ends_at())
            }
            None => Some(self.half_open_until()),
        }
    }

    /// Tells the host that the export is removed, and executes no request any more. The channel is
    /// closed when the host knows, or after a while.
    pub(super) fn end_with_export(&mut self, now: Instant) {
        match &mut self.target {
            Some(target) if self.removed_at.is_none() => {
                target.notify(Event::Removed);
                self.removed_at = Some(now);
            }
            Some(_) => {}
            None => self.closing = true,
        }
    }

    /// When it is closed at the latest, because its export is removed.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.removed_at.map(|at| at + TELL_REMOVED)
    }

    /// Whether it is closed, with no requests at the disk and no farewell to be sent.
    pub(super) fn is_over(&self) -> bool {
        let rests =
            |target: &TargetChannel<R>| target.executing() == 0 && target.farewell.is_none();
        self.closing && self.target.as_ref().is_none_or(rests)
    }

    /// Whether it has something for the registry.
    pub(super) fn needs_registry(&self) -> bool {
        self.is_over() || self.shows_life() || self.is_doubted || self.has_credit_news()
    }

    /// Whether it has news for the pool.
    fn has_credit_news(&self) -> bool {
        !self.closing && self.target.as_ref().is_some_and(TargetChannel::has_credit_news)
    }

    /// Takes the news for the pool.
    pub(super) fn take_credit_news(&mut self) -> Option<CreditNews> {
        let target = self.target.as_mut().filter(|_| !self.closing);
        target.and_then(TargetChannel::take_credit_news)
    }

    /// Whether no frame has come for it.
    pub(super) fn is_half_open(&self) -> bool {
        !self.closing && self.target.is_none()
    }

    /// When it is closed if it stays half-open.
    pub(super) fn half_open_until(&self) -> Instant {
        self.accepted_at + HALF_OPEN_LIFE
    }

    /// Whether it was asked for a sign of life and heard since.
    pub(super) fn shows_life(&self) -> bool {
        let heard_at = || self.heard_at();
        self.asked_at.is_some_and(|asked_at| heard_at().is_some_and(|heard_at| heard_at > asked_at))
    }

    /// When the last valid frame came.
    pub(super) fn heard_at(&self) -> Option<Instant> {
        self.target.as_ref().map(|target| target.channel.heard_at())
    }
}
