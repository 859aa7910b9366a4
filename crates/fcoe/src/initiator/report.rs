//! The report on a session with a disk.

use std::time::Duration;

use tyche_engine::{
    Favoured, HostReport, Latency, LinkNodes, LinkReport, Port, PortStats, Ports, RequestCounts,
    SessionNodes,
};
use tyche_fc::initiator::{Ignored, Repairs};
use tyche_fc::wire::fip::{FCOE_LEN_MAX, payload_within};
use tyche_fc::wire::{ETHERNET_LEN, HEAD_LEN, TAIL_LEN};
use tyche_proto::wire::Mac;
use tyche_proto::{ChannelStats, ExportState, NodeCounts, Problem, Waiting};
use tyche_time::Instant;

use super::role::InitiatorRole;
use crate::interface::FCOE;
use crate::n_port::NPort;
use crate::rejects::Rejects;

/// Counters of the loop.
pub(super) struct Counted {
    pub(super) requests: RequestCounts,
    pub(super) reads: Latency,
    pub(super) writes: Latency,
}

/// The report on a session.
pub(super) fn report(
    now: Instant,
    port: &NPort<InitiatorRole>,
    ports: &mut Ports,
    counted: &mut Counted,
    (export, problem): (Option<ExportState>, Option<Problem>),
) -> HostReport {
    let role = &port.role;
    let since = |at: Instant| now.since(at);
    HostReport {
        queues: 1,
        live: role.is_ready(),
        lost_for: role.lost_since.map(since),
        time_left: role.give_up_at().map(|at| at.since(now)),
        over: role.is_over(),
        export,
        waiting: Waiting {
            operations: role.requests.count(),
            longest: role.requests.oldest().map_or(Duration::ZERO, since),
            fences: 0,
        },
        channel: ChannelStats::default(),
        rejects: Vec::new(),
        requests: counted.requests,
        reads: counted.reads.at(now).report(),
        writes: counted.writes.at(now).report(),
        nodes: SessionNodes::default(),
        node_counts: NodeCounts::default(),
        cipher: None,
        problem,
        favoured: Vec::<Favoured>::new(),
        links: vec![link(port, ports)],
    }
}

/// The report on the interface.
fn link(n_port: &NPort<InitiatorRole>, ports: &mut Ports) -> LinkReport {
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
    let role = &n_port.role;
    let logins = n_port.logins().find(|login| login.wwpn == role.config.target);
    LinkReport {
        link,
        mac: Mac(mac),
        live: role.is_ready(),
        frame_len: logins.map_or(0, |login| frame_len(login.payload_max)),
        frame_len_max: fcoe.map_or(0, longest),
        rtt: Duration::ZERO,
        congestion_window: role.lane.frames()[0],
        problem: fault.clone(),
        fault,
        port: stats,
        link_counters: counters(n_port.rejects(), role.counters()),
        channels: Vec::new(),
        nodes: LinkNodes::default(),
    }
}

/// Bytes of a frame with such a payload.
fn frame_len(payload: usize) -> usize {
    HEAD_LEN + payload + TAIL_LEN
}

/// The counters by name. Those that are 0 are there as well, but for dropped frames.
fn counters(rejects: &Rejects, (ignored, repairs): (Ignored, Repairs)) -> Vec<(&'static str, u64)> {
    // Each field is named, so that none is forgotten.
    let Ignored {
        stranger,
        late,
        no_exchange,
        other_rx_id,
        malformed,
        unexpected,
        duplicate,
        beyond,
        premature,
        scattered,
    } = ignored;
    let Repairs {
        data_lost,
        questions,
        not_arrived,
        answer_lost,
        timed_out,
        silent,
        out_of_step,
        wrong_request,
        aborts,
        restarts,
        no_xid,
    } = repairs;
    let dropped: u64 = rejects.iter().map(|(_, count)| count).sum();
    vec![
        ("fc_dropped", dropped),
        ("fc_stranger", stranger),
        ("fc_late", late),
        ("fc_no_exchange", no_exchange),
        ("fc_other_rx_id", other_rx_id),
        ("fc_malformed", malformed),
        ("fc_unexpected", unexpected),
        ("fc_duplicate", duplicate),
        ("fc_beyond", beyond),
        ("fc_premature", premature),
        ("fc_scattered", scattered),
        ("fc_data_lost", data_lost),
        ("fc_questions", questions),
        ("fc_not_arrived", not_arrived),
        ("fc_answer_lost", answer_lost),
        ("fc_timed_out", timed_out),
        ("fc_silent", silent),
        ("fc_out_of_step", out_of_step),
        ("fc_wrong_request", wrong_request),
        ("fc_aborts", aborts),
        ("fc_restarts", restarts),
        ("fc_no_xid", no_xid),
    ]
}
