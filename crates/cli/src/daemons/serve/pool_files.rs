//! Files and volumes of pools that are deleted: with their export, or because a killed target has
//! left them over.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::fs::fstat;

use super::config::{Config, Export};
use super::exports::Exports;
use super::state::{Leftover, State, locked};
use super::{conflict, pool};
use crate::shared::error::{Code, Context, Error, Result};

/// The time for a file system to remove what a killed target has left over.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// The file or volume of an export that is to be deleted with it; none if it is gone already.
///
/// # Errors
/// `Usage` if the export is in no pool, or no target has made its volume; `Refused` if another one
/// has the file; `Device` if there is another file by now, or it can't be looked at.
pub(super) fn find(
    exports: &Exports,
    config: &Config,
    export: &Export,
) -> Result<Option<Leftover>> {
    let Export { name, path, .. } = export;
    let in_no_pool = || {
        let message =
            format!("{name} ({path}) is in no pool: leave out --delete, which is for those");
        Error::new(Code::Usage, message)
    };
    let pool = pool::of(&config.pool, export)?.ok_or_else(in_no_pool)?;
    if let Some(other) = conflict::sharing(&config.export, name) {
        let message = format!("{path} is not deleted, because {} has it, too", other.described());
        return Err(Error::new(Code::Refused, message));
    }
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        found => found.context(Code::Device, path)?,
    };
    if pool.has_volumes() {
        let identity = locked(&exports.state).disk(name);
        let volume = pool.volume(export, identity.as_deref())?.ok_or_else(in_no_pool)?;
        return Ok(Some(Leftover::volume(Path::new(path), Some(name), &volume)));
    }
    let disk = exports.disk(name);
    let disk = disk.as_ref().and_then(|disk| disk.store().file());
    let disk = disk.ok_or_else(|| Error::new(Code::Device, format!("{path}: it is not open")))?;
    let open = fstat(disk).map_err(std::io::Error::from).context(Code::Device, path)?;
    if (open.st_dev, open.st_ino) != (found.dev(), found.ino()) {
        let message = format!("{path} is another file by now: leave out --delete");
        return Err(Error::new(Code::Device, message));
    }
    Leftover::new(Path::new(path), Some(name), disk).map(Some).context(Code::Device, path)
}

/// Deletes the file or volume of an export that is removed, which was kept as a leftover.
///
/// # Errors
/// `Device`: it is deleted when the target starts again.
pub(super) fn delete(state: &Mutex<State>, file: &Leftover) -> Result<()> {
    let what = if file.is_volume() { "volume" } else { "file" };
    let what = format!("the export is removed, and its {what} is not");
    file.remove().context(Code::Device, what)?;
    locked(state).take_up(file);
    Ok(())
}

/// Deletes what a killed target has left over. A file system that does not answer is not waited for
/// for long: then it is tried again later.
pub(super) fn settle(state: &Mutex<State>, exports: &[&Export]) {
    let leftovers = locked(state).leftovers(exports.iter().copied());
    if leftovers.is_empty() {
        return;
    }
    let is_export = |name: &String| exports.iter().any(|export| export.name == *name);
    let has_volumes = leftovers.iter().any(Leftover::is_volume);
    let limit = if has_volumes { pool::LVM_LIMIT } else { SETTLE_LIMIT };
    let (sender, removed) = sync_channel(leftovers.len());
    let work = move || {
        for left in leftovers {
            let result = left.remove();
            if sender.send((left, result)).is_err() {
                // Nobody waits for it after the limit.
                return;
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("tyche-settle".into()).spawn(work) {
        tracing::warn!("files of pools that no export has are left: {error}");
        return;
    }
    loop {
        match removed.recv_timeout(limit) {
            Ok((left, Ok(()))) => {
                let mut state = locked(state);
                state.take_up(&left);
                if let Some(export) = left.export.filter(|name| !is_export(name)) {
                    state.forget(&export);
                }
            }
            Ok((_, Err(error))) => tracing::warn!("a file that no export has is left: {error}"),
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("files that no export has are left: their pool does not answer");
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
