//! Changes of the exports of a running target by commands, which outlive its process. What the
//! configuration says wins.

use std::time::Duration;

use super::access::Configured;
use super::by::By;
use super::config::{Config, DefinedAt, Export};
use super::exports::ExportRemoval;
use super::own_keys::OwnKeys;
use super::state::{Leftover, locked};
use super::{Served, conflict, fcoe, hosts, pool, pool_files};
use crate::shared::error::{Code, Error, Result};
use crate::shared::host::AddedHost;
use crate::shared::report::ExportChanged;

/// The parts of a target that were added by command.
pub(super) struct Added {
    pub(super) exports: Vec<Export>,
    pub(super) links: Vec<String>,
    pub(super) hosts: Vec<AddedHost>,
}

/// The configuration to serve: that of the file, and the parts that were added by command and do
/// not contradict it. With the parts that do not count, each with the reason.
///
/// # Errors
/// The configuration contradicts itself.
pub(super) fn with_added(
    mut config: Config,
    Added { exports, links, hosts: added_hosts }: Added,
    own_keys: &OwnKeys,
) -> Result<(Config, Vec<String>)> {
    let mut left_out = Vec::new();
    let others: Vec<_> = links.into_iter().filter(|link| !config.link.contains(link)).collect();
    if !config.link.is_empty() {
        config.link.extend(others.iter().cloned());
    } else if !others.is_empty() {
        let links = others.join(", ");
        left_out.push(format!("the configuration names no links, so {links} do not count"));
    }
    config.added_links = others;
    left_out.extend(hosts::join(&mut config, added_hosts, &own_keys.public()));
    // They may be for these hosts.
    let config = with_added_exports(config, exports, own_keys, &mut left_out)?;
    Ok((config, left_out))
}

fn with_added_exports(
    config: Config,
    added: Vec<Export>,
    own_keys: &OwnKeys,
    left_out: &mut Vec<String>,
) -> Result<Config> {
    let (others, added): (Vec<_>, Vec<_>) =
        added.into_iter().partition(|export| named(&config, &export.name).is_none());
    for export in &added {
        let counts = named(&config, &export.name).expect("the others are apart").described();
        left_out.push(format!("{counts} counts instead"));
    }
    let with = |config: &Config, more: &[Export]| {
        let mut all = config.clone();
        all.export.extend(more.iter().cloned());
        check(&all)?;
        // Hosts of one may be gone from the configuration.
        Configured::of(&all, &own_keys.public()).map(|_| all)
    };
    if others.is_empty() {
        return check(&config).map(|()| config);
    }
    if let Ok(all) = with(&config, &others) {
        return Ok(all);
    }
    with(&config, &[])?;
    // One by one, to find out which ones contradict the others.
    Ok(others.into_iter().fold(config, |mut config, export| {
        match with(&config, std::slice::from_ref(&export)) {
            Ok(all) => return all,
            Err(error) => left_out.push(error.message),
        }
        config.idle.push(export);
        config
    }))
}

/// Logs what was added by command and does not count.
pub(super) fn warn_of(left_out: &[String]) {
    for reason in left_out {
        tracing::warn!("not all that was added by command is served: {reason}");
    }
}

/// Checks that exports, and pools, do not contradict each other.
///
/// # Errors
/// `Usage` or `Config`.
pub(super) fn check(config: &Config) -> Result<()> {
    pool::refuse_twins(&config.pool)?;
    conflict::refuse(&config.export)?;
    fcoe::refuse_two_writers(config)
}

pub(super) fn named<'a>(config: &'a Config, name: &str) -> Option<&'a Export> {
    config.export.iter().find(|export| export.name == name)
}

/// The exports that were added by command, also those that are not served.
pub(super) fn added(config: &Config) -> impl Iterator<Item = &Export> {
    let served = config.export.iter().filter(|export| export.place == DefinedAt::Command);
    // One that is connected is served until it is not.
    served.chain(config.idle.iter().filter(|export| named(config, &export.name).is_none()))
}

/// Serves one more export, and keeps it. One that is there already and says the same is left as it
/// is. `accepted`: it may be another disk than the last one of that name.
///
/// # Errors
/// The disk can't be had; an export of that name says something else (`Exists`), or contradicts
/// it; or it can't be kept. Nothing has changed then.
pub(super) fn add(
    served: &Served,
    export: &Export,
    accepted: bool,
    by: &By<'_>,
) -> Result<ExportChanged> {
    let _changing = by.turn(served)?;
    let current = served.exports.current().clone();
    if let Some(other) = named(&current, &export.name) {
        if other.is_same(export) {
            return Ok(changed(served, &export.name, false, 0));
        }
        let unlike = other.unlike(export);
        let message = format!("{} is there already, {unlike}", other.described());
        return Err(Error::new(Code::Exists, message));
    }
    publish(served, export, accepted)?;
    Ok(changed(served, &export.name, true, 0))
}

/// Serves one more export, and keeps it; by whoever changes exports.
///
/// # Errors
/// As [`add`]. Nothing has changed then.
pub(super) fn publish(served: &Served, export: &Export, accepted: bool) -> Result<()> {
    let before = served.exports.current().clone();
    let mut wanted = before.clone();
    wanted.export.push(export.clone());
    wanted.idle.retain(|it| it.name != export.name);
    check(&wanted)?;
    let configured = Configured::of(&wanted, &served.own_keys.public())?;
    finish_renames(served)?;
    let disk = served.exports.open(export, accepted)?;
    // Before any host can write to it.
    locked(&served.exports.state).keep_added(added(&wanted))?;
    let mut rights = served.rights();
    rights.reconfigure(configured, served);
    if let Err(error) = served.exports.serve(export, &rights, disk) {
        rights.forget_configured(&export.name);
        if let Err(error) = locked(&served.exports.state).keep_added(added(&before)) {
            tracing::error!("export {} will be there after a restart: {error}", export.name);
        }
        return Err(error);
    }
    drop(rights);
    *served.exports.current() = wanted;
    let (name, path) = (&export.name, &export.path);
    tracing::info!(export = name, path, "export {name} is added: {path}");
    Ok(())
}

/// The removal of an export, as it is asked for.
pub(super) struct Removal {
    /// Even if hosts have it connected, whose sessions end.
    pub(super) force: bool,
    /// Its file or volume, which is in a pool, is deleted.
    pub(super) delete: bool,
    /// How long requests that are with its disk are waited for.
    pub(super) limit: Duration,
}

/// Removes an export that was added by command, for good.
///
/// # Errors
/// `NotFound` if there is none; `Config` or `Usage` if the configuration has it; `Refused` if hosts
/// have it connected; `Device` if its file can't be deleted; `Other` if that can't be kept. Nothing
/// has changed then. `Device` also if its disk has not finished requests after the limit: it is
/// removed.
pub(super) fn remove(
    served: &Served,
    name: &str,
    removal: &Removal,
    by: &By<'_>,
) -> Result<ExportChanged> {
    let &Removal { force, delete, limit } = removal;
    let changing = by.turn(served)?;
    let mut wanted = served.exports.current().clone();
    let idle = wanted.idle.iter().find(|export| export.name == name);
    let export = named(&wanted, name).or(idle).ok_or_else(|| served.exports.no_export(name))?;
    refuse_configured(export, "remove it", "it is gone when the target starts without it")?;
    let visible = served.rights().visible_at(name);
    let users = served.exports.users(name, &visible);
    if !force && !users.is_empty() {
        let message = format!(
            "{name} is connected by {}: disconnect it there, or give --force, and its sessions end",
            users.join(", ")
        );
        return Err(Error::new(Code::Refused, message));
    }
    let file = delete.then(|| pool_files::find(&served.exports, &wanted, export)).transpose()?;
    let file = file.flatten();
    wanted.export.retain(|export| export.name != name);
    wanted.idle.retain(|export| export.name != name);
    keep_removed(served, (name, file.as_ref()), &wanted)?;
    *served.exports.current() = wanted;
    let removal = served.exports.remove(name);
    locked(&served.exports.state).forget(name);
    served.rights().forget(name);
    // A volume can't be while somebody has it open.
    let (volume, file) = file.map_or((None, None), |it| match it.is_volume() {
        true => (Some(it), None),
        false => (None, Some(it)),
    });
    let is_deleted = file.map_or(Ok(()), |file| delete_file(served, &file));
    // Others need not wait for its disk.
    drop(changing);
    let ended = removal.as_ref().map_or(0, ExportRemoval::sessions);
    tracing::info!(export = name, ended, "export {name} is removed; sessions that ended: {ended}");
    removal.map_or(Ok(()), |removal| removal.wait(limit))?;
    is_deleted?;
    volume.map_or(Ok(()), |volume| delete_file(served, &volume))?;
    Ok(changed(served, name, true, ended))
}

/// Has what is kept of renamed exports follow them, if something has kept it from that.
///
/// # Errors
/// `Other` if it still can't.
pub(super) fn finish_renames(served: &Served) -> Result<()> {
    // In the order of all who need both.
    let mut rights = served.rights();
    let mut state = locked(&served.exports.state);
    if state.is_renaming() { state.finish_renames(rights.decisions()) } else { Ok(()) }
}

/// Refuses to change an export that was not added by command. `what`: what is to be done with it in
/// its file; `restart`: what becomes of one of the command line.
///
/// # Errors
/// `Config` or `Usage`, with the remedy.
pub(super) fn refuse_configured(export: &Export, what: &str, restart: &str) -> Result<()> {
    let remedy = match export.place {
        DefinedAt::Command => return Ok(()),
        DefinedAt::File { .. } => format!(
            "{what} there, and have the target read that again (`systemctl reload tyche-target`, \
             or SIGHUP)"
        ),
        DefinedAt::CommandLine => restart.to_owned(),
    };
    let from = match &export.place {
        DefinedAt::File { path, line } => format!("line {line} of {}", path.display()),
        _ => "the command line of the target".to_owned(),
    };
    let name = &export.name;
    let message = format!("`{name}` is from {from}, not from `tyche export add`: {remedy}");
    Err(Error::new(export.place.code(), message))
}

/// Keeps what is left when an export is removed. `file`: what is to be deleted with it.
fn keep_removed(
    served: &Served,
    (export, file): (&str, Option<&Leftover>),
    wanted: &Config,
) -> Result<()> {
    let mut state = locked(&served.exports.state);
    state.remove(export);
    file.iter().for_each(|file| state.leave((*file).clone()));
    let kept = state.keep_added(added(wanted));
    if kept.is_err() {
        state.keep(export);
        file.iter().for_each(|file| state.take_up(file));
    }
    kept
}

/// Deletes the file of an export that is removed.
fn delete_file(served: &Served, file: &Leftover) -> Result<()> {
    pool_files::delete(&served.exports.state, file)?;
    let current = served.exports.current().clone();
    if let Err(error) = locked(&served.exports.state).keep_added(added(&current)) {
        tracing::warn!("{error}; a file that is gone is looked for at the next start");
    }
    Ok(())
}

/// The answer to a change of an export.
pub(super) fn changed(
    served: &Served,
    name: &str,
    changed: bool,
    sessions_ended: usize,
) -> ExportChanged {
    let disk = served.exports.disk(name);
    ExportChanged {
        target: served.exports.name.clone(),
        export: name.to_owned(),
        size: disk.map(|disk| disk.store().geometry().size),
        changed,
        sessions_ended: sessions_ended as u64,
        warnings: Vec::new(),
    }
}
