//! Changes of the properties of exports, by command.
//!
//! Limits, and who may have an export, change under its hosts. The other properties are those of
//! its open disk, which hosts have taken for given: it is opened anew while nobody has it.

use std::sync::Arc;
use std::time::Duration;

use super::access::Configured;
use super::by::By;
use super::changes::{added, changed, check, named, refuse_configured};
use super::config::{Config, Export, Source};
use super::exports::OpenDisk;
use super::plan::properties;
use super::state::locked;
use super::{Served, disks};
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::ExportChanged;
use crate::shared::setting::Setting;

/// Time limit for all threads to give up a disk that nobody has connected.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Changes properties of an export that was added by command: all of them, or none. The same again
/// changes nothing.
///
/// # Errors
/// `NotFound` if there is no such export; `Config` or `Usage` if the configuration has it, or the
/// change makes no sense; `Refused` if hosts have it connected that would not learn of the change;
/// `Device` if its disk can't be opened or served so; `Other` if it can't be kept. Nothing has
/// changed then.
pub(super) fn set(
    served: &Arc<Served>,
    name: &str,
    settings: &[Setting],
    by: &By<'_>,
) -> Result<ExportChanged> {
    let _changing = by.turn(served)?;
    let before = served.exports.current().clone();
    let idle = before.idle.iter().find(|export| export.name == name);
    let export = named(&before, name).or(idle).ok_or_else(|| served.exports.no_export(name))?;
    refuse_configured(export, "change it", "start the target with other options")?;
    if named(&before, name).is_none() {
        let what = "is not served: remove it, and add it as it is to be";
        return Err(Error::new(Code::Usage, format!("{} {what}", export.described())));
    }
    let mut now = export.clone();
    settings.iter().for_each(|setting| setting.apply(&mut now));
    if now == *export {
        return Ok(changed(served, name, false, 0));
    }
    let mut wanted = before.clone();
    wanted.export.iter_mut().filter(|it| it.name == name).for_each(|it| it.clone_from(&now));
    check(&wanted)?;
    let configured = Configured::of(&wanted, &served.own_keys.public())?;
    let keep = || locked(&served.exports.state).keep_added(added(&wanted));
    let disk = if properties(export) == properties(&now) {
        keep()?;
        None
    } else {
        refuse_in_use(served, export, settings)?;
        served.exports.check_lun(name)?;
        Some(reopen(served, (export, &now), keep)?)
    };
    let ended = served.rights().reconfigure(configured, served);
    if let Some(disk) = disk {
        let anew = served.exports.serve(&now, &served.rights(), disk);
        anew.inspect_err(|_| take_back(served, &before, export))?;
    }
    served.exports.set_limits(&Config { export: vec![now], ..wanted.clone() });
    *served.exports.current() = wanted;
    let settings: Vec<_> = settings.iter().map(Setting::to_string).collect();
    let settings = settings.join(" ");
    tracing::info!(export = name, settings, ended, "export {name} is changed: {settings}");
    Ok(changed(served, name, true, ended))
}

/// Refuses to open the disk of an export anew if somebody has it, or its content would be lost.
fn refuse_in_use(served: &Served, export: &Export, settings: &[Setting]) -> Result<()> {
    let name = &export.name;
    if !matches!(export.source(), Ok(Source::File(_))) {
        let message = format!(
            "{} loses its content when it is opened anew: remove it, and add it as it is to be",
            export.described()
        );
        return Err(Error::new(Code::Usage, message));
    }
    let target = &served.exports.target;
    if let Some(why) = target.export(name).and_then(|key| target.why_offline(key)) {
        let message = format!("{name} is changed so when its disk is there: {why}");
        return Err(Error::new(Code::Device, message));
    }
    let visible = served.rights().visible_at(name);
    let users = served.exports.users(name, &visible);
    if users.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = settings.iter().filter(|it| it.is_of_disk()).map(Setting::key).collect();
    let message = format!(
        "{name} is connected by {}, and hosts learn of `{}` when they connect: disconnect it there \
         first",
        users.join(", "),
        keys.join("`, `")
    );
    Err(Error::new(Code::Refused, message))
}

/// Opens the disk of an export anew with other properties, which are kept. It is to be served then.
///
/// # Errors
/// It can't be opened, or kept: then it is served as before, as soon as its disk is there.
fn reopen(
    served: &Arc<Served>,
    (before, now): (&Export, &Export),
    keep: impl FnOnce() -> Result<()>,
) -> Result<OpenDisk> {
    let exports = &served.exports;
    let removal = exports.remove(&before.name).ok_or_else(|| exports.no_export(&before.name))?;
    let opened = removal.wait(CLOSE_LIMIT);
    // Its lock is free then.
    drop(removal);
    let opened = opened.and_then(|()| exports.open(now, false));
    let kept = opened.and_then(|disk| keep().map(|()| disk));
    kept.inspect_err(|_| serve_as_before(served, before))
}

/// Takes back the properties of an export, whose disk is open with them and can't be served so.
fn take_back(served: &Arc<Served>, before: &Config, export: &Export) {
    let name = &export.name;
    if let Err(error) = locked(&served.exports.state).keep_added(added(before)) {
        tracing::error!("export {name} is as it was to be when the target starts again: {error}");
    }
    match Configured::of(before, &served.own_keys.public()) {
        Ok(configured) => _ = served.rights().reconfigure(configured, served),
        Err(error) => tracing::error!("{error}"),
    }
    serve_as_before(served, export);
}

/// Serves an export again that was closed, as soon as its disk is there.
fn serve_as_before(served: &Arc<Served>, export: &Export) {
    let again = served.exports.open_or_miss(export).and_then(|(disk, missing)| {
        let key = served.exports.serve(export, &served.rights(), disk)?;
        let missing = missing.map(|missing| (key, missing));
        disks::await_missing(missing.into_iter().collect(), served).map_err(Error::from)
    });
    if let Err(error) = again {
        let name = &export.name;
        tracing::error!("export {name} is served when the target starts again: {error}");
    }
}
