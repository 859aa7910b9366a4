//! The channel table of a listener: which channels there are, whose turn it is to send, and when
//! one is closed.
//!
//! A thousand idle channels cost a busy one nothing: a channel is looked at only when something has
//! happened to it, or its timer has expired.
//!
//! ```text
//!             a frame, a request, an event,
//!               or its timer has expired              nothing to send
//!  [ settled ] ----------------------------> [ stirred ] -----------> [ settled ]
//!    its timer is noted,                       its turns to send         ...
//!    and whether it needs the registry
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use tyche_wire::{ChannelId, Cookie, Event, Flags, Kind, Mac, Uuid};

use super::open::Open;
use crate::channel::outgoing::Outgoing;
use crate::channel::stats::ChannelStats;
use crate::rules::Rules;
use crate::target_end::export::ExportKey;
use crate::target_end::requests::TargetChannel;
use crate::time::{Instant, earliest};

/// Half-open channels of a link at once, and as many that are sealed. If there are more, the oldest
/// is closed: it has no memory, and its host connects again.
const HALF_OPEN_MAX: usize = 64;
/// Half-open channels of one address, of either kind. If there are more, its own oldest is closed.
const HALF_OPEN_PER_ADDRESS_MAX: usize = 32;

/// Channels whose notes are checked in builds with debug assertions.
const CHECKED_MAX: usize = 128;

/// State of a channel, for statistics.
#[derive(Clone, Copy, Debug)]
pub struct ChannelReport {
    /// The channel.
    pub channel: ChannelId,
    /// Its export.
    pub export: ExportKey,
    /// The host's address.
    pub host: Mac,
    /// Longest frame in bytes.
    pub frame_len: u32,
    /// Pages that its host may use for data; `None` while it is told another number.
    pub credit: Option<u32>,
    /// Requests at the disk.
    pub executing: usize,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// Counters.
    pub stats: ChannelStats,
}

/// The channel table of one link: half-open, open and closing channels by their index. It bounds
/// the half-open ones, and divides receive window and sending turns among the rest.
pub(super) struct Channels<R> {
    /// By index; a removed channel leaves a gap that is used again.
    slots: Vec<Option<Open<R>>>,
    /// By index.
    notes: Vec<Note>,
    /// No timer that is noted is earlier. It is looked for anew only when that time has come, so
    /// that a channel whose timer moves on with each request costs nothing.
    earliest: Instant,
    /// Settled channels that need the registry.
    needing: usize,
    /// The indices of stirred channels, in the order of their turns to send.
    stirred: VecDeque<usize>,
    /// Counters of channels that were removed.
    past: ChannelStats,
}

/// The timer and the needs of a channel, known without looking at it.
#[derive(Clone, Copy)]
struct Note {
    /// When it is to be looked at; of a stirred channel as it was before.
    timer: Instant,
    is_stirred: bool,
    /// Whether it is settled, and needs the registry.
    needs_registry: bool,
}

/// The timer of a channel that has none.
const NEVER: Instant = Instant(u64::MAX);

impl<R: Rules> Channels<R> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            notes: Vec::new(),
            earliest: NEVER,
            needing: 0,
            stirred: VecDeque::new(),
            past: ChannelStats::default(),
        }
    }

    /// A channel, closing ones included.
    #[inline]
    pub(super) fn get_mut(&mut self, channel: ChannelId) -> Option<&mut Open<R>> {
        let index = usize::from(channel.0);
        if !self.notes.get(index)?.is_stirred {
            self.stir(index);
        }
        self.slots.get_mut(index)?.as_mut()
    }

    /// Has a channel be looked at.
    fn stir(&mut self, index: usize) {
        let note = &mut self.notes[index];
        if !note.is_stirred {
            self.needing -= usize::from(note.needs_registry);
            (note.is_stirred, note.needs_registry) = (true, false);
            self.stirred.push_back(index);
        }
    }

    /// Notes what is to be known of a stirred channel that has nothing to send. It is the next.
    fn settle(&mut self) {
        let Some(index) = self.stirred.pop_front() else { return };
        let open = self.slots[index].as_ref();
        let timer = open.and_then(Open::timer).unwrap_or(NEVER);
        let needs_registry = open.is_some_and(Open::needs_registry);
        let note = Note { timer, is_stirred: false, needs_registry };
        self.needing += usize::from(needs_registry);
        self.notes[index] = note;
        self.earliest = self.earliest.min(timer);
    }

    /// The stirred channels.
    fn stirred(&self) -> impl Iterator<Item = &Open<R>> {
        self.stirred.iter().filter_map(|&index| self.slots[index].as_ref())
    }

    /// Whether a channel needs the registry.
    pub(super) fn need_registry(&self) -> bool {
        self.needing > 0 || self.stirred().any(Open::needs_registry)
    }

    /// All channels that may need the registry.
    pub(super) fn needing_mut(&mut self) -> impl Iterator<Item = &mut Open<R>> {
        for index in 0..self.notes.len() {
            if self.needing > 0 && self.notes[index].needs_registry {
                self.stir(index);
            }
        }
        let slots = self.slots.iter_mut().zip(&self.notes);
        slots.filter(|(_, note)| note.is_stirred).filter_map(|(slot, _)| slot.as_mut())
    }

    /// All channels, closing ones included.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Open<R>> {
        self.slots.iter().flatten()
    }

    /// All channels, closing ones included.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Open<R>> {
        (0..self.slots.len()).for_each(|index| self.stir(index));
        self.slots.iter_mut().flatten()
    }

    /// The channels that are not closing.
    pub(super) fn open(&self) -> impl Iterator<Item = &Open<R>> {
        self.iter().filter(|open| !open.closing)
    }

    /// Whether a channel is there, and is not closing.
    pub(super) fn is_open(&self, channel: ChannelId) -> bool {
        let open = self.slots.get(usize::from(channel.0)).and_then(Option::as_ref);
        open.is_some_and(|open| !open.closing)
    }

    /// The index of the next channel.
    pub(super) fn vacancy(&self) -> ChannelId {
        let gap = self.slots.iter().position(Option::is_none);
        ChannelId(gap.unwrap_or(self.slots.len()) as u16)
    }

    /// Adds a half-open channel of a host at an address. If that has too many, its oldest is
    /// closed; if the link has, the oldest of all. Hosts with and without keys do not displace
    /// each other.
    pub(super) fn add(&mut self, origin: Mac, mut open: Open<R>) {
        open.origin = origin;
        let alike =
            |other: &&Open<R>| other.is_half_open() && other.keys.is_some() == open.keys.is_some();
        let half_open = || self.iter().filter(alike);
        let of_address = || half_open().filter(|other| other.origin == origin);
        let oldest = |all: &mut dyn Iterator<Item = &Open<R>>| {
            all.min_by_key(|open| open.accepted_at).map(Open::id)
        };
        let displaced = if of_address().count() >= HALF_OPEN_PER_ADDRESS_MAX {
            oldest(&mut of_address())
        } else if half_open().count() >= HALF_OPEN_MAX {
            oldest(&mut half_open())
        } else {
            None
        };
        if let Some(displaced) = displaced {
            self.close(displaced);
        }
        let index = usize::from(open.id().0);
        if index == self.slots.len() {
            self.slots.push(None);
            self.notes.push(Note { timer: NEVER, is_stirred: false, needs_registry: false });
        }
        self.slots[index] = Some(open);
        self.stir(index);
    }

    /// Removes the closed channels that have no requests at the disk any more, and passes them on.
    pub(super) fn reap(&mut self, mut removed: impl FnMut(Open<R>)) {
        let over: Vec<_> = self.needing_mut().filter(|it| it.is_over()).map(|it| it.id()).collect();
        let mut sessions = Vec::new();
        for channel in &over {
            let open = self.slots[usize::from(channel.0)].take().expect("it is over");
            if let Some(target) = &open.target {
                self.past += target.channel.stats;
                sessions.push(open.session);
            }
            removed(open);
        }
        if !sessions.is_empty() {
            sessions.sort_unstable();
            sessions.dedup();
            self.share(&sessions);
        }
    }

    /// Divides the receive window among the channels of the link, and the paths to the hosts of
    /// these sessions, of which channels have come or gone, among those of each. `sessions` are
    /// sorted.
    pub(super) fn share(&mut self, sessions: &[Uuid]) {
        let (mut all, mut shares) = (0, vec![0; sessions.len()]);
        for open in self.iter().filter(|open| !open.closing && open.target.is_some()) {
            all += 1;
            if let Ok(at) = sessions.binary_search(&open.session) {
                shares[at] += 1;
            }
        }
        for index in 0..self.slots.len() {
            let Some(open) = &mut self.slots[index] else { continue };
            let Some(target) = &mut open.target else { continue };
            // A window is said with the next frame, whenever that is.
            target.channel.share_receiver(all);
            if let Ok(at) = sessions.binary_search(&open.session) {
                target.channel.share_path(shares[at]);
                self.stir(index);
            }
        }
    }

    /// Closes a channel: its frames are dropped from now on. It is [removed](Self::reap) when the
    /// disk has completed its last request.
    pub(super) fn close(&mut self, channel: ChannelId) {
        if let Some(open) = self.get_mut(channel) {
            open.closing = true;
        }
    }

    /// Closes all channels that `ends` names, and has each send a farewell.
    pub(super) fn end(&mut self, now: Instant, ends: impl Fn(&Open<R>) -> bool) {
        let ended = self.iter().filter(|open| !open.closing && ends(open));
        for channel in ended.map(Open::id).collect::<Vec<_>>() {
            let Some(open) = self.get_mut(channel) else { continue };
            open.closing = true;
            if let Some(target) = &mut open.target {
                let farewell = target.channel.unsequenced(now, Kind::Disconnect, Flags::NONE);
                target.farewell = Some(farewell);
            }
        }
    }

    /// Closes all channels whose frames are sealed, and has none send a farewell.
    pub(super) fn close_sealed(&mut self) {
        for open in self.iter_mut().filter(|open| open.keys.is_some()) {
            open.closing = true;
            if let Some(target) = &mut open.target {
                target.farewell = None;
            }
        }
    }

    /// The channel of a request that is at the disk.
    #[inline]
    pub(super) fn busy(&mut self, channel: ChannelId) -> &mut TargetChannel<R> {
        let target = self.get_mut(channel).and_then(|open| open.target.as_mut());
        target.expect("a channel outlives its requests")
    }

    /// Sends an event to all hosts of an export.
    pub(super) fn notify(&mut self, export: ExportKey, event: Event) {
        let of_export = self.iter().filter(|open| open.grant.export == export);
        for channel in of_export.map(Open::id).collect::<Vec<_>>() {
            let Some(open) = self.get_mut(channel) else { continue };
            match &mut open.target {
                Some(target) => target.notify(event),
                None => open.missed = Some(event),
            }
        }
    }

    /// Composes the next frame; false if there is none to send now.
    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        while let Some(&index) = self.stirred.front() {
            let open = self.slots[index].as_mut();
            if open.is_some_and(|open| open.poll_transmit(now, out)) {
                self.stirred.rotate_left(1);
                return true;
            }
            self.settle();
        }
        false
    }

    /// Runs the timers that have expired.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.earliest <= now {
            self.earliest = NEVER;
            for index in 0..self.notes.len() {
                let Note { timer, is_stirred, .. } = self.notes[index];
                if timer <= now {
                    self.stir(index);
                } else if !is_stirred {
                    self.earliest = self.earliest.min(timer);
                }
            }
        }
        for &index in &self.stirred {
            if let Some(open) = &mut self.slots[index] {
                open.handle_timeout(now);
            }
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit).
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        debug_assert!(self.notes_are_true());
        let noted = Some(self.earliest).filter(|at| *at != NEVER);
        self.stirred().map(Open::timer).fold(noted, earliest)
    }

    /// Whether the notes say of all settled channels what a look at them would. It is not known of
    /// many: that would take too long.
    fn notes_are_true(&self) -> bool {
        if self.slots.len() > CHECKED_MAX {
            return true;
        }
        let settled = || self.iter().filter(|it| !self.notes[usize::from(it.id().0)].is_stirred);
        let timer = settled().map(Open::timer).fold(None, earliest).unwrap_or(NEVER);
        let needing = settled().filter(|it| it.needs_registry()).count();
        self.earliest <= timer && self.needing == needing
    }

    /// Counters of all channels, including removed ones.
    pub(super) fn stats(&self) -> ChannelStats {
        let mut stats = self.past;
        for target in self.iter().filter_map(|open| open.target.as_ref()) {
            stats += target.channel.stats;
        }
        stats
    }

    /// The cookie of an open channel's frames to its host.
    pub(super) fn peer_cookie(&self, channel: ChannelId) -> Option<Cookie> {
        let open = self.slots.get(usize::from(channel.0))?.as_ref()?;
        (!open.closing).then_some(open.config.peer.1)
    }

    /// The channels that a frame has come for and that are not closing.
    pub(super) fn reports(&self) -> impl Iterator<Item = ChannelReport> {
        self.open().filter_map(|open| {
            let target = open.target.as_ref()?;
            Some(ChannelReport {
                channel: open.id(),
                export: open.grant.export,
                host: target.channel.peer(),
                frame_len: open.accept.frame_len,
                credit: target.settled_credit(),
                executing: target.executing(),
                rtt: target.channel.measured_rtt(),
                congestion_window: target.channel.congestion_window(),
                stats: target.channel.stats,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use slotmap::KeyData;
    use tyche_wire::{Accept, Body, Cookie, Geometry, Header, PacketNumber, Uuid};

    use super::*;
    use crate::channel::ChannelConfig;
    use crate::channel::tests::config;
    use crate::rules::AllRules;
    use crate::target_end::access::Identity;
    use crate::target_end::admission::Grant;

    const NOW: Instant = Instant(1_000_000_000);
    const HOST: Identity = Identity::Claimed(Uuid::nil());

    fn export_key(number: u64) -> ExportKey {
        KeyData::from_ffi(number).into()
    }

    /// Adds a half-open channel of another address.
    fn add(channels: &mut Channels<AllRules>, now: Instant) -> ChannelId {
        let index = channels.vacancy().0 as u8;
        add_from(channels, Mac([2, 0, 0, 0, 1, index]), now)
    }

    /// Adds a half-open channel.
    fn add_from(channels: &mut Channels<AllRules>, origin: Mac, now: Instant) -> ChannelId {
        let channel = channels.vacancy();
        let config = ChannelConfig { own: (channel, Cookie(1)), ..config() };
        let accept = Accept {
            attempt: 1,
            target: Uuid::nil(),
            generation: Uuid::nil(),
            export: Uuid::nil(),
            geometry: Geometry::new(1 << 20, 512),
            cookie: Cookie(1),
            channel,
            queue_size: 8,
            rings: [256; 2],
            frame_len: 1514,
            damq_pages: 256,
            checksum: false,
            stages: false,
            block_status: false,
            keep_alive_ms: 60_000,
        };
        let grant = Grant {
            export: export_key(1),
            writer: true,
            queue_size: 8,
            damq_pages: 256,
            credit: 32,
        };
        channels.add(origin, Open::new((now, Uuid::nil(), HOST), config, grant, accept, None));
        channel
    }

    /// Adds a channel whose first frame has come.
    fn add_heard(channels: &mut Channels<AllRules>) -> ChannelId {
        let channel = add(channels, NOW);
        hear(channels, channel);
        channel
    }

    fn hear(channels: &mut Channels<AllRules>, channel: ChannelId) {
        let keepalive = Header { channel, window: 256, ..Header::new(Kind::Keepalive) };
        let header = Header { packet: PacketNumber(1), ..keepalive };
        let open = channels.get_mut(channel).expect("it is there");
        let taken = open.handle_frame(NOW, &header, &Body::Empty, &mut VecDeque::new());
        assert!(taken.is_ok());
    }

    fn is_open(channels: &Channels<AllRules>, channel: ChannelId) -> bool {
        channels.open().any(|open| open.id() == channel)
    }

    /// Removes what can be removed.
    fn reap(channels: &mut Channels<AllRules>) -> Vec<ChannelId> {
        let mut removed = Vec::new();
        channels.reap(|open| removed.push(open.id()));
        removed
    }

    /// Channel and kind of the next frame.
    fn sent(channels: &mut Channels<AllRules>) -> Option<(Option<ChannelId>, Kind)> {
        let mut out = Outgoing::new();
        let is_sent = channels.poll_transmit(NOW, &mut out);
        is_sent.then_some((out.channel, out.header.kind))
    }

    #[test]
    fn the_index_of_a_removed_channel_is_used_again() {
        let mut channels = Channels::new();
        let all = [(); 3].map(|()| add_heard(&mut channels));
        assert_eq!(all, [0, 1, 2].map(ChannelId));
        channels.close(all[1]);
        assert_eq!(channels.vacancy(), ChannelId(3), "it is closed, but still there");
        assert_eq!(reap(&mut channels), [all[1]]);
        assert!(channels.get_mut(all[1]).is_none());
        assert_eq!(add(&mut channels, NOW), all[1]);
        assert_eq!(add(&mut channels, NOW), ChannelId(3));
    }

    #[test]
    fn too_many_half_open_channels_cost_the_oldest() {
        let mut channels = Channels::new();
        let later = |n| NOW + Duration::from_millis(1) * n;
        let all: Vec<_> = (0..HALF_OPEN_MAX as u32).map(|n| add(&mut channels, later(n))).collect();
        hear(&mut channels, all[0]);
        let next = add(&mut channels, later(100));
        assert!(all.iter().all(|&channel| is_open(&channels, channel)), "one is not half-open");
        add(&mut channels, later(101));
        assert!(is_open(&channels, all[0]), "it was heard");
        assert!(!is_open(&channels, all[1]), "it is the oldest");
        assert!(is_open(&channels, all[2]) && is_open(&channels, next));
    }

    #[test]
    fn an_address_displaces_its_own_half_open_channels_first() {
        let (mut channels, flooder) = (Channels::new(), Mac([2, 0, 0, 0, 0, 9]));
        let host = add(&mut channels, NOW);
        let later = |n| NOW + Duration::from_millis(1) * n;
        let all: Vec<_> = (1..=3 * HALF_OPEN_MAX as u32)
            .map(|n| add_from(&mut channels, flooder, later(n)))
            .collect();
        assert!(is_open(&channels, host), "it is the oldest, of another address");
        let left = all.iter().filter(|&&channel| is_open(&channels, channel)).count();
        assert_eq!(left, HALF_OPEN_PER_ADDRESS_MAX);
    }

    #[test]
    fn a_half_open_channel_is_closed_after_a_while() {
        let mut channels = Channels::new();
        let channel = add(&mut channels, NOW);
        let until = NOW + Duration::from_secs(2);
        assert_eq!(channels.poll_timeout(), Some(until));
        channels.handle_timeout(Instant(until.0 - 1));
        assert!(is_open(&channels, channel));
        channels.handle_timeout(until);
        assert!(!is_open(&channels, channel));
        assert_eq!(channels.poll_timeout(), None);
    }

    #[test]
    fn channels_take_turns_to_send() {
        let mut channels = Channels::new();
        let all = [(); 3].map(|()| add_heard(&mut channels));
        let mut order = Vec::new();
        for _ in 0..5 {
            channels.notify(export_key(1), Event::Removed);
            order.extend(sent(&mut channels).and_then(|(channel, _)| channel));
        }
        assert_eq!(order, [all[0], all[1], all[2], all[0], all[1]]);
    }

    #[test]
    fn an_event_goes_to_the_hosts_of_its_export_also_to_those_not_heard_yet() {
        let mut channels = Channels::new();
        let (first, second) = (add_heard(&mut channels), add(&mut channels, NOW));
        channels.notify(export_key(2), Event::Removed);
        assert_eq!(sent(&mut channels), None, "another export's");
        channels.notify(export_key(1), Event::Removed);
        assert_eq!(sent(&mut channels), Some((Some(first), Kind::Command)));
        assert_eq!(sent(&mut channels), None);
        hear(&mut channels, second);
        assert_eq!(sent(&mut channels), Some((Some(second), Kind::Command)));
    }

    #[test]
    fn a_channel_stays_until_its_farewell_is_sent_and_its_counters_stay_after_that() {
        let mut channels = Channels::new();
        let channel = add_heard(&mut channels);
        channels.busy(channel).channel.stats.duplicates = 3;
        channels.end(NOW, |_| true);
        assert_eq!(reap(&mut channels), []);
        assert_eq!(sent(&mut channels), Some((Some(channel), Kind::Disconnect)));
        assert_eq!(sent(&mut channels), None, "once");
        assert_eq!(reap(&mut channels), [channel]);
        assert_eq!(channels.stats().duplicates, 3);
    }

    #[test]
    fn only_the_channels_that_are_named_end() {
        let mut channels = Channels::new();
        let [stays, ends] = [(); 2].map(|()| add_heard(&mut channels));
        channels.end(NOW, |open| open.id() == ends);
        assert_eq!(sent(&mut channels), Some((Some(ends), Kind::Disconnect)));
        assert_eq!(sent(&mut channels), None);
        assert_eq!(reap(&mut channels), [ends]);
        assert!(is_open(&channels, stays));
    }
}
