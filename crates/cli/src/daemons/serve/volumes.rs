//! Disks that are made in pools by command: new ones, snapshots and clones. Each is answered when
//! its file, its name and its export are on stable storage, and is not there at all before.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tyche_store::BackingError;

use super::by::By;
use super::changes::{added, changed, named, publish};
use super::config::{Config, DefinedAt, Export};
use super::exports::export_name;
use super::pool::{self, NewDisk, Pool};
use super::state::{Leftover, locked};
use super::{Served, pool_files};
use crate::output::bytes;
use crate::shared::control::NewFile;
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::report::{ExportChanged, ExportCloned, Origin};

/// Makes a sparse file or a thin volume in a pool, and serves it as an export, from now on. The
/// same again changes nothing. `accepted`: it may be another disk than the last one of that name.
///
/// # Errors
/// `NotFound` if there is no such pool; `Exists` if an export of that name says something else, or
/// a file of it is there; `Usage` if the size makes no sense; `Device` if the file can't be made;
/// otherwise as [`publish`]. Nothing has changed then.
pub(super) fn make(
    served: &Served,
    export: &Export,
    (NewFile { pool, size }, accepted): (&NewFile, bool),
    by: &By<'_>,
) -> Result<ExportChanged> {
    let _changing = by.turn(served)?;
    let config = served.exports.current().clone();
    let pool = find_pool(served, &config, pool)?;
    let export = Export { place: DefinedAt::Command, ..placed(pool, export)? };
    if let Some(other) = named(&config, &export.name) {
        let now = changed(served, &export.name, false, 0);
        let export = Export { origin: other.origin.clone(), ..export };
        let is_same = other.is_same(&export);
        return match now.size {
            _ if !is_same => Err(taken(other, &other.unlike(&export))),
            Some(now) if now != *size => {
                Err(taken(other, &format!("with {}: see `tyche export resize`", bytes(now))))
            }
            _ => Ok(now),
        };
    }
    let block_size = u64::from(export.block_size.unwrap_or(512));
    if *size == 0 || !size.is_multiple_of(block_size) {
        let message = format!("a disk of {size} bytes: write a multiple of {block_size}");
        return Err(Error::new(Code::Usage, message));
    }
    settle(served, &config);
    let disk = pool.new_disk(&export.name, *size)?;
    install(served, pool, (&disk, &export), accepted)?;
    Ok(changed(served, &export.name, true, 0))
}

/// Clones the disk of an export, as it is at one moment, and serves the clone as an export, from
/// now on; `read_only`: it is a snapshot, which nobody may write. The same again changes nothing.
///
/// # Errors
/// `NotFound` if there is no such export; `Exists` if the name is taken; `Device` if its disk is in
/// no pool, or can't be cloned; otherwise as [`publish`]. Nothing has changed then.
pub(super) fn clone(
    served: &Served,
    (export, new): (&str, &str),
    read_only: bool,
    by: &By<'_>,
) -> Result<ExportCloned> {
    let _changing = by.turn(served)?;
    let config = served.exports.current().clone();
    let source = named(&config, export).ok_or_else(|| served.exports.no_export(export))?;
    let uuid = locked(&served.exports.state).uuid(export);
    if let Some(other) = named(&config, new) {
        let is_same = |it: &&Origin| Some(it.uuid) == uuid && other.read_only == read_only;
        let origin = other.origin.as_ref().filter(is_same);
        let origin = origin.ok_or_else(|| taken(other, "and is none of that disk"))?;
        return Ok(cloned(served, (new, origin, read_only), None));
    }
    let pool = pool::of(&config.pool, source)?.ok_or_else(|| in_no_pool(source))?;
    let disk = served.exports.disk(export);
    let disk = disk.ok_or_else(|| served.exports.no_export(export))?;
    let usable = match disk.store().check_backing() {
        Err(error @ BackingError::Missing(_)) => Err(error.to_string()),
        Err(error) => Err(format!("{error}; such a disk is not cloned")),
        Ok(()) => Ok(()),
    };
    usable.map_err(|what| Error::new(Code::Device, format!("export {export}: {what}")))?;
    let uuid = uuid.ok_or_else(|| in_no_pool(source))?;
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let origin = Origin { export: export.to_owned(), uuid, time };
    let clone = Export {
        name: new.to_owned(),
        uuid: None,
        read_only,
        write_back: source.write_back && !read_only,
        origin: Some(origin.clone()),
        renamed_from: None,
        place: DefinedAt::Command,
        ..placed(pool, &Export { name: new.to_owned(), ..source.clone() })?
    };
    settle(served, &config);
    let identity = locked(&served.exports.state).disk(export);
    let draft = pool.clone_disk((source, &**disk.store()), identity.as_deref(), new)?;
    // Whoever was kept out of the one is kept out of the other.
    let before = served.rights().inherit(new, export)?;
    let installed = install(served, pool, (&draft, &clone), false);
    let pause = installed.inspect_err(|_| served.rights().disinherit(new, before))?.as_secs_f64();
    tracing::info!(export = new, of = export, pause, "export {new} is a clone of {export}");
    Ok(cloned(served, (new, &origin, read_only), Some(pause)))
}

/// The pool of that name.
fn find_pool<'a>(served: &Served, config: &'a Config, name: &str) -> Result<&'a Pool> {
    let found = config.pool.iter().find(|pool| pool.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = config.pool.iter().map(|pool| pool.name.as_str()).collect();
        let of = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
        let target = &served.exports.name;
        let message = format!("target `{target}` has no [[pool]] `{name}` ({of})");
        Error::new(Code::NotFound, message)
    })
}

/// The export with its file in a pool.
fn placed(pool: &Pool, export: &Export) -> Result<Export> {
    export_name(&export.name)?;
    let path = pool.disk_path(&export.name)?;
    let path = path.into_os_string().into_string();
    let path = path.map_err(|path| Error::new(Code::Config, format!("{path:?}: not UTF-8")))?;
    Ok(Export { path, ..export.clone() })
}

fn taken(other: &Export, how: &str) -> Error {
    Error::new(Code::Exists, format!("{} is there already, {how}", other.described()))
}

fn in_no_pool(export: &Export) -> Error {
    let Export { name, path, .. } = export;
    let message = format!(
        "{name} ({path}) is in no pool, and only files directly in the directory of a [[pool]] are \
         cloned, and volumes that were made in one: make one of its directory, or use what is \
         below it (lvcreate --snapshot)"
    );
    Error::new(Code::Device, message)
}

fn cloned(
    served: &Served,
    (export, origin, read_only): (&str, &Origin, bool),
    pause_s: Option<f64>,
) -> ExportCloned {
    let ExportChanged { target, export, size, .. } = changed(served, export, false, 0);
    let (size, changed) = (size.unwrap_or_default(), pause_s.is_some());
    let (origin, warnings) = (origin.clone(), Vec::new());
    ExportCloned { target, export, origin, read_only, size, changed, pause_s, warnings }
}

/// Deletes what an earlier command has left over.
fn settle(served: &Served, config: &Config) {
    pool_files::settle(&served.exports.state, &config.export.iter().collect::<Vec<_>>());
}

/// Puts a new disk into a pool, and serves it as an export. Returns how long writes to the disk
/// that it is a clone of had to wait.
fn install(
    served: &Served,
    pool: &Pool,
    (disk, export): (&NewDisk, &Export),
    accepted: bool,
) -> Result<Duration> {
    let (state, path) = (&served.exports.state, Path::new(&export.path));
    let is_new = !locked(state).has_record(&export.name);
    let record = is_new.then_some(&*export.name);
    let left = match disk {
        NewDisk::File(file, _) => {
            Leftover::new(path, record, file).context(Code::Device, &export.path)?
        }
        NewDisk::Volume(volume) => Leftover::volume(path, record, volume.id()),
    };
    let before = served.exports.current().clone();
    let kept = {
        let mut state = locked(state);
        state.leave(left.clone());
        state.keep_added(added(&before))
    };
    let put = kept.and_then(|()| pool.put(disk, path));
    // From here on it is kept as an export, or not at all.
    locked(state).take_up(&left);
    let made = put.and_then(|pause| publish(served, export, accepted).map(|()| pause));
    made.inspect_err(|_| {
        // Also if its name is not known to be on stable storage.
        if let Err(error) = left.remove() {
            tracing::error!("{error}: no export has that; it is tried again");
            let mut state = locked(state);
            state.leave(left);
            if let Err(error) = state.keep_added(added(&before)) {
                tracing::error!("{error}");
            }
        }
        if is_new {
            locked(state).forget(&export.name);
        }
    })
}
