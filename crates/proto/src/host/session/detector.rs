//! Failure detector of a queue: which of its live channels are suspected, and which are given up.
//!
//! A channel fails in two ways. It is *silent*: requests are in flight, and nothing is heard. Or it
//! is *stalled*: it may be heard, but a frame stays without an ack, because frames get lost in one
//! direction, or long ones only. A channel is given up only while another one is fine. So the only
//! channel is never given up here: that takes the keep-alive time. docs/protocol-annexes.md,
//! "Channels that are given up early".

use std::time::Duration;

use super::path::Path;
use super::problem::Problem;
use crate::rules::Rules;
use crate::time::{Instant, earliest};

/// Silence of a channel with requests in flight after which all channels are asked for a sign of
/// life. The question is repeated after half of that time.
const DOUBT: Duration = Duration::from_millis(100);
/// Silence after which a channel is given up if another is heard. Lower: channels are lost when the
/// target is busy for a moment. Higher: requests wait longer on a dead link.
const GIVE_UP: Duration = Duration::from_millis(400);
/// How long a frame may stay without an ack if there is another channel. The channel may be heard:
/// frames may get lost in one direction only.
const STALL: Duration = Duration::from_millis(600);

/// What the detector knows of a live channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    /// Index of its path, and of the local link of that.
    path: usize,
    port: usize,
    /// Longest frame in bytes.
    frame_len: usize,
    /// Smoothed round-trip time.
    rtt: Duration,
    /// When the last valid frame came.
    heard_at: Instant,
    /// Since when requests are in flight and nothing was heard.
    silent_since: Option<Instant>,
    /// When it was asked for a sign of life, if nothing was heard since.
    asked_at: Option<Instant>,
    /// Since when a frame that was sent several times is without an ack.
    stuck_since: Option<Instant>,
}

/// The live channels of `paths`, as the detector sees them.
pub(super) fn live<R: Rules>(paths: &[Path<R>]) -> impl Iterator<Item = Liveness> + Clone {
    paths.iter().enumerate().filter_map(|(index, path)| {
        let initiator = path.live()?;
        let channel = &initiator.channel;
        Some(Liveness {
            path: index,
            port: path.port,
            frame_len: path.frame_len(),
            rtt: channel.rtt(),
            heard_at: channel.heard_at(),
            silent_since: initiator.silent_since(),
            asked_at: channel.asked_at(),
            stuck_since: channel.stuck_since(),
        })
    })
}

impl Liveness {
    /// How long an answer may take: with a long queue on the way, it is late, not lost.
    fn patience(&self) -> Duration {
        self.rtt * 4
    }

    /// How long a frame may stay without an ack.
    fn stall(&self) -> Duration {
        STALL.max(self.patience())
    }

    fn is_stalled(&self, now: Instant) -> bool {
        self.stuck_since.is_some_and(|since| now.since(since) >= self.stall())
    }

    fn silent_for(&self, now: Instant) -> Duration {
        self.silent_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Whether all channels are to be asked for a sign of life.
    fn is_suspected(&self, now: Instant) -> bool {
        self.silent_for(now) >= DOUBT || self.failure(now).is_some()
    }

    /// Why it is given up, if another is fine.
    fn failure(&self, now: Instant) -> Option<Problem> {
        if self.is_stalled(now) {
            return Some(Problem::Stall);
        }
        let was_asked = self.asked_at.is_some_and(|at| now.since(at) >= DOUBT * 2);
        let is_silent = self.silent_for(now) >= GIVE_UP.max(self.patience());
        (is_silent && was_asked).then_some(Problem::Silence)
    }

    /// Whether it is heard and not stalled, so that others may be given up.
    fn is_fine(&self, now: Instant) -> bool {
        now.since(self.heard_at) < DOUBT * 2 && !self.is_stalled(now)
    }
}

/// The failure detector of one queue. It keeps only the time of its next examination: what it
/// judges by are the channels' own timers, which the session passes to it as [`Liveness`].
#[derive(Debug, Default)]
pub(super) struct FailureDetector {
    /// When the channels are examined again, if one is suspected.
    again_at: Option<Instant>,
}

impl FailureDetector {
    /// Examines the live channels. If one is suspected, returns those to be given up, in order, and
    /// why; all others are to be asked for a sign of life. If the target is silent on all of them,
    /// none is given up: that would not help.
    pub(super) fn examine(
        &mut self,
        now: Instant,
        live: &(impl Iterator<Item = Liveness> + Clone),
    ) -> Option<Vec<(usize, Problem)>> {
        self.again_at = None;
        live.clone().nth(1)?;
        if !live.clone().any(|channel| channel.is_suspected(now)) {
            return None;
        }
        self.again_at = Some(now + DOUBT / 2);
        let mut given_up: Vec<(usize, Problem)> = Vec::new();
        for channel in live.clone() {
            let is_left = |it: &Liveness| given_up.iter().all(|&(path, _)| path != it.path);
            let Some(problem) = channel.failure(now).filter(|_| is_left(&channel)) else {
                continue;
            };
            let others = live.clone().filter(|it| it.path != channel.path && is_left(it));
            let others: Vec<Liveness> = others.collect();
            if !others.iter().any(|other| other.is_fine(now)) {
                continue;
            }
            if problem == Problem::Stall {
                given_up.extend(alike(now, &channel, &others).map(|path| (path, problem)));
            }
            given_up.push((channel.path, problem));
        }
        Some(given_up)
    }

    /// When to [examine](Self::examine) the channels, if nothing is heard until then.
    pub(super) fn poll_timeout(
        &self,
        live: impl Iterator<Item = Liveness> + Clone,
    ) -> Option<Instant> {
        if self.again_at.is_some() {
            return self.again_at;
        }
        live.clone().nth(1)?;
        live.filter_map(|channel| {
            let silent = channel.silent_since.map(|since| since + DOUBT);
            earliest(silent, channel.stuck_since.map(|since| since + channel.stall()))
        })
        .min()
    }
}

/// The other channels to give up with `path`, whose channel the target has reset, all for a stall:
/// if one of its requests has waited for as long as the target takes to detect a stall, that was
/// the reason. `waited`: the longest that one has.
pub(super) fn stalled_with(
    now: Instant,
    path: usize,
    waited: Duration,
    live: impl Iterator<Item = Liveness> + Clone,
) -> Vec<usize> {
    let reset = live.clone().find(|channel| channel.path == path);
    let Some(reset) = reset.filter(|channel| waited >= channel.stall()) else { return Vec::new() };
    let others: Vec<Liveness> = live.filter(|channel| channel.path != path).collect();
    alike(now, &reset, &others).collect()
}

/// The paths of the `others` on the port of a stalled channel whose frames are as long or longer,
/// if a channel of another port is fine. Otherwise a request could wait for an ack on one after the
/// other. The probes of new attempts find out which frames get through now.
fn alike(now: Instant, stalled: &Liveness, others: &[Liveness]) -> impl Iterator<Item = usize> {
    let (port, frame_len) = (stalled.port, stalled.frame_len);
    let instead = others.iter().any(|other| other.port != port && other.is_fine(now));
    let is_alike = move |it: &&Liveness| instead && it.port == port && it.frame_len >= frame_len;
    others.iter().filter(is_alike).map(|other| other.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(3_600_000_000_000);
    const MS: Duration = Duration::from_millis(1);

    /// The moment `ms` milliseconds before [`NOW`].
    fn ago(ms: u64) -> Instant {
        Instant(NOW.0 - ms * 1_000_000)
    }

    /// A channel without requests that was heard just now.
    fn fine(path: usize, port: usize) -> Liveness {
        Liveness {
            path,
            port,
            frame_len: 1514,
            rtt: MS,
            heard_at: NOW,
            silent_since: None,
            asked_at: None,
            stuck_since: None,
        }
    }

    /// A channel with requests in flight on which nothing was heard for so many milliseconds. It
    /// was asked for a sign of life in time.
    fn silent(path: usize, port: usize, ms: u64) -> Liveness {
        let asked_at = (ms >= 100).then(|| ago(ms - 100));
        let heard_at = ago(ms);
        Liveness { heard_at, silent_since: Some(heard_at), asked_at, ..fine(path, port) }
    }

    /// A channel that is heard, with a frame that is without an ack for so many milliseconds.
    fn stuck(path: usize, port: usize, ms: u64) -> Liveness {
        Liveness { stuck_since: Some(ago(ms)), ..fine(path, port) }
    }

    fn examine(live: &[Liveness]) -> Option<Vec<(usize, Problem)>> {
        let mut detector = FailureDetector::default();
        let given_up = detector.examine(NOW, &live.iter().copied());
        let again_at = given_up.is_some().then(|| NOW + DOUBT / 2);
        assert_eq!(detector.again_at, again_at, "it is called again only if one is suspected");
        given_up
    }

    #[test]
    fn silence_with_requests_in_flight_is_suspected_and_then_given_up() {
        for (ms, given_up) in [
            (99, None),
            (100, Some(vec![])),
            (399, Some(vec![])),
            (400, Some(vec![(0, Problem::Silence)])),
        ] {
            assert_eq!(examine(&[silent(0, 0, ms), fine(1, 1)]), given_up, "{ms} ms");
        }
    }

    #[test]
    fn silence_without_requests_is_nothing() {
        let idle = Liveness { heard_at: ago(5000), ..fine(0, 0) };
        assert_eq!(examine(&[idle, fine(1, 1)]), None);
    }

    #[test]
    fn a_channel_is_given_up_only_after_a_question_without_an_answer() {
        let asked = |ms| Liveness { asked_at: Some(ago(ms)), ..silent(0, 0, 450) };
        assert_eq!(examine(&[asked(199), fine(1, 1)]), Some(vec![]));
        assert_eq!(examine(&[asked(200), fine(1, 1)]), Some(vec![(0, Problem::Silence)]));
        let unasked = Liveness { asked_at: None, ..silent(0, 0, 450) };
        assert_eq!(examine(&[unasked, fine(1, 1)]), Some(vec![]));
    }

    #[test]
    fn the_only_channel_is_never_given_up() {
        assert_eq!(examine(&[silent(0, 0, 60_000)]), None);
        assert_eq!(examine(&[stuck(0, 0, 60_000)]), None);
        assert_eq!(FailureDetector::default().poll_timeout([stuck(0, 0, 1)].into_iter()), None);
    }

    #[test]
    fn no_channel_is_given_up_while_no_other_is_heard() {
        assert_eq!(examine(&[silent(0, 0, 1000), silent(1, 1, 1000)]), Some(vec![]));
        let quiet = |ms| Liveness { heard_at: ago(ms), ..fine(1, 1) };
        assert_eq!(examine(&[silent(0, 0, 1000), quiet(200)]), Some(vec![]));
        let given_up = Some(vec![(0, Problem::Silence)]);
        assert_eq!(examine(&[silent(0, 0, 1000), quiet(199)]), given_up);
        assert_eq!(examine(&[silent(0, 0, 1000), stuck(1, 1, 600)]), Some(vec![]), "stalled");
    }

    #[test]
    fn a_frame_without_an_ack_stalls_a_channel_that_is_heard() {
        assert_eq!(examine(&[fine(0, 0), stuck(1, 1, 599)]), None);
        let given_up = Some(vec![(1, Problem::Stall)]);
        assert_eq!(examine(&[fine(0, 0), stuck(1, 1, 600)]), given_up);
        assert_eq!(examine(&[stuck(0, 0, 600), stuck(1, 1, 600)]), Some(vec![]), "none is fine");
    }

    #[test]
    fn a_long_queue_on_the_way_takes_longer() {
        let slow = |it| Liveness { rtt: 250 * MS, ..it };
        let silence = |ms| examine(&[slow(silent(0, 0, ms)), fine(1, 1)]);
        assert_eq!(silence(999), Some(vec![]));
        assert_eq!(silence(1000), Some(vec![(0, Problem::Silence)]));
        assert_eq!(examine(&[slow(stuck(0, 0, 999)), fine(1, 1)]), None);
        let given_up = Some(vec![(0, Problem::Stall)]);
        assert_eq!(examine(&[slow(stuck(0, 0, 1000)), fine(1, 1)]), given_up);
    }

    #[test]
    fn a_stall_takes_the_channels_of_its_port_with_frames_as_long() {
        let short = Liveness { frame_len: 1294, ..fine(1, 0) };
        let long = Liveness { frame_len: 9014, ..fine(2, 0) };
        let all = [fine(0, 0), short, long, stuck(3, 0, 600), fine(4, 1)];
        let given_up = [0, 2, 3].map(|path| (path, Problem::Stall)).to_vec();
        assert_eq!(examine(&all), Some(given_up));
        let given_up = Some(vec![(3, Problem::Stall)]);
        assert_eq!(examine(&all[..4]), given_up, "there is no other port");
    }

    #[test]
    fn of_two_ports_with_a_stall_one_keeps_its_other_channels() {
        let all = [stuck(0, 0, 600), fine(1, 0), stuck(2, 1, 600), fine(3, 1)];
        let given_up = [1, 0, 2].map(|path| (path, Problem::Stall)).to_vec();
        assert_eq!(examine(&all), Some(given_up));
    }

    #[test]
    fn a_reset_after_a_stall_takes_the_same_channels() {
        let all = [fine(0, 0), fine(1, 0), fine(2, 1)];
        let with = |waited| stalled_with(NOW, 0, waited, all.iter().copied());
        assert_eq!(with(599 * MS), []);
        assert_eq!(with(600 * MS), [1]);
        assert_eq!(stalled_with(NOW, 0, 600 * MS, all[..2].iter().copied()), [], "no other port");
    }

    #[test]
    fn the_next_call_is_due_with_the_first_suspicion() {
        let detector = FailureDetector::default();
        let due = |live: &[Liveness]| detector.poll_timeout(live.iter().copied());
        assert_eq!(due(&[fine(0, 0), fine(1, 1)]), None);
        assert_eq!(due(&[silent(0, 0, 30), silent(1, 1, 20)]), Some(ago(30) + DOUBT));
        assert_eq!(due(&[stuck(0, 0, 30), fine(1, 1)]), Some(ago(30) + STALL));
        assert_eq!(due(&[stuck(0, 0, 560), silent(1, 1, 10)]), Some(ago(560) + STALL));
    }

    #[test]
    fn a_suspicion_is_looked_into_again_until_it_is_over() {
        let mut detector = FailureDetector::default();
        let all = [silent(0, 0, 100), fine(1, 1)];
        assert_eq!(detector.examine(NOW, &all.iter().copied()), Some(vec![]));
        assert_eq!(detector.poll_timeout(all.iter().copied()), Some(NOW + DOUBT / 2));
        let all = [fine(0, 0), fine(1, 1)];
        assert_eq!(detector.examine(NOW + DOUBT / 2, &all.iter().copied()), None);
        assert_eq!(detector.poll_timeout(all.iter().copied()), None);
    }
}
