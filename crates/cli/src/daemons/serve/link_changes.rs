//! Changes of the links of a running target by commands. A link that was added so outlives its
//! process. What the configuration says wins: one of its links that was removed is served again
//! when the configuration is read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tyche_native::TargetSessionReport;

use super::by::By;
use super::config::Config;
use super::fcoe::Fcoe;
use super::links::Taken;
use super::names::few_of;
use super::state::locked;
use super::{Served, changes};
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::{DefinedBy, TargetLinkChanged};

/// Serves one more link, and keeps it. One that is there already is left as it is, also if it is
/// missing so far and waited for.
///
/// # Errors
/// It can't be opened, or kept; or the target serves all interfaces, or ports of FCoE only. Nothing
/// has changed then.
pub(super) fn add(served: &Arc<Served>, name: &str, by: &By<'_>) -> Result<TargetLinkChanged> {
    let known = |served: &Served| {
        let table = served.links();
        let named = table.named(name)?;
        let waits_for = table.why_missing(&named).map(str::to_owned);
        drop(table);
        let changed = TargetLinkChanged { waits_for, ..changed(served, &named, false) };
        Some(changed)
    };
    check_way(served)?;
    if let Some(known) = known(served) {
        return Ok(known);
    }
    let wrong = |error: Error| Error { code: Code::Usage, ..error };
    served.opener.check(&[name.to_owned()]).map_err(wrong)?;
    // The name of an address may take long to be found: nobody else waits for it.
    let links = served.opener.open_one(name)?;
    let _changing = by.turn(served)?;
    if let Some(known) = known(served) {
        return Ok(known);
    }
    let mut wanted = served.exports.current().clone();
    wanted.link.push(name.to_owned());
    wanted.added_links.push(name.to_owned());
    changes::check(&wanted)?;
    served.links().serve(&served.exports.target, links)?;
    if let Err(error) = locked(&served.exports.state).keep_links(&wanted.added_links) {
        served.links().take(&served.exports.target, name);
        return Err(error);
    }
    *served.exports.current() = wanted;
    tracing::info!("link {name} is added by command: it is served");
    Ok(changed(served, name, true))
}

/// Serves a link no more, or does not wait for it any more. Returns when nothing of it is left. One
/// that is not there is no error. `force`: even if it is the last one, or the only one of a
/// session.
///
/// # Errors
/// `Refused` if it is the last link that is served, or the only one that a session has; `Other` if
/// that can't be kept. Nothing has changed then. `Device` if a disk has not finished requests that
/// have come over it after `limit`: it is served no more, and ends when they are finished.
pub(super) fn remove(
    served: &Arc<Served>,
    name: &str,
    (force, limit): (bool, Duration),
    by: &By<'_>,
) -> Result<TargetLinkChanged> {
    check_way(served)?;
    let changing = by.turn(served)?;
    let Some(named) = served.links().named(name) else {
        return Ok(changed(served, name, false));
    };
    if !force {
        refuse_in_use(served, &named)?;
    }
    let mut wanted = served.exports.current().clone();
    let was_added = wanted.added_links.contains(&named);
    forget(&mut wanted, &named);
    if was_added {
        locked(&served.exports.state).keep_links(&wanted.added_links)?;
    }
    let defined_by = defined_by(served, &named).filter(|_| !was_added);
    *served.exports.current() = wanted;
    let taken = served.links().take(&served.exports.target, &named);
    // Others need not wait for its end.
    drop(changing);
    tracing::info!("link {named} is removed by command");
    if let Some(Taken::Served(removal)) = taken
        && !removal.wait(limit)
    {
        let message = format!(
            "{named} takes no more requests, but a disk has not finished those that came over it \
             within {} s: it ends when they are finished; `tyche list` shows it until then",
            limit.as_secs_f64()
        );
        return Err(Error::new(Code::Device, message));
    }
    Ok(TargetLinkChanged { defined_by, ..changed(served, &named, true) })
}

/// Refuses to remove a link without which a host would not reach the target.
fn refuse_in_use(served: &Served, named: &str) -> Result<()> {
    let message = if served.links().served().eq([named]) {
        let target = &served.exports.name;
        format!("{named} is the last link of {target}, and no host would reach it: give --force")
    } else if let Some(sessions) = only_link_of(served, named, &[]) {
        format!(
            "{named} is the only link of {sessions}: add another one at both ends first (`tyche \
             link add`), or give --force, and requests wait until there is one"
        )
    } else {
        return Ok(());
    };
    Err(Error::new(Code::Refused, message))
}

/// The sessions that have no other link of the target, in words; `None` if there are none. `gone`:
/// links that are to be removed before it. It may take a second.
pub(super) fn only_link_of(served: &Served, name: &str, gone: &[String]) -> Option<String> {
    let table = served.links();
    let own = table.own_name(name)?;
    let gone: Vec<_> = gone.iter().filter_map(|name| table.own_name(name)).collect();
    let stays = |it: &String| *it != own && !gone.contains(it);
    let others: BTreeSet<_> = table.own_names().into_iter().filter(stays).collect();
    drop(table);
    let sessions = served.exports.target.report().sessions;
    let is_lost =
        |it: &&TargetSessionReport| it.links.contains(&own) && it.links.is_disjoint(&others);
    let lost = sessions.iter().filter(is_lost);
    let lost: BTreeSet<_> = lost.map(|it| format!("{} ({})", it.host_name, it.export)).collect();
    (!lost.is_empty()).then(|| few_of(&lost))
}

/// Takes a link out of a configuration.
pub(super) fn forget(config: &mut Config, link: &str) {
    config.link.retain(|it| it != link);
    config.added_links.retain(|it| it != link);
}

/// Checks that the target serves links by their names.
fn check_way(served: &Served) -> Result<()> {
    let name = &served.exports.name;
    let message = if served.opener.takes_all {
        format!(
            "{name} serves every interface that is up: name its links in its configuration \
             (`link`) or by --link, and start it again"
        )
    } else if Fcoe::is_alone(&served.exports.config) {
        format!("{name} serves FCoE only: other links take a restart")
    } else {
        return Ok(());
    };
    Err(Error::new(Code::Usage, message))
}

/// The place that names a link of the target.
fn defined_by(served: &Served, link: &str) -> Option<DefinedBy> {
    let current = served.exports.current();
    let is_in = |links: &[String]| links.iter().any(|it| it == link);
    if is_in(&current.added_links) && is_in(&current.link) {
        Some(DefinedBy::Command)
    } else if is_in(&served.args.links) {
        Some(DefinedBy::CommandLine)
    } else {
        is_in(&current.link).then_some(DefinedBy::File)
    }
}

fn changed(served: &Served, link: &str, changed: bool) -> TargetLinkChanged {
    TargetLinkChanged {
        target: served.exports.name.clone(),
        link: link.to_owned(),
        changed,
        waits_for: None,
        defined_by: defined_by(served, link),
    }
}
