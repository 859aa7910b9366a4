//! Which channel a request takes.

use std::time::Duration;

use super::config::ChannelChoice;
use super::path::Path;
use crate::load::{RATE_UNKNOWN, cost};
use crate::rules::Rules;
use crate::time::Instant;

/// How much more than the best a channel may have in flight and still get the next request, in
/// bytes: small requests that follow each other then share frames.
const STICKY: u64 = 32 << 10;

/// A channel that has not answered for so long, though it was asked for a sign of life, takes no
/// turn while others can.
const UNANSWERED: Duration = Duration::from_millis(200);

/// Seconds of rest that count, at most: after as many, a channel is tried again however bad it was,
/// for 2 to the power of that is more than what lies between links that are used together.
const RESTED_MAX: u64 = 16;

/// What requests did with regard to NUMA nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Requests that took a channel of their memory's node.
    pub stayed: u64,
    /// Requests that had to take a channel of another node.
    pub crossed: u64,
}

impl NodeCounts {
    fn count(&mut self, stayed: bool) {
        *(if stayed { &mut self.stayed } else { &mut self.crossed }) += 1;
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Chooser {
    choice: ChannelChoice,
    /// The channel that was chosen last.
    last: usize,
    nodes: NodeCounts,
}

impl Chooser {
    pub(super) fn new(choice: ChannelChoice) -> Self {
        Self { choice, last: 0, nodes: NodeCounts::default() }
    }

    /// How requests went so far, where channels are chosen by node.
    pub(super) fn nodes(&self) -> NodeCounts {
        self.nodes
    }

    /// The channel for a request that moves `data_len` bytes and whose memory is on `node`; `None`
    /// if it has to wait. The channel that will be done first may have no room: then waiting for
    /// it is better than to take another.
    pub(super) fn choose<R: Rules>(
        &mut self,
        now: Instant,
        paths: &[Path<R>],
        data_len: u32,
        node: Option<u16>,
    ) -> Option<usize> {
        let chosen = self.pick(now, paths, data_len, node)?;
        self.last = chosen;
        if self.choice == ChannelChoice::Node && node.is_some() {
            self.nodes.count(paths[chosen].node() == node);
        }
        Some(chosen)
    }

    /// The same, before it is settled.
    fn pick<R: Rules>(
        &self,
        now: Instant,
        paths: &[Path<R>],
        data_len: u32,
        node: Option<u16>,
    ) -> Option<usize> {
        if let [only] = paths {
            return only.live().is_some_and(|it| it.has_room(data_len)).then_some(0);
        }
        let cost = cost(data_len);
        let has_room = |&path: &usize| paths[path].live().is_some_and(|it| it.has_room(data_len));
        let chosen = match self.choice {
            ChannelChoice::RoundRobin => {
                // One that was asked in vain for a sign of life waits until it is heard or lost.
                let answers = |&path: &usize| {
                    let asked_for = paths[path].live().map(|it| it.channel.asked_for(now));
                    asked_for.is_some_and(|asked_for| asked_for < UNANSWERED)
                };
                let mut order = (1..=paths.len()).map(|i| (self.last + i) % paths.len());
                let both = order.clone().find(|path| has_room(path) && answers(path));
                both.or_else(|| order.find(has_room))?
            }
            ChannelChoice::LeastOutstanding => self.fastest(now, paths, cost, None)?,
            ChannelChoice::Node => {
                let near = node.and_then(|node| self.fastest(now, paths, cost, Some(node)));
                near.or_else(|| self.fastest(now, paths, cost, None))?
            }
        };
        has_room(&chosen).then_some(chosen)
    }

    /// The live channel that would be done with the request first, among those of a node if one
    /// is given.
    fn fastest<R: Rules>(
        &self,
        now: Instant,
        paths: &[Path<R>],
        cost: u64,
        node: Option<u16>,
    ) -> Option<usize> {
        let eligible = |path: &Path<R>| node.is_none() || path.node() == node;
        let live = || {
            let paths = paths.iter().enumerate().filter(|(_, path)| eligible(path));
            paths.filter_map(|(index, path)| Some((index, path.live()?)))
        };
        let mut rest = live();
        let (only, _) = rest.next()?;
        if rest.next().is_none() {
            return Some(only);
        }
        // A channel that was never busy may be as fast as the fastest.
        let known = live().filter_map(|(_, initiator)| initiator.load.rate()).max();
        let unknown = known.unwrap_or(RATE_UNKNOWN);
        let time = |path: usize| {
            let initiator = paths[path].live()?;
            let rate = initiator.load.rate().unwrap_or(unknown);
            let queued = initiator.load.time_for(cost, rate);
            let slack = Duration::from_nanos(STICKY * 1_000_000_000 / rate.max(1));
            // One that was asked for a sign of life in vain is as good as silent, though nothing
            // was to be done on it.
            let silent = initiator.silent_for(now).max(initiator.channel.asked_for(now));
            let time = queued + initiator.channel.rtt_least() + silent;
            // A channel that is not chosen is not measured: it is believed to be twice as good
            // for every second, until it is tried.
            let rested = initiator.load.rested(now).as_secs().min(RESTED_MAX);
            Some((if rested > 0 { time / (1 << rested) } else { time }, slack))
        };
        let all = live().filter_map(|(index, _)| Some((index, time(index)?.0)));
        let (best, least) = all.min_by_key(|&(_, time)| time)?;
        let stays = |last: usize| {
            eligible(&paths[last]) && time(last).is_some_and(|(time, slack)| time <= least + slack)
        };
        let sticks = self.last != best && self.last < paths.len() && stays(self.last);
        Some(if sticks { self.last } else { best })
    }
}
