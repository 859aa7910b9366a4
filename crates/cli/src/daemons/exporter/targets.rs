//! Metrics of targets.

use std::collections::BTreeMap;

use tyche_counters::CounterGroup;

use super::definitions::{
    CPU, DAEMON_UP, EXPORT_ALLOCATED, EXPORT_ALLOWED, EXPORT_DENIED, EXPORT_ERRORS, EXPORT_HELD,
    EXPORT_INFO, EXPORT_READ_ONLY, EXPORT_SIZE, EXPORT_UP, FCOE_IGNORED, FCOE_INITIATORS,
    LINK_REQUESTS, LINK_SCOPE, LINK_UP, POOL_METADATA_SIZE, POOL_METADATA_USED, POOL_PROVISIONED,
    POOL_SIZE, POOL_USED, REJECTED, USE,
};
use super::families::{Families, Labels};
use super::{derived, links, sessions};
use crate::shared::report::{ExportReport, ExportSession, PoolReport, TargetPort, TargetReport};

/// The host of requests of several that have left.
const LEFT: &str = "(left)";

/// Adds the metrics of a target.
pub(super) fn add(families: &mut Families, report: &TargetReport) {
    let labels = Labels::default().with("target", &report.name);
    let with_side = Labels::default().with("side", "target").with("target", &report.name);
    families.add(&DAEMON_UP, &with_side, report.problem.is_none());
    if report.problem.is_some() {
        return;
    }
    families.add(&CPU, &with_side, report.cpu_s);
    report.exports.iter().for_each(|export| add_export(families, &labels, export));
    report
        .links
        .iter()
        .for_each(|link| links::add_of_target(families, (&labels, &with_side), link));
    report.fcoe.iter().for_each(|port| add_port(families, (&labels, &with_side), port));
    report.pools.iter().for_each(|pool| add_pool(families, &labels, pool));
}

fn add_pool(families: &mut Families, target: &Labels, pool: &PoolReport) {
    let labels = target.with("pool", &pool.pool);
    for (metric, value) in [
        (&POOL_SIZE, pool.size),
        (&POOL_USED, pool.used),
        (&POOL_METADATA_SIZE, pool.metadata_size),
        (&POOL_METADATA_USED, pool.metadata_used),
    ] {
        value.iter().for_each(|value| families.add(metric, &labels, *value));
    }
    families.add(&POOL_PROVISIONED, &labels, pool.provisioned);
}

fn add_export(families: &mut Families, target: &Labels, export: &ExportReport) {
    let labels = target.with("export", &export.export);
    let info = labels.with("uuid", export.uuid.to_string()).with("path", &export.path);
    families.add(&EXPORT_INFO, &info, true);
    families.add(&EXPORT_UP, &labels, export.problem.is_none());
    families.add(&EXPORT_SIZE, &labels, export.size);
    let allocated = export.allocated.iter();
    allocated.for_each(|bytes| families.add(&EXPORT_ALLOCATED, &labels, *bytes));
    families.add(&EXPORT_READ_ONLY, &labels, export.read_only);
    families.add(&EXPORT_ALLOWED, &labels, export.allowed.len() as u64);
    families.add(&EXPORT_DENIED, &labels, export.denied.len() as u64);
    sessions::add_errors(families, &EXPORT_ERRORS, &labels, &export.errors_by_kind);
    let mut held = BTreeMap::<_, (&str, u64)>::new();
    for session in &export.sessions {
        let (name, count) = held.entry((host(session), session.writer)).or_default();
        *name = &session.host_name;
        *count += 1;
    }
    for ((host, writes), (name, count)) in held {
        let access = if writes { "write" } else { "read" };
        let labels = labels.with("host", host).with("name", name).with("access", access);
        families.add(&EXPORT_HELD, &labels, count);
    }
    for host in &export.hosts {
        let name = if host.host.is_empty() { LEFT } else { &host.host };
        derived::add(families, USE, &labels.with("host", name), host.requests.iter());
    }
}

/// The host of a session, as its requests are counted.
pub(super) fn host(session: &ExportSession) -> String {
    match session.key {
        Some(_) => session.host_name.clone(),
        None => session.host.to_string(),
    }
}

/// Adds the metrics of a port of FCoE. Its name as a link is not that of the interface: that may be
/// a link of Tyche's own as well.
fn add_port(families: &mut Families, (target, with_side): (&Labels, &Labels), port: &TargetPort) {
    let link = format!("fcoe:{}", port.interface);
    let labels = with_side.with("link", &link);
    families.add(&LINK_UP, &labels, port.problem.is_none());
    families.add(&LINK_REQUESTS, &labels, port.commands);
    derived::add(families, LINK_SCOPE, &labels, port.port.iter());
    for (reason, count) in &port.rejects {
        families.add(&REJECTED, &labels.with("reason", reason), *count);
    }
    let labels = target.with("link", link);
    families.add(&FCOE_INITIATORS, &labels, port.initiators.len() as u64);
    for (reason, count) in &port.ignored {
        families.add(&FCOE_IGNORED, &labels.with("reason", reason), *count);
    }
}
