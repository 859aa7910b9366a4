//! Changes of the exports of a running target: by commands, which outlive its process, and by its
//! configuration, when it is read again. What the configuration says wins.

use std::time::Duration;

use super::access::Configured;
use super::config::{Config, DefinedAt, Export};
use super::state::locked;
use super::{Served, conflict, fcoe, links};
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::ExportChanged;

/// Time limit for requests of an export that is gone from the configuration.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// The exports of a target at its start: those of its configuration, and those that were added by
/// command and do not contradict it.
///
/// # Errors
/// The configuration contradicts itself.
pub(super) fn with_added(config: Config, added: Vec<Export>) -> Result<Config> {
    let (others, added): (Vec<_>, Vec<_>) =
        added.into_iter().partition(|export| named(&config, &export.name).is_none());
    for export in &added {
        let counts = named(&config, &export.name).expect("the others are apart").described();
        tracing::warn!("{counts} counts, and not what was added by command");
    }
    let with = |config: &Config, more: &[Export]| {
        let mut all = config.clone();
        all.export.extend(more.iter().cloned());
        check(&all).map(|()| all)
    };
    if let Ok(all) = with(&config, &others) {
        return Ok(all);
    }
    check(&config)?;
    // One by one, to find out which ones contradict the others.
    Ok(others.iter().fold(config, |config, export| {
        with(&config, std::slice::from_ref(export)).unwrap_or_else(|error| {
            tracing::error!("what was added by command is not served: {error}");
            config
        })
    }))
}

/// Checks that exports do not contradict each other.
///
/// # Errors
/// `Usage` or `Config`.
pub(super) fn check(config: &Config) -> Result<()> {
    conflict::refuse(&config.export)?;
    fcoe::refuse_two_writers(config)
}

fn named<'a>(config: &'a Config, name: &str) -> Option<&'a Export> {
    config.export.iter().find(|export| export.name == name)
}

/// The exports that were added by command.
fn added(config: &Config) -> impl Iterator<Item = &Export> {
    config.export.iter().filter(|export| export.place == DefinedAt::Command)
}

/// Serves one more export, and keeps it. One that is there already and says the same is left as it
/// is. `accepted`: it may be another disk than the last one of that name.
///
/// # Errors
/// The disk can't be had; an export of that name says something else (`Exists`), or contradicts
/// it; or it can't be kept. Nothing has changed then.
pub(super) fn add(served: &Served, export: &Export, accepted: bool) -> Result<ExportChanged> {
    let _changing = served.exports.change();
    let mut wanted = served.exports.current().clone();
    if let Some(other) = named(&wanted, &export.name) {
        if other.is_same(export) {
            return Ok(changed(served, &export.name, false, 0));
        }
        let what = "is there already, and says something else";
        return Err(Error::new(Code::Exists, format!("{} {what}", other.described())));
    }
    wanted.export.push(export.clone());
    check(&wanted)?;
    let configured = Configured::of(&wanted, served.own_key)?;
    let disk = served.exports.open(export, accepted)?;
    let mut rights = served.rights();
    rights.reconfigure(configured, served);
    served.exports.serve(export, &rights, disk)?;
    drop(rights);
    if let Err(error) = locked(&served.exports.state).keep_added(added(&wanted)) {
        // Nobody has been told of it.
        let _ = served.exports.remove(&export.name, REMOVAL_LIMIT);
        return Err(error);
    }
    *served.exports.current() = wanted;
    tracing::info!("export {} is added: {}", export.name, export.path);
    Ok(changed(served, &export.name, true, 0))
}

/// Removes an export that was added by command, for good. `force`: even if hosts have it connected,
/// whose sessions end.
///
/// # Errors
/// `NotFound` if there is none; `Config` or `Usage` if the configuration has it; `Refused` if hosts
/// have it connected; `Other` if that can't be kept. Nothing has changed then. `Device` if its disk
/// has not finished requests after `limit`: it is removed.
pub(super) fn remove(
    served: &Served,
    name: &str,
    force: bool,
    limit: Duration,
) -> Result<ExportChanged> {
    let _changing = served.exports.change();
    let mut wanted = served.exports.current().clone();
    let export = named(&wanted, name).ok_or_else(|| served.exports.no_export(name))?;
    if export.place != DefinedAt::Command {
        let remedy = match export.place {
            DefinedAt::File { .. } => {
                "remove it there, and have the target read that again \
                                       (`systemctl reload tyche-target`, or SIGHUP)"
            }
            _ => "it is gone when the target starts without it",
        };
        let message = format!("{} is not one that was added: {remedy}", export.described());
        return Err(Error::new(export.place.code(), message));
    }
    let users = served.exports.users(name, &served.rights());
    if !force && !users.is_empty() {
        let message = format!(
            "{name} is connected by {}: disconnect it there, or give --force, and its sessions end",
            users.join(", ")
        );
        return Err(Error::new(Code::Refused, message));
    }
    wanted.export.retain(|export| export.name != name);
    locked(&served.exports.state).keep_added(added(&wanted))?;
    *served.exports.current() = wanted;
    let removed = served.exports.remove(name, limit);
    locked(&served.exports.state).forget(name);
    let ended = *removed.as_ref().unwrap_or(&0);
    tracing::info!("export {name} is removed; sessions that ended: {ended}");
    removed.map(|ended| changed(served, name, true, ended))
}

fn changed(served: &Served, name: &str, changed: bool, sessions_ended: usize) -> ExportChanged {
    let disk = served.exports.all().find(|disk| disk.name() == name);
    ExportChanged {
        target: served.exports.name.clone(),
        export: name.to_owned(),
        size: disk.map(|disk| disk.store().geometry().size),
        changed,
        sessions_ended: sessions_ended as u64,
    }
}

/// Serves what a configuration says that was read again: its new exports and links, and no more
/// exports that are gone and that nobody has connected. What was added by command stays.
///
/// # Errors
/// It contradicts itself, or what was added. Nothing has changed then.
pub(super) fn reconfigure(served: &Served, now: Config) -> Result<()> {
    let _changing = served.exports.change();
    let current = served.exports.current().clone();
    let wanted = with_added(now, added(&current).cloned().collect())?;
    let configured = Configured::of(&wanted, served.own_key)?;
    served.rights().reconfigure(configured, served);
    served.admins.replace(&wanted.admin);
    tracing::info!("who may connect was read again");
    let mut next = Config { export: Vec::new(), link: current.link.clone(), ..wanted.clone() };
    links::serve_new(served, &mut next.link, &wanted);
    for export in &current.export {
        let name = &export.name;
        match named(&wanted, name) {
            // Its other properties take a restart.
            Some(as_wanted) => {
                next.export.push(Export { place: as_wanted.place.clone(), ..export.clone() });
            }
            None => {
                let users = served.exports.users(name, &served.rights());
                if users.is_empty() {
                    match served.exports.remove(name, REMOVAL_LIMIT) {
                        Ok(_) => tracing::info!("export {name} is removed"),
                        Err(error) => tracing::error!("{error}"),
                    }
                } else {
                    tracing::warn!(
                        "export {name} is not in the configuration any more, and is served until \
                         that is read again without it being connected by {}",
                        users.join(", ")
                    );
                    next.export.push(export.clone());
                }
            }
        }
    }
    for export in &wanted.export {
        if named(&next, &export.name).is_some() {
            continue;
        }
        let opened = served.exports.open(export, false);
        match opened.and_then(|disk| served.exports.serve(export, &served.rights(), disk)) {
            Ok(()) => {
                tracing::info!("export {} is added: {}", export.name, export.path);
                next.export.push(export.clone());
            }
            Err(error) => tracing::error!("export {} is not served: {error}", export.name),
        }
    }
    *served.exports.current() = next;
    Ok(())
}
