//! Trials of transports: which one carries a backlog fastest, if a session has several.
//!
//! Links of several transports to one target may share a wire, and they always share the thread of
//! their queue, so what one carries the other can't. The rate of a channel does not tell which of
//! them is better: it is the share that the channel was given. So each transport is tried alone for
//! a moment, as are all at once, and what has carried most is favoured until the next trial.
//! Without a [backlog](BACKLOG) latency decides.
//!
//! ```text
//!  backlog    [all][frames alone][UDP alone]  favourite ......  [all][frames alone]..
//!               settle, measure               2 s to 60 s
//! ```

use std::time::Duration;

use arrayvec::ArrayVec;

use super::path::Path;
use crate::host::load::BACKLOG;
use crate::rules::Rules;
use crate::time::Instant;

/// Time for the requests of the candidate before to end.
const SETTLE: Duration = Duration::from_millis(30);
/// Time in which a candidate is measured.
const MEASURE: Duration = Duration::from_millis(50);
/// The longest time without a backlog that does not end a trial. Requests that end together leave
/// none for a moment.
const LULL: Duration = Duration::from_millis(10);
/// Time between two trials at first, and after a change of the favourite. It doubles with each
/// trial that confirms the favourite.
const HOLD: Duration = Duration::from_secs(2);
const HOLD_MAX: Duration = Duration::from_secs(60);
/// A favourite is replaced by what carries so many percent of it.
const BETTER: u64 = 110;
/// Transports that are tried; links of further ones are used as if there was no trial.
const TRANSPORTS_MAX: usize = 4;

/// A transport alone, or all (`None`).
type Candidate = Option<u8>;

/// The links that a backlog of a session with several transports takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Favourite {
    /// All, as if there was one transport: none has been tried yet, for want of a backlog.
    Untried,
    /// All together.
    All,
    /// Those of this transport, the number of which is that of
    /// [`PortConfig::transport`](super::PortConfig::transport).
    One(u8),
}

/// The transport trials of one queue: the running trial, or its result and how long that holds. The
/// path scheduler asks it for the favourite before each choice.
#[derive(Debug)]
pub(super) struct Trials {
    favourite: Candidate,
    /// Whether the favourite is the result of a trial.
    is_tried: bool,
    hold: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No trial before `until`, nor without a backlog.
    Holding { until: Instant },
    Trying {
        candidates: ArrayVec<Candidate, { TRANSPORTS_MAX + 1 }>,
        /// Bytes per second of the candidates that were measured.
        rates: ArrayVec<u64, { TRANSPORTS_MAX + 1 }>,
        /// When the candidate's turn began.
        since: Instant,
        /// When there was a backlog last.
        busy_at: Instant,
        /// When its measurement began, and the cost of all requests that had ended by then.
        settled: Option<(Instant, u64)>,
    },
}

impl Trials {
    pub(super) fn new() -> Self {
        let state = State::Holding { until: Instant(0) };
        Self { favourite: None, is_tried: false, hold: HOLD, state }
    }

    /// The result of the last trial, for people; `None` if the live paths have one transport.
    pub(super) fn report<R: Rules>(&self, paths: &[Path<R>]) -> Option<Favourite> {
        self.result(&transports(paths))
    }

    fn result(&self, live: &[u8]) -> Option<Favourite> {
        (live.len() > 1).then_some(match self.favourite {
            Some(transport) if live.contains(&transport) => Favourite::One(transport),
            _ if self.is_tried => Favourite::All,
            _ => Favourite::Untried,
        })
    }

    /// The transport to be favoured for the next request.
    pub(super) fn favourite<R: Rules>(&mut self, now: Instant, paths: &[Path<R>]) -> Candidate {
        let transports = transports(paths);
        if transports.len() < 2 {
            *self = Self::new();
            return None;
        }
        let live = || paths.iter().filter_map(Path::live);
        let is_busy = live().map(|it| it.load.outstanding()).sum::<u64>() >= BACKLOG;
        let ended = || live().map(|it| it.load.ended()).sum();
        self.advance(now, &transports, is_busy, ended);
        let candidate = match &self.state {
            State::Trying { candidates, rates, .. } => candidates[rates.len()],
            State::Holding { .. } => self.favourite,
        };
        candidate.filter(|transport| is_busy && transports.contains(transport))
    }

    /// `ended`: the cost of all requests that have ended.
    fn advance(&mut self, now: Instant, transports: &[u8], is_busy: bool, ended: impl Fn() -> u64) {
        match &mut self.state {
            State::Holding { until } => {
                if is_busy && now >= *until {
                    let each = transports.iter().map(|&transport| Some(transport));
                    let candidates = [None].into_iter().chain(each).collect();
                    let (rates, settled) = (ArrayVec::new(), None);
                    let (since, busy_at) = (now, now);
                    self.state = State::Trying { candidates, rates, since, busy_at, settled };
                }
            }
            State::Trying { candidates, rates, since, busy_at, settled } => {
                if is_busy {
                    *busy_at = now;
                }
                let is_spoilt = now.since(*busy_at) > LULL
                    || now.since(*since) > 2 * (SETTLE + MEASURE)
                    || candidates.len() != transports.len() + 1;
                match *settled {
                    _ if is_spoilt => self.state = State::Holding { until: now + HOLD },
                    None if now.since(*since) >= SETTLE => *settled = Some((now, ended())),
                    Some((from, before)) if now.since(from) >= MEASURE => {
                        let nanos = now.since(from).as_nanos() as u64;
                        let cost = ended().saturating_sub(before);
                        rates.push(cost.saturating_mul(1_000_000_000) / nanos);
                        (*since, *settled) = (now, None);
                        if rates.len() == candidates.len() {
                            let results: ArrayVec<_, { TRANSPORTS_MAX + 1 }> =
                                candidates.iter().copied().zip(rates.iter().copied()).collect();
                            self.conclude(now, &results);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn conclude(&mut self, now: Instant, results: &[(Candidate, u64)]) {
        let rate_of = |candidate| {
            let found = results.iter().find(|(it, _)| *it == candidate);
            found.map_or(0, |(_, rate)| *rate)
        };
        let best = results.iter().max_by_key(|(_, rate)| *rate).expect("there are candidates");
        let changes = best.1.saturating_mul(100) > rate_of(self.favourite).saturating_mul(BETTER);
        if changes {
            (self.favourite, self.hold) = (best.0, HOLD);
        } else {
            self.hold = (self.hold * 2).min(HOLD_MAX);
        }
        self.is_tried = true;
        self.state = State::Holding { until: now + self.hold };
    }
}

/// The transports of the live paths, ascending.
fn transports<R: Rules>(paths: &[Path<R>]) -> ArrayVec<u8, TRANSPORTS_MAX> {
    let mut transports = ArrayVec::new();
    for path in paths.iter().filter(|path| path.live().is_some()) {
        let transport = path.transport();
        if !transports.contains(&transport) {
            // More than the maximum are not tried.
            let _ = transports.try_push(transport);
        }
    }
    transports.sort_unstable();
    transports
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [u8; 2] = [0, 1];

    /// Trials under load for so many milliseconds from `from` on. `rate`: bytes that end in a
    /// millisecond, by favourite. Returns the favourites in their order, each once.
    fn run(
        trials: &mut Trials,
        (from, ms): (u64, u64),
        rate: impl Fn(Candidate) -> u64,
    ) -> Vec<Candidate> {
        let (mut ended, mut seen) = (0, Vec::new());
        for at in from..from + ms {
            trials.advance(Instant(at * 1_000_000), &BOTH, true, || ended);
            let now = match &trials.state {
                State::Trying { candidates, rates, .. } => candidates[rates.len()],
                State::Holding { .. } => trials.favourite,
            };
            ended += rate(now);
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        seen
    }

    #[test]
    fn each_is_tried_alone_and_the_fastest_is_favoured() {
        let mut trials = Trials::new();
        let rate = |candidate| if candidate == Some(1) { 3000 } else { 1000 };
        let seen = run(&mut trials, (0, 1000), rate);
        assert_eq!(seen, [None, Some(0), Some(1)]);
        assert_eq!((trials.favourite, trials.hold, trials.is_tried), (Some(1), HOLD, true));
    }

    #[test]
    fn links_with_wires_of_their_own_are_used_together_and_seldom_tried() {
        let mut trials = Trials::new();
        let rate = |candidate: Candidate| if candidate.is_none() { 2000 } else { 1000 };
        run(&mut trials, (0, 120_000), rate);
        assert_eq!((trials.favourite, trials.hold, trials.is_tried), (None, HOLD_MAX, true));
    }

    #[test]
    fn a_favourite_that_got_slow_is_replaced() {
        let mut trials = Trials::new();
        run(&mut trials, (0, 1000), |candidate| if candidate == Some(1) { 3000 } else { 1000 });
        run(&mut trials, (1000, 3000), |candidate| if candidate == Some(0) { 1000 } else { 10 });
        assert_eq!(trials.favourite, Some(0));
    }

    #[test]
    fn a_favourite_without_a_live_path_is_not_reported() {
        let mut trials = Trials::new();
        assert_eq!(trials.result(&BOTH), Some(Favourite::Untried));
        run(&mut trials, (0, 1000), |candidate| if candidate == Some(1) { 3000 } else { 1000 });
        assert_eq!(trials.result(&BOTH), Some(Favourite::One(1)));
        assert_eq!(trials.result(&[0, 2]), Some(Favourite::All));
        assert_eq!(trials.result(&[0]), None);
    }

    #[test]
    fn equals_do_not_alternate() {
        let mut trials = Trials::new();
        run(&mut trials, (0, 60_000), |candidate| match candidate {
            None => 1000,
            Some(transport) => 1010 + u64::from(transport) * 20,
        });
        assert_eq!(trials.favourite, None);
    }

    /// Requests that end together leave no backlog for a moment.
    #[test]
    fn a_moment_without_a_backlog_ends_no_trial() {
        let (mut trials, mut ended) = (Trials::new(), 0);
        for at in 0..1000 {
            trials.advance(Instant(at * 1_000_000), &BOTH, at % 8 == 0, || ended);
            ended += 1000;
        }
        assert!(trials.is_tried);
        let mut trials = Trials::new();
        for at in 0..1000 {
            trials.advance(Instant(at * 1_000_000), &BOTH, at % 16 == 0, || ended);
        }
        assert!(!trials.is_tried);
    }

    #[test]
    fn a_pause_ends_a_trial_without_a_result() {
        let mut trials = Trials::new();
        run(&mut trials, (0, 100), |_| 1000);
        assert!(matches!(trials.state, State::Trying { .. }));
        run(&mut trials, (5000, 1), |_| 1000);
        assert!(matches!(trials.state, State::Holding { .. }));
        assert_eq!((trials.favourite, trials.is_tried), (None, false));
    }
}
