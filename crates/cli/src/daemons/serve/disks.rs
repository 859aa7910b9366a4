//! The disks of the exports, and those that are missing at the start: an export without its disk is
//! offline, which costs the others nothing, and comes online with it. A disk that does not answer
//! is one of them: each is opened in a thread of its own.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tyche_native::Arrival;
use tyche_proto::ExportKey;
use tyche_store::Store;
use tyche_store::file::{FileOptions, FileStore};
use tyche_store::late::LateStore;
use tyche_store::memory::MemoryStore;
use tyche_store::null::NullStore;

use super::Served;
use super::config::{Export, Source};
use super::pool::{self, LVM_LIMIT, Pool};
use super::state::{Disk, ExportRecord, State, locked};
use crate::output::bytes;
use crate::shared::error::{Code, CodedResult, Context, Error, Result};

/// Time from which populating a store's memory is logged.
const POPULATE_QUIET: Duration = Duration::from_secs(1);
/// The pause between two looks for disks that are missing. Shorter: a wrong disk in the place of
/// one is locked more often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The time that a missing disk has to be opened before the others are looked at. Its result is
/// taken at the next look otherwise; until then a wrong disk stays locked.
const PROMPT: Duration = Duration::from_millis(200);
/// The time that disks have to be opened at the start. Longer: one that hangs keeps the others from
/// being served. Shorter: those that spin up are missing at first. Volumes that LVM is to activate
/// have its limit.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// A disk that is missing, or is another than it was.
pub(super) struct MissingDisk {
    pub(super) export: Export,
    /// Why it was missing at the start.
    pub(super) why: Error,
    /// Whether the administrator has accepted that it is another disk than before.
    accepted: bool,
    store: Arc<LateStore>,
    /// The attempt to open it that has no result yet.
    opening: Option<Opening>,
}

/// The attempt to open the file or device of an export, in a thread of its own.
pub(super) struct Opening {
    result: Receiver<Result<Opened>>,
    /// The time until which it is waited for at the start.
    deadline: Instant,
}

/// An open file or device, and the identity that it reports.
type Opened = (FileStore, Option<String>);

/// Opens the disk of an export: its store, and its record. A disk that is missing, or another one
/// than before, is returned as well: the store waits for it. `opening` is the attempt
/// that was begun, if it is a file.
///
/// # Errors
/// The configuration is wrong, or a disk in memory has no room.
pub(super) fn open(
    export: &Export,
    accepted: bool,
    state: &Mutex<State>,
    mut opening: Option<Opening>,
) -> Result<(Arc<dyn Store>, ExportRecord, Option<MissingDisk>)> {
    let source = export.source().map_err(|message| Error::new(export.place.code(), message))?;
    let Some(deadline) = opening.as_ref().map(|it| it.deadline) else {
        let store = open_passing(export, &source)?;
        let known = State::passing(export.uuid, store.geometry().write_cache);
        return Ok((store, known, None));
    };
    match take(export, accepted, state, (&mut opening, deadline)) {
        Ok((store, known)) => Ok((Arc::new(store), known, None)),
        Err(error) => {
            let known = locked(state).missing(&export.name, export.uuid);
            let store = Arc::new(LateStore::new(error.message.clone()));
            let late = Arc::clone(&store);
            let export = export.clone();
            let missing = MissingDisk { export, why: error, accepted, store, opening };
            Ok((late, known, Some(missing)))
        }
    }
}

/// Takes the file or device of an export, if it is open by the deadline and is the right one.
fn take(
    export: &Export,
    accepted: bool,
    state: &Mutex<State>,
    (opening, deadline): (&mut Option<Opening>, Instant),
) -> Result<(FileStore, ExportRecord)> {
    let (store, identity) = Opening::await_result(opening, export, deadline)?;
    let known = locked(state).add(&Disk {
        name: &export.name,
        path: &export.path,
        identity: identity.as_deref(),
        uuid: export.uuid,
        cached: store.geometry().write_cache,
        accepted,
    })?;
    Ok((store, known))
}

/// Looks for missing disks until all are there or their exports are removed, in a thread of its
/// own, which waits for none of them for long.
pub(super) fn await_missing(
    mut missing: Vec<(ExportKey, MissingDisk)>,
    served: &Arc<Served>,
) -> io::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let served = Arc::downgrade(served);
    let look = move || {
        while !missing.is_empty() && served.strong_count() > 0 {
            thread::sleep(LOOK_EVERY);
            let Some(pools) = served.upgrade().map(|it| it.exports.current().pool.clone()) else {
                return;
            };
            for (_, MissingDisk { export, opening, .. }) in &mut missing {
                opening.get_or_insert_with(|| Opening::begin(export, &pools, Duration::ZERO));
            }
            let deadline = Instant::now() + PROMPT;
            missing.retain_mut(|(key, disk)| {
                let Some(served) = served.upgrade() else { return false };
                // Another export may get its name, which has a record of its own.
                let _changing = served.exports.change();
                if !served.exports.is_served(*key) {
                    return false;
                }
                let Some(arrival) = disk.look(&served.exports.state, deadline) else { return true };
                served.exports.bring_online(*key, arrival);
                tracing::info!("export {}: its disk is there: online", disk.export.name);
                false
            });
        }
    };
    thread::Builder::new().name("tyche-disks".into()).spawn(look)?;
    Ok(())
}

impl MissingDisk {
    /// Takes the disk, if it is there now.
    fn look(&mut self, state: &Mutex<State>, deadline: Instant) -> Option<Arrival> {
        let Self { export, accepted, store: late, opening, .. } = self;
        match take(export, *accepted, state, (opening, deadline)) {
            Ok((store, ExportRecord { uuid, generation, writer })) => {
                late.arrive(Arc::new(store));
                Some(Arrival { uuid, generation, last_writer: writer })
            }
            Err(error) => {
                if late.misses(&error.message) {
                    tracing::error!("export {} stays offline: {error}", export.name);
                }
                None
            }
        }
    }
}

impl Opening {
    /// Begins to open the disk of an export if it is a file or device: what is wrong with it
    /// otherwise is said in its turn. A volume of one of the pools is activated before.
    pub(super) fn begin_if_file(export: &Export, pools: &[Pool]) -> Option<Self> {
        let is_file = matches!(export.source(), Ok(Source::File(_)));
        is_file.then(|| Self::begin(export, pools, FileOptions::default().lock_wait))
    }

    fn begin(export: &Export, pools: &[Pool], lock_wait: Duration) -> Self {
        let (sender, result) = sync_channel(1);
        let (export, told) = (export.clone(), sender.clone());
        let path = Path::new(&export.path);
        let thin = pool::thin_of(pools, &export).filter(|_| !path.exists());
        let limit = if thin.is_some() { OPEN_LIMIT.max(LVM_LIMIT) } else { OPEN_LIMIT };
        let deadline = Instant::now() + limit;
        let open = move || {
            let activated = thin.map_or(Ok(()), |pool| pool.activate(Path::new(&export.path)));
            let opened = activated.and_then(|()| open_file(&export, lock_wait));
            // Nobody waits for it if the target has ended.
            let _ = told.send(opened);
        };
        if let Err(error) = thread::Builder::new().name("tyche-open".into()).spawn(open) {
            let _ = sender.send(Err(error.into()));
        }
        Self { result, deadline }
    }

    /// The result of the attempt, which is over then; an error if there is none by the deadline.
    fn await_result(this: &mut Option<Self>, export: &Export, deadline: Instant) -> Result<Opened> {
        let left = deadline.saturating_duration_since(Instant::now());
        match this.as_ref().map(|it| it.result.recv_timeout(left)) {
            Some(Ok(opened)) => {
                *this = None;
                opened
            }
            _ => Err(Error::new(Code::Device, format!("{} does not answer", export.path))),
        }
    }
}

/// Opens the file or device of an export.
fn open_file(export: &Export, lock_wait: Duration) -> Result<Opened> {
    let options = FileOptions {
        read_only: export.read_only,
        write_back: export.write_back,
        block_size: export.block_size,
        lock_wait,
        ..FileOptions::default()
    };
    let store = FileStore::open(&export.path, &options).coded()?;
    let (odd, block_size) = (store.odd_end(), store.geometry().block_size);
    if odd > 0 {
        let Export { name, path, .. } = export;
        tracing::warn!(
            "export {name}: the last {odd} bytes of {path} are no whole block of {block_size}: \
             they are not exported"
        );
    }
    let identity = store.identity().map(str::to_owned);
    Ok((store, identity))
}

/// Opens a store whose content ends with the process.
fn open_passing(export: &Export, source: &Source) -> Result<Arc<dyn Store>> {
    let block_size = export.block_size.unwrap_or(512);
    let about = format!("export {}", export.name);
    Ok(match *source {
        Source::Memory(size) | Source::Sparse(size) => {
            let store = MemoryStore::new(size, block_size)
                .map_err(|error| refused_memory(export, size, &error))?;
            if *source == Source::Memory(size) {
                populate(&store, &about)?;
            }
            Arc::new(if export.read_only { store.read_only() } else { store })
        }
        Source::Null(size) => {
            let store = NullStore::new(size, block_size).context(export.place.code(), about)?;
            Arc::new(if export.read_only { store.read_only() } else { store })
        }
        Source::File(_) => unreachable!("a file lasts"),
    })
}

/// The error for a disk of `size` bytes in memory: the size is invalid or too large.
fn refused_memory(export: &Export, size: u64, error: &io::Error) -> Error {
    let about = format!("export {}", export.name);
    if error.kind() == ErrorKind::InvalidInput {
        return Error::new(export.place.code(), format!("{about}: {error}"));
    }
    let size = bytes(size);
    Error::new(Code::Device, format!("{about}: {size} do not fit into memory: {error}; lower it"))
}

/// Populates a store's memory now, so that first writes are as fast as later ones.
fn populate(store: &MemoryStore, about: &str) -> Result<()> {
    let (began, size) = (Instant::now(), bytes(store.geometry().size));
    store.populate().map_err(|error| {
        let remedy = "lower it, or write sparse:SIZE to take memory only as it is written";
        Error::new(
            Code::Device,
            format!("{about}: cannot take {size} of memory: {error}; {remedy}"),
        )
    })?;
    let took = began.elapsed();
    if took > POPULATE_QUIET {
        tracing::info!("{about}: took {size} of memory in {:.1} s", took.as_secs_f64());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_end_of_a_file_is_named_and_left_out() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        let log = tempfile::NamedTempFile::new().unwrap();
        let said = |size| {
            disk.as_file().set_len(size).unwrap();
            log.as_file().set_len(0).unwrap();
            let export = Export::parse(&format!("vm1={}", disk.path().display())).unwrap();
            let to_file = tracing_subscriber::fmt().with_writer(log.reopen().unwrap()).finish();
            let opened = tracing::subscriber::with_default(to_file, || {
                open_file(&export, FileOptions::default().lock_wait).unwrap()
            });
            assert_eq!(opened.0.geometry().size, 4096);
            std::fs::read_to_string(log.path()).unwrap()
        };
        let said_of_odd = said(4096 + 100);
        for part in ["export vm1: the last 100 bytes of ", "no whole block of 512"] {
            assert!(said_of_odd.contains(part), "{said_of_odd}");
        }
        assert_eq!(said(4096), "");
    }
}
