//! The pool: the pages that the channels of a target use for data, all together.
//!
//! Each channel may always use [`CREDIT_MIN`] pages of its `damq`: enough for requests of any
//! length, a piece at a time. It gets more as it uses them, as long as the pool has some. If it has
//! none, the host with the most pages gives up half of what it has more than the one that waits. So
//! hosts that want all get equal parts, whatever the number of their channels, and an idle channel
//! keeps the least. PROTOCOL.md, "Credits".
//!
//! ```text
//!  held   pages taken from the pool for a channel
//!  aim    pages that its host was told to use; less than `held` until it has answered
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_wire::CREDIT_MIN;

use crate::target_end::access::Identity;
use crate::target_end::export::ChannelRef;
use crate::time::Instant;

/// Pages that are counted for the slots, rings and frames of a channel: 256 KiB.
const UPKEEP: u64 = 64;

/// How long pages are expected from a host that was told to give them up. Then others are told, and
/// are not kept waiting for one that is gone. Longer than a request and its frames mostly take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pages of a channel that has the least.
pub const CHANNEL_PAGES: u64 = CREDIT_MIN as u64 + UPKEEP;

/// The pages of a channel.
struct Share {
    host: Identity,
    held: u32,
    aim: u32,
    /// When it was last told to give up pages.
    lowered_at: Instant,
    /// Whether it keeps its pages until it is closed.
    is_fixed: bool,
}

/// The pool of a target.
pub(crate) struct Pool {
    /// Pages that no channel holds.
    free: u64,
    /// The time of the last call that has one.
    now: Instant,
    shares: BTreeMap<ChannelRef, Share>,
    /// The pages that each host has beyond the least of its channels: those with none are not
    /// there.
    hosts: BTreeMap<Identity, u64>,
    /// Channels that wait for pages, and how many each wants to have.
    waiting: BTreeMap<ChannelRef, u32>,
    /// Channels that were told to give up pages, and have not yet.
    owing: BTreeSet<ChannelRef>,
    /// Pages that are kept for a new channel, and until when.
    reserved: Option<(u64, Instant)>,
    /// Channels of hosts without a key.
    strangers: u64,
    /// Channels whose hosts have to be told another number.
    told: BTreeMap<ChannelRef, u32>,
}

/// The result of a request for a new channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room.
    Free,
    /// Others have been told to give up pages.
    Soon,
    /// All channels have the least.
    None,
}

impl Pool {
    pub(crate) fn new(pages: u64) -> Self {
        Self {
            free: pages,
            now: Instant(0),
            shares: BTreeMap::new(),
            hosts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            owing: BTreeSet::new(),
            reserved: None,
            strangers: 0,
            told: BTreeMap::new(),
        }
    }

    /// Whether there is room for a new channel, of at least so many pages. If not, others are told
    /// to give up some, which are kept for it for a while.
    pub(crate) fn room(&mut self, now: Instant, pages: u32) -> Room {
        self.now = now;
        let needed = u64::from(pages) + UPKEEP;
        if self.free >= needed {
            return Room::Free;
        }
        let owed = self.owed();
        let lacking = needed.saturating_sub(self.free + owed);
        let largest = self.changeable().max_by_key(|(_, share)| share.aim);
        let largest = largest.filter(|(_, share)| share.aim > CREDIT_MIN);
        if let Some((&channel, share)) = largest
            && lacking > 0
        {
            let less = lacking.next_multiple_of(CREDIT_MIN.into()) as u32;
            self.lower(channel, share.aim.saturating_sub(less));
        } else if owed == 0 {
            return Room::None;
        }
        self.reserved = Some((needed, now + PATIENCE));
        Room::Soon
    }

    /// Pages that may be given to channels that wait.
    fn available(&self) -> u64 {
        let reserved = self.reserved.filter(|(_, until)| self.now < *until);
        self.free.saturating_sub(reserved.map_or(0, |(pages, _)| pages))
    }

    /// The most pages that a new channel can have which keeps them until it is closed.
    pub(crate) fn room_for_good(&self) -> u64 {
        // Half of it: others come.
        self.free.saturating_sub(UPKEEP) / 2
    }

    /// Takes a new channel, for which there is [room](Self::room). If it has more than the least,
    /// it keeps them until it is closed.
    pub(crate) fn open(&mut self, channel: ChannelRef, host: Identity, pages: u32) {
        self.free = self.free.saturating_sub(u64::from(pages) + UPKEEP);
        self.reserved = None;
        self.strangers += u64::from(matches!(host, Identity::Claimed(_)));
        let is_fixed = pages > CREDIT_MIN;
        let lowered_at = Instant(0);
        let share = Share { host, held: pages, aim: pages, lowered_at, is_fixed };
        assert!(self.shares.insert(channel, share).is_none(), "a channel is opened once");
    }

    /// A channel is closed, and with it its pages.
    pub(crate) fn close(&mut self, channel: ChannelRef) {
        let Some(share) = self.shares.remove(&channel) else { return };
        self.told.remove(&channel);
        self.waiting.remove(&channel);
        self.owing.remove(&channel);
        self.strangers -= u64::from(matches!(share.host, Identity::Claimed(_)));
        self.free += u64::from(share.held) + UPKEEP;
        if !share.is_fixed {
            self.count(share.host, share.aim, CREDIT_MIN);
        }
        self.divide_again();
    }

    /// A channel that has no change before it wants to have so many pages.
    pub(crate) fn ask(&mut self, now: Instant, channel: ChannelRef, wanted: u32) {
        self.now = now;
        let Some(share) = self.shares.get(&channel) else { return };
        // It is to give up pages: it may ask when it has.
        if share.aim < share.held || wanted <= share.held {
            return;
        }
        self.waiting.insert(channel, wanted);
        if let Some((host, channel)) = self.divide()
            && self.owed() < self.lacking()
        {
            self.recall(host, channel);
        }
    }

    /// The host of a channel uses no more than so many pages.
    pub(crate) fn settled(&mut self, now: Instant, channel: ChannelRef, pages: u32) {
        self.now = now;
        let Some(share) = self.shares.get_mut(&channel) else { return };
        let left = share.held.min(pages.max(share.aim));
        self.free += u64::from(share.held - left);
        share.held = left;
        if share.aim == left {
            self.owing.remove(&channel);
        }
        self.divide_again();
    }

    /// A channel is idle: it keeps the least.
    pub(crate) fn rest(&mut self, now: Instant, channel: ChannelRef) {
        self.now = now;
        if self.shares.get(&channel).is_some_and(|share| !share.is_fixed) {
            self.waiting.remove(&channel);
            self.lower(channel, CREDIT_MIN);
        }
    }

    /// The host of a channel.
    pub(crate) fn host(&self, channel: ChannelRef) -> Option<Identity> {
        self.shares.get(&channel).map(|share| share.host)
    }

    /// The pages that channels of hosts without a key have, if each has the least.
    pub(crate) fn of_strangers(&self) -> u64 {
        self.strangers * CHANNEL_PAGES
    }

    /// The next channel of a link whose host is to be told a number of pages.
    pub(crate) fn poll_told(&mut self, link: usize) -> Option<(ChannelRef, u32)> {
        let of_link = |channel| ChannelRef { link, channel };
        let first = of_link(tyche_wire::ChannelId(0));
        let last = of_link(tyche_wire::ChannelId::NONE);
        let channel = *self.told.range(first..=last).next()?.0;
        self.told.remove_entry(&channel)
    }

    /// The links of the channels whose hosts are to be told a number of pages.
    pub(crate) fn called_links(&self) -> impl Iterator<Item = usize> {
        let mut last = None;
        let links = self.told.keys().map(|channel| channel.link);
        links.filter(move |link| last.replace(*link) != Some(*link))
    }

    /// Notes that the aim of a channel of a host has changed.
    fn count(&mut self, host: Identity, before: u32, after: u32) {
        let sum = self.hosts.entry(host).or_default();
        *sum = *sum + u64::from(after) - u64::from(before);
        if *sum == 0 {
            self.hosts.remove(&host);
        }
    }

    /// Pages that hosts were told to give up lately, and have not yet.
    fn owed(&self) -> u64 {
        let shares = self.owing.iter().map(|channel| &self.shares[channel]);
        let shares = shares.filter(|share| self.now.since(share.lowered_at) < PATIENCE);
        shares.map(|share| u64::from(share.held - share.aim)).sum()
    }

    /// The channels that may be told to give up pages.
    fn changeable(&self) -> impl Iterator<Item = (&ChannelRef, &Share)> {
        self.shares.iter().filter(|(_, share)| !share.is_fixed)
    }

    /// The pages that a host has beyond the least of its channels.
    fn beyond(&self, host: Identity) -> u64 {
        self.hosts.get(&host).copied().unwrap_or(0)
    }

    /// Has a channel give up pages until it has `aim`, or the least.
    fn lower(&mut self, channel: ChannelRef, aim: u32) {
        let share = self.shares.get_mut(&channel).expect("it was found there");
        let (host, before, aim) = (share.host, share.aim, aim.max(CREDIT_MIN));
        if aim < before {
            (share.aim, share.lowered_at) = (aim, self.now);
            self.waiting.remove(&channel);
            self.owing.insert(channel);
            self.told.insert(channel, aim);
            self.count(host, before, aim);
        }
    }

    /// [Divides](Self::divide) pages that have come back. If some are still on their way, those
    /// that wait on have asked for them; if none are, another has to give up some.
    fn divide_again(&mut self) {
        if let Some((host, channel)) = self.divide()
            && self.owed() == 0
        {
            self.recall(host, channel);
        }
    }

    /// Gives free pages to channels that wait, those of the host with the fewest first. Returns the
    /// one that has to wait on.
    fn divide(&mut self) -> Option<(Identity, ChannelRef)> {
        if self.available() < u64::from(CREDIT_MIN) {
            return self.order().min().map(|(_, _, host, channel)| (host, channel));
        }
        let mut order: Vec<_> = self.order().collect();
        order.sort_unstable();
        let mut count = order.len() as u64;
        for (_, before, host, channel) in order {
            let available = self.available();
            let part = (available / count).max(CREDIT_MIN.into());
            let given = u64::from(self.waiting[&channel] - before).min(part);
            if given > available {
                return Some((host, channel));
            }
            self.free -= given;
            let after = before + given as u32;
            let share = self.shares.get_mut(&channel).expect("those that wait have a share");
            (share.held, share.aim) = (after, after);
            self.waiting.remove(&channel);
            self.told.insert(channel, after);
            self.count(host, before, after);
            count -= 1;
        }
        None
    }

    /// The channels that wait, each with what decides on its turn: the pages of its host, and its
    /// own.
    fn order(&self) -> impl Iterator<Item = (u64, u32, Identity, ChannelRef)> {
        self.waiting.keys().map(|channel| {
            let Share { host, held, .. } = self.shares[channel];
            (self.beyond(host), held, host, *channel)
        })
    }

    /// Pages that channels wait for.
    fn lacking(&self) -> u64 {
        let waiting = self.waiting.iter();
        waiting.map(|(channel, wanted)| u64::from(wanted - self.shares[channel].held)).sum()
    }

    /// Has the host with the most pages give up half of what it has more than `host`; or if that
    /// has the most itself, another of its channels half of what that has more than `channel`.
    fn recall(&mut self, host: Identity, channel: ChannelRef) {
        let Some((&richest, &most)) = self.hosts.iter().max_by_key(|(_, pages)| **pages) else {
            return;
        };
        let own = self.beyond(host);
        let channels = self.changeable().filter(|(_, share)| share.host == richest);
        let Some((&largest, share)) = channels.max_by_key(|(_, share)| share.aim) else { return };
        let (all, more) = if richest == host {
            let held = self.shares[&channel].held;
            (share.aim.into(), share.aim.saturating_sub(held).into())
        } else {
            (most, most - own)
        };
        // Small differences are left alone, or pages would go to and fro.
        if more >= u64::from(2 * CREDIT_MIN).max(all / 8) {
            let less = (more / 2).next_multiple_of(CREDIT_MIN.into());
            let aim = u64::from(share.aim).saturating_sub(less) as u32;
            self.lower(largest, aim);
        }
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::{ChannelId, Uuid};

    use super::*;

    const NOW: Instant = Instant(60_000_000_000);

    /// A pool with channels of hosts, which want pages and give them up when they are told.
    struct Channels {
        pool: Pool,
        /// By channel: its host, and the pages that it has.
        held: BTreeMap<ChannelRef, (u128, u32)>,
    }

    impl Channels {
        /// A pool that has so many pages beside the least of so many channels.
        fn new(channels: u64, beyond: u64) -> Self {
            let pool = Pool::new(channels * CHANNEL_PAGES + beyond);
            Self { pool, held: BTreeMap::new() }
        }

        fn add(&mut self, host: u128) -> ChannelRef {
            let channel = ChannelRef { link: 0, channel: ChannelId(self.held.len() as u16) };
            while self.pool.room(NOW, CREDIT_MIN) != Room::Free {
                assert!(self.settle(), "nobody gives up pages");
            }
            self.pool.open(channel, Identity::Claimed(Uuid::from_u128(host)), CREDIT_MIN);
            self.held.insert(channel, (host, CREDIT_MIN));
            channel
        }

        /// Has hosts told, and answer. Returns whether there was one.
        fn settle(&mut self) -> bool {
            let told: Vec<_> = std::iter::from_fn(|| self.pool.poll_told(0)).collect();
            for (channel, pages) in &told {
                self.held.get_mut(channel).expect("it is open").1 = *pages;
                self.pool.settled(NOW, *channel, *pages);
            }
            !told.is_empty()
        }

        /// Has all channels want as many pages as they may, until nothing changes.
        fn press(&mut self, most: u32) {
            for round in 0.. {
                assert!(round < 1000, "pages go to and fro: {:?}", self.held.values());
                let all: Vec<_> = self.held.iter().map(|(id, (_, pages))| (*id, *pages)).collect();
                for (channel, pages) in all {
                    if pages < most {
                        self.pool.ask(NOW, channel, (pages * 4).min(most));
                    }
                }
                if !self.settle() {
                    break;
                }
            }
            let held: u64 = self.held.values().map(|(_, pages)| u64::from(*pages)).sum();
            let all = held + self.held.len() as u64 * UPKEEP + self.pool.free;
            assert_eq!((self.pool.owed(), all), (0, self.pool.total()), "no page is lost");
        }

        /// The pages of a host beyond the least of its channels.
        fn of(&self, host: u128) -> u32 {
            let own = self.held.values().filter(|(other, _)| *other == host);
            own.map(|(_, pages)| pages - CREDIT_MIN).sum()
        }
    }

    impl Pool {
        fn total(&self) -> u64 {
            let held = self.shares.values().map(|share| u64::from(share.held) + UPKEEP);
            self.free + held.sum::<u64>()
        }
    }

    #[test]
    fn one_host_gets_all_that_there_is() {
        let mut channels = Channels::new(1, 4096);
        channels.add(1);
        channels.press(8192);
        assert_eq!((channels.of(1), channels.pool.free), (4096, 0));
    }

    #[test]
    fn hosts_that_want_all_get_equal_parts_whoever_came_first() {
        let mut channels = Channels::new(13, 10_000);
        channels.add(1);
        channels.press(8192);
        // The second host has ten channels, the third two.
        for _ in 0..10 {
            channels.add(2);
        }
        channels.press(8192);
        for _ in 0..2 {
            channels.add(3);
        }
        channels.press(8192);
        let parts = [1, 2, 3].map(|host| channels.of(host));
        let fair = parts.iter().sum::<u32>() / 3;
        assert!(fair > 3000, "most of it is used: {parts:?}");
        assert!(parts.iter().all(|part| part.abs_diff(fair) <= fair / 5), "{parts:?}");
    }

    #[test]
    fn channels_of_one_host_divide_what_it_has() {
        let mut channels = Channels::new(2, 4096);
        let first = channels.add(1);
        channels.press(8192);
        channels.add(1);
        channels.press(8192);
        let (_, pages) = channels.held[&first];
        assert!((1600..=2500).contains(&pages), "{pages}");
    }

    #[test]
    fn a_new_channel_gets_the_least_from_those_that_have_more() {
        let mut channels = Channels::new(2, 0);
        channels.add(1);
        channels.press(8192);
        assert_eq!(channels.pool.room(NOW, CREDIT_MIN), Room::Soon);
        channels.settle();
        channels.add(2);
        assert_eq!(channels.pool.room(NOW, CREDIT_MIN), Room::None, "all have the least");
    }

    /// Those that wait would take what others give up for it.
    #[test]
    fn pages_that_are_given_up_for_a_new_channel_are_kept_for_it() {
        let mut channels = Channels::new(3, 0);
        let (first, second) = (channels.add(1), channels.add(2));
        channels.press(8192);
        channels.pool.ask(NOW, second, 8192);
        assert_eq!(channels.pool.room(NOW, CREDIT_MIN), Room::Soon);
        for _ in 0..8 {
            channels.settle();
            for channel in [first, second] {
                channels.pool.ask(NOW, channel, 8192);
            }
            if channels.pool.room(NOW, CREDIT_MIN) == Room::Free {
                return;
            }
        }
        panic!("the new channel starves");
    }

    #[test]
    fn a_host_that_gives_up_nothing_does_not_keep_a_new_channel_waiting() {
        let mut channels = Channels::new(2, 400);
        let (hung, other) = (channels.add(1), channels.add(2));
        channels.press(8192);
        let mut ask = |now| {
            let room = channels.pool.room(now, CREDIT_MIN);
            (room, channels.pool.poll_told(0).map(|(channel, _)| channel))
        };
        let (room, first) = ask(NOW);
        assert_eq!((room, ask(NOW)), (Room::Soon, (Room::Soon, None)), "one is enough");
        let (_, second) = ask(NOW + PATIENCE);
        let both = [first, second].map(|it| it.expect("one is told"));
        assert!(both == [hung, other] || both == [other, hung], "the other one is told");
    }

    #[test]
    fn an_idle_channel_keeps_the_least_and_a_closed_one_nothing() {
        let mut channels = Channels::new(2, 1000);
        let idle = channels.add(1);
        channels.press(8192);
        channels.pool.rest(NOW, idle);
        channels.settle();
        assert_eq!((channels.of(1), channels.pool.free), (0, 1000 + CHANNEL_PAGES));
        channels.pool.close(idle);
        assert_eq!(channels.pool.free, 1000 + 2 * CHANNEL_PAGES);
    }

    #[test]
    fn a_host_that_never_answers_leaves_the_others_what_they_have() {
        let mut channels = Channels::new(3, 3000);
        let hung = channels.add(1);
        channels.press(8192);
        channels.held.remove(&hung);
        for host in [2, 3] {
            let channel = ChannelRef { link: 1, channel: ChannelId(host) };
            channels.pool.open(channel, Identity::Claimed(Uuid::from_u128(host.into())), 32);
            channels.pool.ask(NOW, channel, 128);
        }
        assert!(channels.pool.poll_told(0).is_some() && channels.pool.poll_told(1).is_none());
        // What it has got back is divided at once, whoever asked first.
        channels.pool.settled(NOW, hung, 2000);
        assert_eq!(channels.pool.poll_told(1).map(|(_, pages)| pages), Some(128));
    }
}
