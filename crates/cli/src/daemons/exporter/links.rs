//! Metrics of links: of sessions, of targets, and of ports of FCoE.

use tyche_counters::{CounterGroup, Label, Metric};
use tyche_proto::wire::{Reason, Reject};

use super::definitions::{
    LINK_CHANNELS, LINK_FRAME, LINK_REQUESTS, LINK_RTT, LINK_SCOPE, LINK_UNKNOWN, LINK_UP,
    LINK_WINDOW, REFUSED, REJECTED,
};
use super::derived;
use super::families::{Definition, Families, Labels};
use crate::shared::report::{Counters, ProtocolCounters, SessionLink, TargetLink};

/// The tables of counters that only some kinds of links have.
pub(super) fn own_tables() -> Vec<&'static Metric> {
    tyche_link::counter_tables().chain(tyche_fcoe::counter_tables()).collect()
}

/// Whether a link of a session may lead elsewhere, so that nobody misses it.
pub(super) fn may_lead_elsewhere(link: &SessionLink) -> bool {
    link.unnamed && link.channels.is_empty()
}

/// Adds the metrics of a session's link.
pub(super) fn add_of_session(families: &mut Families, session: &Labels, link: &SessionLink) {
    let labels = session.with("link", &link.interface);
    families.add(&LINK_UP, &labels, link.live);
    families.add(&LINK_CHANNELS, &labels, link.channels.len() as u64);
    // Of one that has only begun none is measured yet.
    if link.live && link.rtt_us > 0 {
        families.add(&LINK_RTT, &labels, link.rtt_us as f64 / 1e6);
    }
    families.add(&LINK_WINDOW, &labels, u64::from(link.congestion_window));
    families.add(&LINK_FRAME, &labels, link.frame_len);
    derived::add(families, LINK_SCOPE, &labels, link.port.iter());
    add_own(families, &labels, &link.counters);
}

/// Adds the metrics of a target's link.
pub(super) fn add_of_target(
    families: &mut Families,
    (name, target): (&Labels, &Labels),
    link: &TargetLink,
) {
    let labels = target.with("link", &link.interface);
    families.add(&LINK_UP, &labels, link.problem.is_none());
    families.add(&LINK_CHANNELS, &labels, link.channels.len() as u64);
    families.add(&LINK_REQUESTS, &labels, link.requests);
    derived::add(families, LINK_SCOPE, &labels, link.port.iter());
    add_own(families, &labels, &link.counters);
    add_protocol(families, &labels, &link.channel, &link.rejects);
    add_by_reason::<Reason>(
        families,
        &REFUSED,
        &name.with("link", &link.interface),
        &link.refusals,
    );
}

/// Adds the counters of the protocol.
pub(super) fn add_protocol(
    families: &mut Families,
    labels: &Labels,
    channel: &ProtocolCounters,
    rejects: &Counters,
) {
    derived::add(families, LINK_SCOPE, labels, channel.counters.iter());
    add_by_reason::<Reject>(families, &REJECTED, labels, rejects);
}

/// Adds counters by reason; those that are 0 as well, because a rate begins with them.
fn add_by_reason<L: Label>(
    families: &mut Families,
    family: &'static Definition,
    labels: &Labels,
    counters: &Counters,
) {
    for reason in L::ALL {
        let count = counters.get(reason.name()).copied().unwrap_or(0);
        families.add(family, &labels.with("reason", reason.name()), count);
    }
    let is_known = |name: &str| L::ALL.iter().any(|reason| reason.name() == name);
    for (name, count) in counters.iter().filter(|(name, _)| !is_known(name)) {
        families.add(family, &labels.with("reason", name), *count);
    }
}

fn add_own(families: &mut Families, labels: &Labels, counters: &Counters) {
    let (known, others) = derived::known(counters, &own_tables());
    derived::add(families, LINK_SCOPE, labels, known);
    for (name, value) in others {
        families.add(&LINK_UNKNOWN, &labels.with("counter", name), value);
    }
}
