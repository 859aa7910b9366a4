//! Path scheduler: chooses the channel of each request.

use std::time::Duration;

use tyche_counters::counters;

use super::config::ChannelChoice;
use super::path::Path;
use super::trial::{Favourite, Trials};
use crate::host::load::{RATE_UNKNOWN, cost};
use crate::rules::Rules;
use crate::time::Instant;

/// Bytes that the channel chosen last may have in flight beyond the best one and still be chosen,
/// so that small requests in a row share frames.
const STICKY: u64 = 32 << 10;

/// How long a question for a sign of life may stay unanswered before round robin skips the channel,
/// if another has room.
const UNANSWERED: Duration = Duration::from_millis(200);

/// A channel that gets no requests is not measured either, and what is known of it may be wrong or
/// old. So its estimate halves with each pause of this many times the estimate, until it is tried:
/// the slower it is, the less often.
const PAUSE: u32 = 8;
/// The shortest of these pauses.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Upper bound of the pauses that count: a factor of 2¹⁶ is more than the difference between any
/// two links.
const PAUSES_MAX: u128 = 16;

/// The later end that counts for a channel that is second choice: one of another transport than the
/// favoured one, or, for what was lost with another channel, one with longer frames than others. It
/// serves only requests that would have to wait longer for the first choice, or while that is
/// silent.
const HANDICAP: Duration = Duration::from_millis(100);

counters! {
    /// Numbers of requests by the NUMA node of their channel.
    pub struct NodeCounts as "requests_" {
        /// Requests that travelled over an interface on the NUMA node of their buffer.
        stayed: Counter in Requests,
        /// Requests that travelled over an interface on another NUMA node than their buffer.
        crossed: Counter in Requests,
    }
}

impl NodeCounts {
    fn count(&mut self, stayed: bool) {
        *(if stayed { &mut self.stayed } else { &mut self.crossed }) += 1;
    }
}

/// A request to choose a channel for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Bytes of data.
    pub(super) data_len: u32,
    /// The NUMA node of its memory.
    pub(super) node: Option<u16>,
    /// Whether it was lost with another channel. The network may have lost its frames because they
    /// were long, which each channel with such frames finds out by itself.
    pub(super) was_lost: bool,
}

/// The path scheduler of one queue. By default it estimates which channel finishes a request first;
/// [`ChannelChoice`] may say round robin instead, or the channels of the memory's NUMA node.
#[derive(Debug)]
pub(super) struct Chooser {
    choice: ChannelChoice,
    /// The channel that was chosen last.
    last: usize,
    nodes: NodeCounts,
    trials: Trials,
}

impl Chooser {
    pub(super) fn new(choice: ChannelChoice) -> Self {
        Self { choice, last: 0, nodes: NodeCounts::default(), trials: Trials::new() }
    }

    /// Numbers of requests by node, if channels are chosen by node.
    pub(super) fn nodes(&self) -> NodeCounts {
        self.nodes
    }

    /// See [`Trials::report`]; round robin favours nothing.
    pub(super) fn favourite<R: Rules>(&self, paths: &[Path<R>]) -> Option<Favourite> {
        let compares = self.choice != ChannelChoice::RoundRobin;
        self.trials.report(paths).filter(|_| compares)
    }

    /// Chooses the channel for a request; `None` if the request has to wait. If the channel that
    /// would finish first has no room, the request waits for it: that is better than another
    /// channel.
    pub(super) fn choose<R: Rules>(
        &mut self,
        now: Instant,
        paths: &[Path<R>],
        wanted: Wanted,
    ) -> Option<usize> {
        let chosen = self.pick(now, paths, wanted)?;
        self.last = chosen;
        if self.choice == ChannelChoice::Node && wanted.node.is_some() {
            self.nodes.count(paths[chosen].node() == wanted.node);
        }
        Some(chosen)
    }

    /// The choice; it counts for nothing yet, except that a trial of transports goes on.
    fn pick<R: Rules>(
        &mut self,
        now: Instant,
        paths: &[Path<R>],
        Wanted { data_len, node, was_lost }: Wanted,
    ) -> Option<usize> {
        if let [only] = paths {
            return only.live().is_some_and(|it| it.has_room(data_len)).then_some(0);
        }
        let cost = cost(data_len);
        let has_room = |&path: &usize| paths[path].live().is_some_and(|it| it.has_room(data_len));
        let favourite = match self.choice {
            ChannelChoice::RoundRobin => None,
            _ => self.trials.favourite(now, paths),
        };
        let least = || paths.iter().filter(|it| it.live().is_some()).map(Path::frame_len).min();
        let frame_len = was_lost.then(least).flatten();
        let firsts = FirstChoice { transport: favourite, frame_len };
        let fastest = |node| self.fastest(now, paths, cost, (node, firsts));
        let chosen = match self.choice {
            ChannelChoice::RoundRobin => {
                // A channel that does not answer is skipped until it is heard or lost, one of
                // second choice as long as another has room.
                let is_first = |&path: &usize| {
                    let asked_for = paths[path].live().map(|it| it.channel.asked_for(now));
                    asked_for.is_some_and(|it| it < UNANSWERED) && firsts.has(&paths[path])
                };
                let mut order = (1..=paths.len()).map(|i| (self.last + i) % paths.len());
                let both = order.clone().find(|path| has_room(path) && is_first(path));
                both.or_else(|| order.find(has_room))?
            }
            ChannelChoice::LeastOutstanding => fastest(None)?,
            ChannelChoice::Node => {
                node.and_then(|node| fastest(Some(node))).or_else(|| fastest(None))?
            }
        };
        has_room(&chosen).then_some(chosen)
    }

    /// The live channel that would finish the request first, among those of `node` if given, with
    /// an advantage for those of first choice.
    fn fastest<R: Rules>(
        &self,
        now: Instant,
        paths: &[Path<R>],
        cost: u64,
        (node, firsts): (Option<u16>, FirstChoice),
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
        // A channel without a measured rate is taken to be as fast as the fastest.
        let known = live().filter_map(|(_, initiator)| initiator.load.rate()).max();
        let unknown = known.unwrap_or(RATE_UNKNOWN);
        let time = |path: usize| {
            let initiator = paths[path].live()?;
            let rate = initiator.load.rate().unwrap_or(unknown);
            let queued = initiator.load.time_for(cost, rate);
            let slack = Duration::from_nanos(STICKY * 1_000_000_000 / rate.max(1));
            // A channel that does not answer a question for a sign of life counts as silent, also
            // without requests.
            let silent = initiator.silent_for(now).max(initiator.channel.asked_for(now));
            let time = queued + initiator.channel.rtt_least() + silent;
            let rested = initiator.load.rested(now);
            let time = if rested < PAUSE_MIN { time } else { time / (1 << pauses(rested, time)) };
            Some((if firsts.has(&paths[path]) { time } else { time + HANDICAP }, slack))
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

/// The transport and the longest frame of the channels of first choice; `None`: any.
#[derive(Clone, Copy)]
struct FirstChoice {
    transport: Option<u8>,
    frame_len: Option<usize>,
}

impl FirstChoice {
    fn has<R: Rules>(self, path: &Path<R>) -> bool {
        self.transport.is_none_or(|it| it == path.transport())
            && self.frame_len.is_none_or(|it| it >= path.frame_len())
    }
}

/// How often the estimate `time` halves in that time without requests.
fn pauses(rested: Duration, time: Duration) -> u32 {
    let pauses = rested.as_nanos() / (time * PAUSE).max(PAUSE_MIN).as_nanos();
    pauses.min(PAUSES_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a channel with that estimate rests before a request prefers it to a wait of 1 ms.
    fn rests(estimate: Duration) -> Duration {
        let mut rested = (0..).map(Duration::from_millis);
        let is_tried =
            |rested| estimate / (1 << pauses(rested, estimate)) < Duration::from_millis(1);
        rested.find(|rested| is_tried(*rested)).expect("every channel is tried")
    }

    #[test]
    fn a_channel_that_is_hardly_slower_is_soon_tried_and_a_slow_one_now_and_then() {
        assert_eq!(rests(Duration::from_micros(1500)), PAUSE_MIN);
        assert_eq!(rests(Duration::from_millis(15)), Duration::from_millis(4 * 8 * 15));
        assert_eq!(rests(Duration::from_millis(100)), Duration::from_millis(7 * 8 * 100));
    }
}
