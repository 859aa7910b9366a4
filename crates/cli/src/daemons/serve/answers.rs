//! Answers of a running target at its control socket and its control port.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags, statx};
use tyche_native::Remains;
use tyche_store::ResizeError;

use super::access::{Changed, Who};
use super::by::By;
use super::changes::{self, Removal};
use super::config::{DefinedAt, Export};
use super::fcoe::PORTS_ANSWER;
use super::links::{Missing, What};
use super::pool::{self, Pool};
use super::pool_usage::{Usage, member};
use super::state::{Decision, locked};
use super::{Served, host_changes, link_changes, reload, rename, settings, volumes};
use crate::shared::control::{AccessChange, ControlAnswer, TargetRequest};
use crate::shared::error::{Code, Error, Result};
use crate::shared::health;
use crate::shared::report::{
    AccessChanged, ExportChanged, ExportCloned, ExportReport, ExportResized, PoolReport,
    TargetLink, TargetPort, TargetReport,
};

/// Time limit for pools to say how full they are, of all of them together: those in directories,
/// and those of LVM, whose last answer counts otherwise.
const POOLS_ANSWER: Duration = Duration::from_millis(200);
const THIN_POOLS_ANSWER: Duration = Duration::from_millis(500);

/// Answers a request: reports, resizes exports, and changes who may have them. The log says who has
/// changed what.
pub(super) fn answer(served: Arc<Served>, request: &TargetRequest, by: &By<'_>) -> ControlAnswer {
    let Some(change) = request.change() else { return execute(served, request, by) };
    let complaints = Arc::clone(&served.admins.complaints);
    let answer = execute(served, request, by);
    // What has changed something is always said.
    let left_out = if answer.has_changed() { Some(0) } else { by.may_complain(&complaints) };
    match (left_out, &answer) {
        (None, _) => {}
        (Some(left_out), ControlAnswer::Refused(report)) => {
            tracing::warn!(%by, left_out, "`{change}` has failed: {}", report.error);
        }
        (Some(left_out), _) => tracing::info!(%by, left_out, "`{change}`"),
    }
    answer
}

fn execute(served: Arc<Served>, request: &TargetRequest, by: &By<'_>) -> ControlAnswer {
    match request {
        TargetRequest::Report => {
            let seen = served.reports.look(|| report(&served));
            ControlAnswer::Target((*seen).clone())
        }
        TargetRequest::Resize { export, size } => {
            let resized = resize(&served, export, *size, by);
            let resized = resized.map(|it| ExportResized { warnings: warn(&served, export), ..it });
            resized.map(ControlAnswer::Resized).into()
        }
        TargetRequest::AddExport { export, accept_changed_disk, new_file } => {
            let export = Export { place: DefinedAt::Command, ..(**export).clone() };
            let accepted = *accept_changed_disk;
            let changed = match new_file {
                Some(file) => volumes::make(&served, &export, (file, accepted), by),
                None => changes::add(&served, &export, accepted, by),
            };
            let changed = changed.map(|it| match it.changed {
                true => ExportChanged { warnings: warn(&served, &export.name), ..it },
                false => it,
            });
            changed.map(ControlAnswer::Changed).into()
        }
        TargetRequest::CloneExport { export, clone, read_only } => {
            let cloned = volumes::clone(&served, (export, clone), *read_only, by);
            let cloned = cloned.map(|it| match it.changed {
                true => ExportCloned { warnings: warn(&served, clone), ..it },
                false => it,
            });
            cloned.map(ControlAnswer::Cloned).into()
        }
        TargetRequest::RemoveExport { export, force, delete, limit_ms } => {
            let limit = Duration::from_millis(*limit_ms);
            let removal = Removal { force: *force, delete: *delete, limit };
            changes::remove(&served, export, &removal, by).map(ControlAnswer::Changed).into()
        }
        TargetRequest::RenameExport { export, to } => {
            rename::rename(&served, export, to, by).map(ControlAnswer::Changed).into()
        }
        TargetRequest::SetExport { export, settings } => {
            settings::set(&served, export, settings, by).map(ControlAnswer::Changed).into()
        }
        TargetRequest::AddLink { link } => {
            link_changes::add(&served, link, by).map(ControlAnswer::Link).into()
        }
        TargetRequest::RemoveLink { link, force, limit_ms } => {
            let limit = Duration::from_millis(*limit_ms);
            let removed = link_changes::remove(&served, link, (*force, limit), by);
            removed.map(ControlAnswer::Link).into()
        }
        TargetRequest::Hosts => {
            let seen = served.known_hosts.look(|| host_changes::known(&served));
            ControlAnswer::Hosts((*seen).clone())
        }
        TargetRequest::AddHost { host } => {
            host_changes::add(&served, host, by).map(ControlAnswer::Host).into()
        }
        TargetRequest::RemoveHost { host } => {
            host_changes::remove(&served, host, by).map(ControlAnswer::Host).into()
        }
        TargetRequest::Plan { path, text } => {
            reload::foresee(&served, path, text).map(ControlAnswer::Plan).into()
        }
        TargetRequest::Access { export, host, change } => {
            let host = host.as_deref();
            change_access(served, (export, host), *change, by).map(ControlAnswer::Access).into()
        }
    }
}

fn report(served: &Served) -> TargetReport {
    // All threads at the same time: who asks waits for two seconds.
    let deadline = Instant::now() + PORTS_ANSWER;
    let ports = served.exports.fcoe.ask();
    let mut report = TargetReport::new(&served.exports.name, &served.exports.target.report());
    report.fcoe = ports(deadline);
    let missing = served.links().missing.clone();
    for Missing { what, why } in missing {
        let (interface, problem) = (what.name().to_owned(), Some(why));
        match what {
            What::Link(_) => {
                report.links.push(TargetLink { interface, problem, ..Default::default() });
            }
            What::Port(_) | What::Vlans(..) => {
                report.fcoe.push(TargetPort { interface, problem, ..Default::default() });
            }
        }
    }
    let current = served.exports.current().clone();
    let disks = served.exports.all().map(|disk| (disk.name(), disk));
    let disks: BTreeMap<_, _> = disks.collect();
    let configured = current.export.iter().map(|it| (&it.name, it));
    let configured: BTreeMap<_, _> = configured.collect();
    let usages = ask_pools(served, &current.pool);
    let rights = served.rights();
    for export in &mut report.exports {
        if let Some(configured) = configured.get(&export.export) {
            export.path.clone_from(&configured.path);
            export.defined_by = (&configured.place).into();
            let member = member(&current.pool, &usages, Path::new(&configured.path));
            export.pool = member.map(|(pool, _)| pool.name.clone());
            export.allocated = member.and_then(|(_, allocated)| allocated);
            export.origin.clone_from(&configured.origin);
        }
        let file = disks.get(&*export.export).and_then(|disk| allocated(disk.store().file()?));
        export.allocated = file.or(export.allocated);
        export.lun = served.exports.fcoe.lun(&export.export);
        export.allowed = rights.decided(&export.export, Decision::Allowed);
        export.denied = rights.decided(&export.export, Decision::Denied);
        export.may_connect = Some(rights.may_connect(&export.export));
    }
    drop(rights);
    report.pools = pools(&current.pool, usages, &report.exports);
    report
}

/// The bytes of a file on its file system, as the kernel knows them: a file server that hangs is
/// not waited for.
fn allocated(file: BorrowedFd<'_>) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, "", flags, StatxFlags::BLOCKS).ok().map(|found| found.stx_blocks * 512)
}

fn ask_pools(served: &Served, pools: &[Pool]) -> Vec<Result<Usage, String>> {
    let has_volumes = pools.iter().any(Pool::has_volumes);
    let limit = if has_volumes { THIN_POOLS_ANSWER } else { POOLS_ANSWER };
    served.pools.look(pools, Instant::now() + limit)
}

fn pools(
    pools: &[Pool],
    usages: Vec<Result<Usage, String>>,
    exports: &[ExportReport],
) -> Vec<PoolReport> {
    let report = |(pool, usage): (&Pool, Result<Usage, String>)| {
        let is_of = |export: &&ExportReport| export.pool.as_ref() == Some(&pool.name);
        let (usage, silent) = usage.map_or_else(|why| (None, Some(why)), |it| (Some(it), None));
        let metadata = usage.as_ref().and_then(|it| it.metadata);
        PoolReport {
            pool: pool.name.clone(),
            path: pool.path(),
            size: usage.as_ref().map(|it| it.size),
            used: usage.as_ref().and_then(|it| it.used),
            metadata_size: metadata.map(|(size, _)| size),
            metadata_used: metadata.and_then(|(_, used)| used),
            provisioned: exports.iter().filter(is_of).map(|export| export.size).sum(),
            problem: silent.or(usage.and_then(|it| it.problem)),
        }
    };
    pools.iter().zip(usages).map(report).collect()
}

/// Warnings about an export that has come or grown: more than its pool has may be promised in it.
fn warn(served: &Served, export: &str) -> Vec<String> {
    if served.exports.current().pool.is_empty() {
        return Vec::new();
    }
    let TargetReport { exports, pools, .. } = report(served);
    let pool = exports.into_iter().find(|it| it.export == export).and_then(|it| it.pool);
    let pool = pools.iter().find(|it| Some(&it.pool) == pool.as_ref());
    let warning = pool.and_then(health::overcommitment);
    warning.iter().for_each(|warning| tracing::warn!(export, "{warning}"));
    warning.into_iter().collect()
}

fn resize(served: &Served, name: &str, size: Option<u64>, by: &By<'_>) -> Result<ExportResized> {
    by.check(&served.admins)?;
    let mut resized = served.exports.resize(name, size);
    if let (Err(ResizeError::Device { .. }), Some(size)) = (&resized, size)
        && enlarge_volume(served, name, size)?
    {
        resized = served.exports.resize(name, Some(size));
    }
    let size = resized.map_err(|error| {
        let code = match error {
            ResizeError::Shrinks { .. } | ResizeError::Indivisible { .. } => Code::Usage,
            _ => Code::Device,
        };
        Error::new(code, format!("export `{name}`: {error}"))
    })?;
    let size = size.ok_or_else(|| served.exports.no_export(name))?;
    tracing::info!(export = name, size, "export {name} is resized");
    let (target, export) = (served.exports.name.clone(), name.to_owned());
    Ok(ExportResized { target, export, size, warnings: Vec::new() })
}

/// Enlarges the volume of an export, if it is one that a target has made.
fn enlarge_volume(served: &Served, name: &str, size: u64) -> Result<bool> {
    // It keeps its name meanwhile.
    let _changing = served.exports.change();
    let current = served.exports.current().clone();
    let Some(export) = changes::named(&current, name).filter(|it| !it.read_only) else {
        return Ok(false);
    };
    let Some(pool) = pool::of(&current.pool, export)? else { return Ok(false) };
    let identity = locked(&served.exports.state).disk(name);
    pool.enlarge(export, identity.as_deref(), size)
}

/// Changes who may have an export. An eviction waits for the requests of whom it is about.
fn change_access(
    served: Arc<Served>,
    (export, host): (&str, Option<&str>),
    change: AccessChange,
    by: &By<'_>,
) -> Result<AccessChanged> {
    let target = served.exports.name.clone();
    let named = || host.ok_or_else(|| Error::new(Code::Usage, "the request has to name a host"));
    let changed = {
        let mut rights = served.rights();
        by.check(&served.admins)?;
        match change {
            AccessChange::Allow => rights.allow(&served, export, named()?),
            AccessChange::Deny | AccessChange::Evict { .. } => {
                rights.deny(&served, export, named()?)
            }
            AccessChange::Revert => rights.revert(&served, export, host),
        }?
    };
    let of_host = changed.who.map(|who| who.to_string()).or_else(|| host.map(str::to_owned));
    let name = of_host.as_deref().unwrap_or("all hosts");
    let key = changed.who.and_then(|who| served.rights().fingerprint(who));
    let ended = changed.ended.len();
    tracing::info!(
        export,
        host = name,
        key,
        ended,
        "export {export}: `{}` of {name}",
        change.name()
    );
    let is_out = matches!(change, AccessChange::Deny | AccessChange::Evict { .. });
    let is_host = matches!(changed.who, Some(Who::Host(_)));
    let has_other_way = is_out && is_host && served.exports.fcoe.shows(export);
    if let (AccessChange::Evict { limit_ms }, Some(who)) = (change, changed.who) {
        await_departure(served, &changed, (export, who), Duration::from_millis(limit_ms))?;
    }
    if let Some(error) = changed.not_kept {
        let what = format!("{name} is kept out, but not after a restart of the target");
        return Err(Error::new(error.code, format!("{what}: {error}")));
    }
    if has_other_way {
        return Err(Error::new(Code::Device, other_way(export, name, change)));
    }
    Ok(AccessChanged {
        target,
        export: export.to_owned(),
        host: of_host,
        sessions_ended: changed.ended.len() as u64,
    })
}

/// A host that is kept out of an export may still have it over FCoE.
fn other_way(export: &str, host: &str, change: AccessChange) -> String {
    format!(
        "{host} is kept out of `{export}` on all other links, but ports of FCoE may have it, too, \
         and nobody can tell which of them are that host's: run `tyche export {} {export} WWPN` \
         for each of those; `tyche list` shows the WWPNs that are logged in",
        change.name()
    )
}

/// Waits until nothing of a host or a port is left at an export.
fn await_departure(
    served: Arc<Served>,
    changed: &Changed,
    (export, who): (&str, Who),
    limit: Duration,
) -> Result<()> {
    let until = Instant::now() + limit;
    let host = match who {
        Who::Host(host) => Some(host),
        Who::Initiator(_) => None,
    };
    let departure = served.exports.departure(export, host)?;
    // The target may be stopped meanwhile.
    drop(served);
    let is_drained = host.is_some() || changed.left.wait(limit);
    let left = until.saturating_duration_since(Instant::now());
    let remains = if is_drained { departure.wait(left) } else { Err(Remains::Requests) };
    let (what, which) = match remains {
        Ok(()) => return Ok(()),
        Err(Remains::Requests) => (format!("has not finished requests of {who}"), "they"),
        Err(Remains::Unknown(why)) => (
            format!("is missing ({why}) and has not come"),
            "what a former process of the target gave to it for that host",
        ),
    };
    let message = format!(
        "{who} is kept out of `{export}`, but its disk {what} within {} s: {which} may still be \
         executed; run the command again to wait for that",
        limit.as_secs_f64()
    );
    Err(Error::new(Code::Device, message))
}
