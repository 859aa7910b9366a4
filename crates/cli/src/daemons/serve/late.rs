//! Links that come later: a link or a port of FCoE that is missing costs the others nothing, and is
//! served when it comes. Without names, so is every interface that comes up.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tyche_link::packet::{Changes, usable_interfaces};

use super::Served;
use super::links::{Missing, What};
use crate::shared::error::Result;

/// The interval at which missing links are tried, beside changes of interfaces and addresses.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// The same when none is missing: a message of the kernel may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The time for an interface that has just come up to get its carrier, its master, and its address.
const SETTLE: Duration = Duration::from_millis(100);
/// The most links that a target takes without being told their names: each costs a thread, and a
/// machine may make interfaces for ever.
const TAKEN_MAX: usize = 64;

/// Serves the missing links in the target's table as soon as they open, and if it takes all,
/// interfaces that come up. The thread that does ends when there is nothing to wait for, and is
/// started again by the next call.
///
/// # Errors
/// The system's error when the thread cannot be created.
pub(super) fn watch(served: &Arc<Served>) -> io::Result<()> {
    let mut table = served.links();
    let has_work = !table.missing.is_empty() || served.opener.takes_all;
    if !has_work || table.is_watched {
        return Ok(());
    }
    let changes = Changes::open().inspect_err(|error| {
        tracing::warn!("interfaces that come up are noticed late: rtnetlink: {error}");
    });
    let weak = Arc::downgrade(served);
    let watch = move || {
        let mut refused = BTreeMap::new();
        let mut limit = TRY_EVERY;
        loop {
            match &changes {
                Ok(changes) if changes.wait(limit).is_ok() => {}
                _ => thread::sleep(TRY_EVERY),
            }
            thread::sleep(SETTLE);
            take_missing(&weak);
            // Nothing keeps the target from ending for long.
            let Some(served) = weak.upgrade().filter(|it| !it.is_stopping()) else { return };
            take_new(&served, &mut refused);
            let mut table = served.links();
            limit = if table.missing.is_empty() { LOOK_EVERY } else { TRY_EVERY };
            if table.missing.is_empty() && !served.opener.takes_all {
                table.is_watched = false;
                return;
            }
        }
    };
    thread::Builder::new().name("tyche-late".into()).spawn(watch)?;
    table.is_watched = true;
    Ok(())
}

/// Tries the missing ones, at the same time: the name of an address may take long to be found.
fn take_missing(weak: &Weak<Served>) {
    let Some(missing) = weak.upgrade().map(|it| it.links().missing.clone()) else { return };
    thread::scope(|scope| {
        for Missing { what, .. } in missing {
            let attempt = move || try_missing(weak, &what);
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, attempt) {
                tracing::debug!(%error, "no thread to try a missing link");
            }
        }
    });
}

/// Tries a missing one.
fn try_missing(weak: &Weak<Served>, what: &What) {
    let name = what.name();
    let is_it = |it: &Missing| it.what == *what;
    match serve(weak, what) {
        // It is not waited for any more.
        Ok(false) => {}
        Ok(true) => {
            tracing::info!("{name} is there: it is served");
            if let Some(served) = weak.upgrade() {
                served.links().missing.retain(|it| !is_it(it));
            }
        }
        Err(error) => {
            let Some(served) = weak.upgrade() else { return };
            let mut table = served.links();
            let missing = table.missing.iter_mut().find(|it| is_it(it));
            if let Some(it) = missing.filter(|it| it.why != error.message) {
                tracing::warn!("{error}; going on without it");
                it.why = error.message;
            }
        }
    }
}

/// Opens a missing one, and serves it. False if it is not waited for any more.
fn serve(weak: &Weak<Served>, what: &What) -> Result<bool> {
    let Some(served) = weak.upgrade() else { return Ok(false) };
    match what {
        What::Link(name) => {
            let opener = Arc::clone(&served.opener);
            drop(served);
            let links = opener.open_one(name)?;
            let Some(served) = weak.upgrade() else { return Ok(false) };
            served.links().serve_awaited(&served.exports.target, links)
        }
        what => served.exports.fcoe.add(what).map(|()| true),
    }
}

/// Takes interfaces that have come up. `refused`: those that can't be opened, and why.
fn take_new(served: &Served, refused: &mut BTreeMap<String, String>) {
    if !served.opener.takes_all {
        return;
    }
    let before = served.links().own_names();
    if before.len() >= TAKEN_MAX {
        return;
    }
    let up: Vec<_> = usable_interfaces().unwrap_or_default();
    let up: Vec<_> = up.into_iter().map(|it| it.name).collect();
    refused.retain(|name, _| up.contains(name));
    for name in up.into_iter().filter(|name| !before.contains(name)) {
        let opened = served.opener.open_one(&name);
        match opened.and_then(|links| served.links().serve(&served.exports.target, links)) {
            Ok(()) => tracing::info!("{name} has come up: it is served"),
            Err(error) => {
                let before = refused.insert(name, error.message.clone());
                if before.as_ref() != Some(&error.message) {
                    tracing::warn!("{error}; going on without it");
                }
            }
        }
    }
    if served.links().own_names().len() >= TAKEN_MAX {
        tracing::warn!("{TAKEN_MAX} interfaces are served: others that come up are not");
    }
}
