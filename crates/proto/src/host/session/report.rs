//! Reports on a session, for people.

use std::time::Duration;

use tyche_wire::{ChannelId, CipherSuite, Cookie, Mac};

use super::path::Path;
use super::port::Port;
use super::{Favourite, NodeCounts, Problem, Session, State};
use crate::channel::stages::StageSample;
use crate::channel::stats::{ChannelStats, RejectCounts};
use crate::host::operation::OpId;
use crate::rules::Rules;
use crate::time::Instant;

/// State of a path and its channel.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// Our index of the channel.
    pub channel: ChannelId,
    /// Index of the local link.
    pub port: usize,
    /// The target's address.
    pub peer: Mac,
    /// Whether it is live.
    pub live: bool,
    /// Longest frame in bytes that gets through; zero if not known.
    pub frame_len: usize,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Frames that may be in flight.
    pub congestion_window: u32,
    /// Requests in flight.
    pub requests: usize,
    /// Measured rate in bytes per second; zero if it never was busy.
    pub rate: u64,
    /// Why it was lost, or its last attempt failed.
    pub problem: Option<Problem>,
    /// Its counters.
    pub stats: ChannelStats,
}

/// A live channel whose data the target may place: they are neither sealed nor covered by a
/// checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceableChannel {
    /// Our index of the channel.
    pub channel: ChannelId,
    /// The cookie of its frames to the target: no other channel has it.
    pub cookie: Cookie,
    /// Index of the local link.
    pub port: usize,
    /// The target's address.
    pub peer: Mac,
    /// Pages of its `damq`.
    pub damq_pages: u32,
}

/// The requests and fences that a session waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Operations in progress.
    pub operations: usize,
    /// The longest that one of them has waited, since its submission or its last progress.
    pub longest: Duration,
    /// Fences that the target has not confirmed.
    pub fences: usize,
}

impl<R: Rules> Session<R> {
    /// Stage times of a completed operation, if configured and supported by the target. Valid until
    /// the next [`submit`](Self::submit).
    pub fn stage_sample(&self, OpId(op): OpId) -> Option<StageSample> {
        self.operations.stage_sample(op)
    }

    /// The live channels whose data the target may place.
    pub fn placeable(&self) -> impl Iterator<Item = PlaceableChannel> {
        self.paths.all().iter().filter_map(|path| {
            let accept = path.accept().filter(|it| !it.checksum && path.cipher().is_none())?;
            Some(PlaceableChannel {
                channel: path.id(),
                cookie: accept.cookie,
                port: path.port,
                peer: path.peer,
                damq_pages: accept.damq_pages,
            })
        })
    }

    /// Time left to find a lost target before the session fails; `None` if the target is not lost,
    /// or there is no limit.
    pub fn time_left(&self, now: Instant) -> Option<Duration> {
        let State::Lost(since) = self.state else { return None };
        self.config.ctrl_loss_tmo.map(|timeout| (since + timeout).since(now))
    }

    /// Time left until operations fail, although the session goes on; `None` if the target is not
    /// lost, they fail already, or there is no such limit.
    pub fn time_to_fail_fast(&self, now: Instant) -> Option<Duration> {
        self.fails_fast_at().map(|at| at.since(now))
    }

    /// Since when the target is lost.
    pub fn lost_since(&self) -> Option<Instant> {
        match self.state {
            State::Lost(since) => Some(since),
            _ => None,
        }
    }

    /// Why the target is not reached: the problem of the attempt that got farthest.
    pub fn problem(&self) -> Option<Problem> {
        let ports = || self.paths.ports().iter().flatten();
        let deaf = ports().any(Port::is_deaf).then_some(Problem::NoOffer);
        let other = ports().any(Port::hears_other_version).then_some(Problem::Version);
        let paths = self.paths.all().iter().map(Path::problem).max();
        paths.unwrap_or_default().max(deaf).max(other)
    }

    /// The cipher of the frames, if they are sealed and a channel is live.
    pub fn cipher(&self) -> Option<CipherSuite> {
        self.paths.all().iter().find_map(Path::cipher)
    }

    /// Whether nobody has answered on a local link lately.
    pub fn is_deaf(&self, port: usize) -> bool {
        self.paths.ports()[port].as_ref().is_some_and(Port::is_deaf)
    }

    /// The session's paths.
    pub fn paths(&self) -> impl Iterator<Item = PathReport> {
        let ports = self.paths.ports();
        let paths = self.paths.all().iter().filter(|path| !path.is_retired());
        let known = paths.filter(|path| ports[path.port].is_some());
        known.map(|path| {
            let live = path.live();
            PathReport {
                channel: path.id(),
                port: path.port,
                peer: path.peer,
                live: live.is_some(),
                frame_len: path.frame_len(),
                rtt: live.map_or(Duration::ZERO, |it| it.channel.measured_rtt()),
                congestion_window: live.map_or(0, |it| it.channel.congestion_window()),
                requests: live.map_or(0, |it| it.outstanding()),
                rate: live.and_then(|it| it.load.rate()).unwrap_or_default(),
                problem: path.problem(),
                stats: live.map(|it| it.channel.stats).unwrap_or_default(),
            }
        })
    }

    /// The links that a backlog takes; `None` if links of one transport are live, or channels are
    /// chosen in turn.
    pub fn favourite(&self) -> Option<Favourite> {
        self.chooser.favourite(self.paths.all())
    }

    /// Numbers of requests by NUMA node; zero unless channels are chosen by node.
    pub fn node_counts(&self) -> NodeCounts {
        self.chooser.nodes()
    }

    /// What the operations in progress wait for.
    pub fn waiting(&self, now: Instant) -> Waiting {
        let oldest = self.operations.oldest();
        Waiting {
            operations: self.operations(),
            longest: oldest.map(|since| now.since(since)).unwrap_or_default(),
            fences: self.fences.len(),
        }
    }

    /// Operations in progress.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// Counters of all channels, including lost ones.
    pub fn stats(&self) -> ChannelStats {
        self.paths.stats()
    }

    /// Numbers of dropped frames, by reason.
    pub fn rejects(&self) -> &RejectCounts {
        &self.rejects
    }
}
