//! The report on a lane of a session with a disk.

use std::time::Duration;

use tyche_counters::{CounterGroup, Metric, Reading, counters};
use tyche_engine::{Done, LinkNodes, Port, PortStats, Ports, RequestCounts, SessionNodes};
use tyche_fc::Rules;
use tyche_fc::initiator::{Ignored, Repairs};
use tyche_fc::wire::fip::{FCOE_LEN_MAX, payload_within};
use tyche_fc::wire::{ETHERNET_LEN, HEAD_LEN, TAIL_LEN};
use tyche_proto::wire::Mac;
use tyche_proto::{ChannelStats, NodeCounts, RejectCounts, Waiting};
use tyche_remote::{HostReport, LinkReport};
use tyche_time::Instant;

use super::lane::InitiatorLane;
use super::requests::Ended;
use crate::interface::FCOE;
use crate::n_port::Rejects;

/// Counts requests that have ended, and appends their answers to `done`; false if there are none.
pub(super) fn take_ended<R: Rules>(
    now: Instant,
    lane: &mut InitiatorLane<R>,
    counts: &mut RequestCounts,
    done: &mut Vec<Done>,
) -> bool {
    let before = done.len();
    for Ended { job, begun, result } in lane.requests.ended.drain(..) {
        counts.count(&job.request, result, begun, now);
        done.push(job.done(result));
    }
    done.len() > before
}

/// The report on a lane.
pub(super) fn report<R: Rules>(
    now: Instant,
    lane: &InitiatorLane<R>,
    (ports, rejects): (&mut Ports, &Rejects),
    counts: &mut RequestCounts,
) -> HostReport {
    let since = |at: Instant| now.since(at);
    HostReport {
        queues: 1,
        live: lane.is_ready(),
        lost_for: None,
        time_left: None,
        fails_fast: lane.fails_fast(),
        fails_fast_in: None,
        over: lane.is_over(),
        export: None,
        waiting: Waiting {
            operations: lane.requests.count(),
            longest: lane.requests.oldest().map_or(Duration::ZERO, since),
            fences: 0,
        },
        channel: ChannelStats::default(),
        rejects: RejectCounts::default(),
        requests: counts.at(now),
        by_queue: vec![counts.total()],
        nodes: SessionNodes::default(),
        node_counts: NodeCounts::default(),
        cipher: None,
        problem: None,
        favoured: Vec::new(),
        links: vec![link(lane, ports, rejects)],
    }
}

/// The report on the interface.
fn link<R: Rules>(lane: &InitiatorLane<R>, ports: &mut Ports, rejects: &Rejects) -> LinkReport {
    let fault = ports.iter().find_map(|(_, port)| port.trouble()).map(str::to_owned);
    let mut stats = PortStats::default();
    ports.iter_mut().for_each(|(_, port)| stats += port.stats());
    let fcoe = ports.iter().find(|(index, _)| *index == FCOE).map(|(_, port)| port);
    let longest = |port: &Port| {
        let len = (port.link().frame_len_max() - ETHERNET_LEN).min(FCOE_LEN_MAX.into());
        frame_len(usize::from(payload_within(len as u16)))
    };
    let (link, mac) = fcoe
        .map_or_else(Default::default, |port| (port.link().name().to_owned(), port.link().mac()));
    LinkReport {
        link,
        mac: Mac(mac),
        live: lane.is_ready(),
        frame_len: lane.login.map_or(0, |login| frame_len(login.payload_max)),
        frame_len_max: fcoe.map_or(0, longest),
        rtt: Duration::ZERO,
        congestion_window: lane.lane.frames()[0],
        problem: fault.clone(),
        fault,
        port: stats,
        link_counters: counters(rejects, lane.counters()),
        channels: Vec::new(),
        nodes: LinkNodes::default(),
    }
}

/// Bytes of a frame with such a payload.
fn frame_len(payload: usize) -> usize {
    HEAD_LEN + payload + TAIL_LEN
}

counters! {
    /// The sum of dropped frames.
    struct Dropped as "fc_" {
        /// Frames dropped, for whatever reason.
        dropped: Counter in Frames,
    }
}

/// The tables of the counters of a session's link.
pub fn counter_tables() -> impl Iterator<Item = &'static Metric> {
    [Dropped::METRICS, Ignored::METRICS, Repairs::METRICS].into_iter().flatten()
}

/// All counters, with those that are 0.
fn counters(rejects: &Rejects, (ignored, repairs): (Ignored, Repairs)) -> Vec<Reading> {
    Dropped { dropped: rejects.total() }
        .iter()
        .chain(ignored.iter())
        .chain(repairs.iter())
        .collect()
}
