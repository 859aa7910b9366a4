//! Changes of the hosts of a running target by commands, which outlive its process.
//!
//! A host that is added so has only exports that name it: whoever adds it, such as a driver of a
//! cluster's storage, lets it have one disk after the other, and a disk of somebody else is not
//! open to it meanwhile.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use tyche_proto::crypto::PublicKey;

use super::access::Configured;
use super::by::By;
use super::config::{Config, Export, Host};
use super::hosts::{added, owners};
use super::state::{HOSTS_MAX, locked};
use super::{Served, changes, checked_name};
use crate::shared::error::{Code, Error, Result};
use crate::shared::host::AddedHost;
use crate::shared::report::{DefinedBy, HostChanged, KnownHost, KnownHosts};

/// Lets one more host in by its key, and keeps it. One that is there already and says the same is
/// left as it is.
///
/// # Errors
/// `Exists` if a host of that name says something else, or the key is somebody else's; `Config` if
/// the target has no key; `Usage` if the name is none, or the key is the target's own; `Refused` if
/// there are too many; `Other` if it can't be kept. Nothing has changed then.
pub(super) fn add(served: &Served, host: &AddedHost, by: &By<'_>) -> Result<HostChanged> {
    let _changing = by.turn(served)?;
    checked_name(&host.name)?;
    let mut wanted = served.exports.current().clone();
    let own = served.own_keys.public();
    if own.is_empty() {
        let message = format!(
            "target `{}` has no key, so no host can show one: make one with `tyche key \
             generate`, and name its file with --key or `key`",
            served.exports.name
        );
        return Err(Error::new(Code::Config, message));
    }
    if is_known(&wanted, host)? {
        return Ok(changed(served, &host.name, (Some(host), false, 0)));
    }
    if own.contains(&host.key) {
        let message = format!(
            "{} is the key of target `{}`: give the one that `tyche key show` prints at the host",
            host.key, served.exports.name
        );
        return Err(Error::new(Code::Usage, message));
    }
    let others = added(&wanted);
    let owner = others.iter().find(|it| it.key == host.key).map(|it| format!("host {}", it.name));
    if let Some(owner) = owner.or_else(|| owners(&wanted, &own).remove(&host.key)) {
        let message = format!("{} is the key of {owner} already", host.key);
        return Err(Error::new(Code::Exists, message));
    }
    if others.len() >= HOSTS_MAX {
        let message = format!(
            "{HOSTS_MAX} hosts were added by command, which is the most: remove some that are gone"
        );
        return Err(Error::new(Code::Refused, message));
    }
    wanted.added_hosts.push(host.clone());
    let configured = Configured::of(&wanted, &own)?;
    let mut rights = served.rights();
    rights.forget_allowed(&host.name)?;
    locked(&served.exports.state).keep_hosts(&added(&wanted))?;
    rights.reconfigure(configured, served);
    drop(rights);
    count(served, wanted);
    let (name, key) = (&host.name, host.key.fingerprint());
    tracing::info!(host = name, key, "host {name} is added");
    Ok(changed(served, name, (Some(host), true, 0)))
}

/// Lets a host in no more that was added by command, and takes it from all that names it: another
/// one of its name begins with nothing. Its sessions end.
///
/// # Errors
/// `NotFound` if there is none; `Config` or `Usage` if the configuration has it. Nothing has
/// changed then. `Other` if that can't be kept: the host may have less than before, and the same
/// again goes on.
pub(super) fn remove(served: &Served, name: &str, by: &By<'_>) -> Result<HostChanged> {
    let _changing = by.turn(served)?;
    let mut now = served.exports.current().clone();
    if added(&now).iter().all(|it| it.name != name) {
        return Err(not_added(served, &now, name));
    }
    let own = served.own_keys.public();
    let mut rights = served.rights();
    // A target that is killed in between has left the host less than it had, and never more.
    let kept = rights.forget_allowed(name).and_then(|()| keep_without(served, &mut now, name));
    let ended = rights.reconfigure(Configured::of(&now, &own)?, served);
    drop(rights);
    count(served, now);
    kept?;
    tracing::info!(host = name, ended, "host {name} is removed; sessions that ended: {ended}");
    Ok(changed(served, name, (None, true, ended)))
}

/// Takes a host from what is kept, and from the configuration that is served as far as that is so.
fn keep_without(served: &Served, now: &mut Config, name: &str) -> Result<()> {
    let state = locked(&served.exports.state);
    let names_it = |it: &Export| it.allow.as_ref().is_some_and(|it| it.iter().any(|it| it == name));
    if changes::added(now).any(names_it) {
        let mut without = now.clone();
        for export in without.export.iter_mut().chain(&mut without.idle) {
            // For nobody rather than for everybody, if it was the last one.
            export.allow.iter_mut().for_each(|names| names.retain(|it| it != name));
        }
        state.keep_added(changes::added(&without))?;
        *now = without;
    }
    let others: Vec<_> = added(now).into_iter().filter(|it| it.name != name).collect();
    state.keep_hosts(&others)?;
    now.added_hosts.retain(|it| it.name != name);
    now.idle_hosts.retain(|(it, _)| it.name != name);
    Ok(())
}

/// Has a configuration with other hosts be the one that is served.
fn count(served: &Served, now: Config) {
    served.exports.set_limits(&Config { export: Vec::new(), ..now.clone() });
    *served.exports.current() = now;
}

/// Returns true if a host is there already and says the same.
///
/// # Errors
/// `Exists` if one of its name says something else, or is not let in.
fn is_known(config: &Config, host: &AddedHost) -> Result<bool> {
    let AddedHost { name, key, iops, bytes_per_second } = host;
    let unlike = |what: &str, [key, iops, bytes]: [bool; 3]| {
        let pairs = [("key", key), ("iops", iops), ("bytes_per_second", bytes)];
        let keys = pairs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key);
        let keys = keys.collect::<Vec<_>>().join(", ");
        match keys.is_empty() {
            true => Ok(true),
            false => {
                let message = format!("{what} is there already, with other values of: {keys}");
                Err(Error::new(Code::Exists, message))
            }
        }
    };
    if let Some((_, why)) = config.idle_hosts.iter().find(|(it, _)| it.name == *name) {
        let message = format!("host {name} is there already, and is not let in: {why}");
        return Err(Error::new(Code::Exists, message));
    }
    if let Some(it) = config.added_hosts.iter().find(|it| it.name == *name) {
        let limits = [it.iops != *iops, it.bytes_per_second != *bytes_per_second];
        return unlike(&format!("host {name}"), [it.key != *key, limits[0], limits[1]]);
    }
    let tables: Vec<_> = config.host.iter().filter(|it| it.name == *name).collect();
    if tables.is_empty() {
        return Ok(false);
    }
    let differs = [
        tables.iter().all(|it| !it.key.contains(key)),
        tables.iter().all(|it| it.iops != *iops),
        tables.iter().all(|it| it.bytes_per_second != *bytes_per_second),
    ];
    unlike(&format!("[[host]] {name} of the configuration"), differs)
}

/// The error for a host that no command has added.
fn not_added(served: &Served, config: &Config, name: &str) -> Error {
    if config.host.iter().all(|it| it.name != name) {
        let message = format!("target `{}` has no host `{name}`", served.exports.name);
        return Error::new(Code::NotFound, message);
    }
    let (code, place, remedy) = match (defined_by(served, name), &served.args.config) {
        (DefinedBy::File, Some(path)) => (
            Code::Config,
            path.display().to_string(),
            "remove it there, and have the target read that again (`systemctl reload \
             tyche-target`, or SIGHUP)",
        ),
        _ => (
            Code::Usage,
            "the command line of the target".to_owned(),
            "it is gone when the target starts without it",
        ),
    };
    let message = format!("host `{name}` is from {place}, not from `tyche host add`: {remedy}");
    Error::new(code, message)
}

/// The place of a host of the configuration.
fn defined_by(served: &Served, name: &str) -> DefinedBy {
    match served.args.hosts.iter().any(|it| it.name == name) {
        true => DefinedBy::CommandLine,
        false => DefinedBy::File,
    }
}

/// The hosts that the target knows by their keys.
pub(super) fn known(served: &Served) -> KnownHosts {
    let config = served.exports.current().clone();
    let mut hosts = BTreeMap::<_, KnownHost>::new();
    let number = |it: Option<NonZeroU64>| it.map(NonZeroU64::get);
    for Host { name, key, iops, bytes_per_second } in &config.host {
        let known = hosts.entry(name.clone()).or_insert_with(|| KnownHost {
            host: name.clone(),
            defined_by: defined_by(served, name),
            ..KnownHost::default()
        });
        known.keys.extend(key.iter().map(ToString::to_string));
        known.fingerprints.extend(key.iter().map(PublicKey::fingerprint));
        // The lower limits of several tables count.
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        known.iops = least(known.iops, number(*iops));
        known.bytes_per_second = least(known.bytes_per_second, number(*bytes_per_second));
    }
    let counting = config.added_hosts.into_iter().map(|host| (host, None));
    let idle = config.idle_hosts.into_iter().map(|(host, why)| (host, Some(why)));
    for (host, problem) in counting.chain(idle) {
        let known = KnownHost {
            keys: vec![host.key.to_string()],
            fingerprints: vec![host.key.fingerprint()],
            defined_by: DefinedBy::Command,
            problem,
            iops: number(host.iops),
            bytes_per_second: number(host.bytes_per_second),
            connected: Vec::new(),
            host: host.name.clone(),
        };
        hosts.insert(host.name, known);
    }
    KnownHosts {
        target: served.exports.name.clone(),
        problem: None,
        hosts: hosts.into_values().collect(),
    }
}

fn changed(
    served: &Served,
    name: &str,
    (host, changed, ended): (Option<&AddedHost>, bool, usize),
) -> HostChanged {
    HostChanged {
        target: served.exports.name.clone(),
        host: name.to_owned(),
        key: host.map(|host| host.key.to_string()),
        fingerprint: host.map(|host| host.key.fingerprint()),
        changed,
        sessions_ended: ended as u64,
    }
}
