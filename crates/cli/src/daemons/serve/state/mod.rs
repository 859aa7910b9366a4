//! The state that a target keeps over restarts: its UUID, and for each export the UUID, the
//! generation within which completed writes survive, and the last writer.
//!
//! ```text
//! /var/lib/tyche/targets/TARGET/target.json           on stable storage
//! /var/lib/tyche/targets/TARGET/exports/EXPORT.json   on stable storage
//! /var/lib/tyche/targets/TARGET/exports.json          exports added by command, leftovers of
//!                                                     pools, and exports whose other files
//!                                                     are to go, or to get another name
//! /var/lib/tyche/targets/TARGET/links.json            links added by command
//! /var/lib/tyche/targets/TARGET/hosts.json            hosts added by command
//! /var/lib/tyche/targets/TARGET/access.json           hosts allowed and denied by command
//! /var/lib/tyche/targets/TARGET/luns.json             their LUNs, if they have some
//! /var/lib/tyche/targets/TARGET/n-port-ids/WWPN       the N_Port_ID of that port of FCoE
//! /run/tyche/state/TARGET/EXPORT                      UUID of the last version of that file
//! ```
//!
//! A record may be out of date or foreign. A record restored from a backup, an older version, or a
//! record in a restored virtual machine is out of date: its export gets a new generation, so that
//! hosts distrust their cached writes, and no absent session may resume to write. A record of
//! another machine is ignored.
//!
//! If the state can't be written, only writers are refused. A loss is then noted at least in the
//! run-time directory, which outlives the process.

mod added;
mod decisions;
mod hosts;
mod leftover;
mod luns;
mod machine;
mod record;
mod renamed;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tyche_engine::identity;
use tyche_native::{RememberWriter, RenewGeneration};
use tyche_proto::{Loss, Writer};
use uuid::Uuid;

use super::config::Export;
use super::names::file_name;
use crate::shared::error::{Code, Error, Result};
use crate::shared::runtime;
use added::{Kept as Added, Removed};
use record::{FileIdentity, Record, replace};
use renamed::Renamed;

pub(super) use decisions::{Decision, Decisions};
pub(super) use hosts::HOSTS_MAX;
pub(super) use leftover::Leftover;

/// Maximum length in bytes of the reason that a host is told when it can't write.
const REFUSAL_MAX: usize = 120;

/// See the [module](self).
pub(super) struct State {
    dir: PathBuf,
    notes: PathBuf,
    /// Whether hosts of FCoE are the only ones.
    is_fcoe: bool,
    /// The permanent exports whose disks are there, by name.
    exports: BTreeMap<String, Kept>,
    /// The numbers of the exports as logical units, by name, if they have any.
    luns: BTreeMap<String, u8>,
    /// Files in pools that are to be no exports.
    leftovers: Vec<Leftover>,
    /// Exports whose records are to be forgotten, and those whose records are to follow them.
    removed: Vec<Removed>,
    renamed: Vec<Renamed>,
}

/// Properties of an export's disk.
pub(super) struct Disk<'a> {
    /// The export's name.
    pub(super) name: &'a str,
    /// The path in the configuration.
    pub(super) path: &'a str,
    /// The identity that the disk reports.
    pub(super) identity: Option<&'a str>,
    /// The UUID in the configuration.
    pub(super) uuid: Option<Uuid>,
    /// Whether completed writes may be volatile.
    pub(super) cached: bool,
    /// Whether the administrator has accepted that it is another disk than before.
    pub(super) accepted: bool,
}

/// UUID, generation and last writer of an export.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportRecord {
    pub(super) uuid: Uuid,
    pub(super) generation: Uuid,
    /// The last session admitted to write, if that matters.
    pub(super) writer: Option<Writer>,
}

/// The file of the exports that were added by command.
const ADDED: &str = "exports.json";
/// The file of the links that were added by command.
const LINKS: &str = "links.json";
/// The file of the numbers of exports as logical units.
const LUNS: &str = "luns.json";

/// A record and its files.
struct Kept {
    record: Record,
    path: PathBuf,
    /// The file that notes the record's last version.
    note: PathBuf,
    /// Why the record can't be read, so that it must not be overwritten.
    unreadable: Option<(ErrorKind, String)>,
    /// Whether the generation is that of a former life of the target.
    continues: bool,
}

/// The record of the target itself.
#[derive(Serialize, Deserialize)]
struct TargetRecord {
    uuid: Uuid,
    machine: Option<Uuid>,
}

/// A writer that matches no session.
pub(super) fn nobody() -> Writer {
    let nobody = Uuid::new_v4();
    Writer { session: nobody, device: nobody, host: None }
}

impl State {
    /// The state of the target with that name; `is_fcoe`: whether hosts of FCoE are its only ones.
    pub(super) fn open(target: &str, is_fcoe: bool) -> Self {
        let name = file_name(target);
        let dir = identity::state_dir().join("targets").join(&name);
        let (exports, luns, notes) = (BTreeMap::new(), BTreeMap::new(), runtime::state(&name));
        let (leftovers, removed, renamed) = Default::default();
        Self { dir, notes, is_fcoe, exports, luns, leftovers, removed, renamed }
    }

    /// The target's UUID, made once. If it can't be kept, it is derived from the machine's
    /// identity.
    ///
    /// # Errors
    /// If the machine's identity can't be had either.
    pub(super) fn target(&self, name: &str) -> Result<Uuid> {
        let path = self.dir.join("target.json");
        let machine = identity::keeper();
        let kept = fs::read_to_string(&path).and_then(|text| Ok(serde_json::from_str(&text)?));
        let kept = kept.map(|kept: TargetRecord| (kept.machine == machine).then_some(kept.uuid));
        let kept = match kept {
            Ok(Some(uuid)) => return Ok(uuid),
            Ok(None) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        let uuid = Uuid::new_v4();
        let text = || Ok(serde_json::to_string(&TargetRecord { uuid, machine })?);
        match kept.and_then(|()| replace(&path, |_| text())) {
            Ok(()) => Ok(uuid),
            Err(error) => {
                tracing::warn!("{}: {error}; the target's UUID is not kept", path.display());
                let host = crate::shared::identity::host()?;
                Ok(identity::derived("target", format!("{host}/{name}").as_bytes()))
            }
        }
    }

    /// The record of an export whose content ends with the process. With a cache it gets a new
    /// generation each time, even if its UUID stays the same; without one nothing in it can be
    /// lost, and the generation is nil.
    pub(super) fn passing(uuid: Option<Uuid>, cached: bool) -> ExportRecord {
        let uuid = uuid.unwrap_or_else(Uuid::new_v4);
        let generation = if cached { Uuid::new_v4() } else { Uuid::nil() };
        ExportRecord { uuid, generation, writer: None }
    }

    /// The record of a permanent export whose disk is missing, with the UUID that it had, until it
    /// is [added](Self::add). No session may write it before.
    pub(super) fn missing(&self, name: &str, uuid: Option<Uuid>) -> ExportRecord {
        let path = self.record_of(name);
        let record = Record::read(&path).ok().flatten().map(|(record, _)| record);
        let own = record.filter(|it| it.place.is_none_or(|it| it.machine == identity::keeper()));
        let recorded = || own.map(|record| record.uuid);
        let uuid = uuid.or_else(recorded).unwrap_or_else(Uuid::new_v4);
        ExportRecord { uuid, generation: Uuid::nil(), writer: Some(nobody()) }
    }

    /// Adds a permanent export, whose disk is there.
    ///
    /// # Errors
    /// `Config` if the disk is another one than before, or if it has no identity.
    pub(super) fn add(&mut self, disk: &Disk<'_>) -> Result<ExportRecord> {
        let (kept, known) = self.load(disk)?;
        self.exports.insert(disk.name.to_owned(), kept);
        // It has one already if the disk was missing at first.
        if let Some(lun) = self.luns.get(disk.name) {
            luns::keep(&self.dir.join(LUNS), known.uuid, *lun);
        }
        Ok(known)
    }

    /// The path of the record of an export.
    fn record_of(&self, name: &str) -> PathBuf {
        self.dir.join("exports").join(format!("{}.json", file_name(name)))
    }

    /// Loads the record of a permanent export, and brings it up to date.
    fn load(&self, disk: &Disk<'_>) -> Result<(Kept, ExportRecord)> {
        if disk.identity.is_none() && disk.uuid.is_none() {
            let message = format!(
                "export {}: {} has no identity of its own, so that another disk could take its \
                 place unnoticed; give it one in a --config file: uuid = \"{}\"",
                disk.name,
                disk.path,
                Uuid::new_v4()
            );
            return Err(Error::new(Code::Config, message));
        }
        let note = self.notes.join(file_name(disk.name));
        let kept = Kept::load(self.record_of(disk.name), note, (disk, self.is_fcoe))?;
        let Record { uuid, generation, writer, .. } = kept.record;
        Ok((kept, ExportRecord { uuid, generation, writer: Some(writer) }))
    }

    /// Whether the generation of an export is that of a former life of the target, with writes of
    /// which nothing is known here; `None` unless it is permanent and its disk is there.
    pub(super) fn continues(&self, export: &str) -> Option<bool> {
        self.exports.get(export).map(|kept| kept.continues)
    }

    /// The number of an export as a logical unit (LUN).
    ///
    /// # Errors
    /// `Config` if there are too many.
    pub(super) fn lun(&mut self, export: &str, uuid: Uuid) -> Result<u8> {
        let lasts = self.exports.contains_key(export);
        let lun = luns::assign(&self.dir.join(LUNS), self.luns.values().copied(), (uuid, lasts))?;
        self.luns.insert(export.to_owned(), lun);
        Ok(lun)
    }

    /// The exports that were added by command.
    ///
    /// # Errors
    /// `Config` if they can't be read.
    pub(super) fn added(&mut self) -> Result<Vec<Export>> {
        let Added { exports, leftovers, removed, renamed } = added::read(&self.dir.join(ADDED))?;
        (self.leftovers, self.removed, self.renamed) = (leftovers, removed, renamed);
        Ok(exports)
    }

    /// Whether there is a record of an export of that name.
    pub(super) fn has_record(&self, export: &str) -> bool {
        self.record_of(export).exists()
    }

    /// The UUID of a permanent export whose disk is there.
    pub(super) fn uuid(&self, export: &str) -> Option<Uuid> {
        self.exports.get(export).map(|kept| kept.record.uuid)
    }

    /// The identity that the disk of a permanent export has reported, if it has one.
    pub(super) fn disk(&self, export: &str) -> Option<String> {
        self.exports.get(export).and_then(|kept| kept.record.disk.clone())
    }

    /// Keeps the exports that were added by command, and files that are to be none: these from now
    /// on.
    ///
    /// # Errors
    /// `Other` if that is not possible. Those before are kept then.
    pub(super) fn keep_added<'a>(&self, exports: impl Iterator<Item = &'a Export>) -> Result<()> {
        let others = (&self.removed[..], &self.renamed[..]);
        added::keep_exports(&self.dir.join(ADDED), exports, &self.leftovers, others)
    }

    /// The links that were added by command.
    ///
    /// # Errors
    /// `Config` if they can't be read.
    pub(super) fn added_links(&self) -> Result<Vec<String>> {
        added::read_links(&self.dir.join(LINKS))
    }

    /// Keeps the links that were added by command: these from now on.
    ///
    /// # Errors
    /// `Other` if that is not possible. Those before are kept then.
    pub(super) fn keep_links(&self, links: &[String]) -> Result<()> {
        added::keep(&self.dir.join(LINKS), links.iter())
    }

    /// Has an export be removed for good with the next [`keep_added`](Self::keep_added), which may
    /// be the last thing that this process does. It is to be [forgotten](Self::forget) then.
    pub(super) fn remove(&mut self, export: &str) {
        let uuid = self.uuid(export);
        self.removed.push(Removed { export: export.to_owned(), uuid });
    }

    /// Takes back that an export is removed.
    pub(super) fn keep(&mut self, export: &str) {
        self.removed.retain(|it| it.export != export);
    }

    /// Forgets what a killed target has left of exports that it has removed, but of these.
    pub(super) fn forget_removed<'a>(&mut self, exports: impl Iterator<Item = &'a Export>) {
        let there: BTreeSet<_> = exports.map(|export| &*export.name).collect();
        for Removed { export, uuid } in std::mem::take(&mut self.removed) {
            if there.contains(&*export) {
                continue;
            }
            self.forget(&export);
            uuid.iter().for_each(|uuid| luns::forget(&self.dir.join(LUNS), *uuid));
            let decided = self.decisions().and_then(|mut it| it.retain(|of, _, _| of != export));
            if let Err(error) = decided {
                tracing::warn!("{error}; what was decided about {export} still counts");
            }
        }
    }

    /// Forgets an export that was removed for good: its record and its number. Whoever adds one of
    /// its name adds another disk.
    pub(super) fn forget(&mut self, export: &str) {
        self.keep(export);
        let kept = self.exports.remove(export);
        for file in [self.record_of(export), self.notes.join(file_name(export))] {
            if let Err(error) = fs::remove_file(&file)
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!("{}: {error}", file.display());
            }
        }
        if let (Some(_), Some(kept)) = (self.luns.remove(export), kept) {
            luns::forget(&self.dir.join(LUNS), kept.record.uuid);
        }
    }

    /// The decisions of commands about hosts.
    ///
    /// # Errors
    /// `Config` if it can't be read.
    pub(super) fn decisions(&self) -> Result<Decisions> {
        Decisions::load(self.dir.join("access.json"))
    }

    /// The directory of the N_Port_IDs of the target's ports.
    pub(super) fn n_port_ids(&self) -> PathBuf {
        self.dir.join("n-port-ids")
    }

    /// The callbacks of a running target: [`remember`](Self::remember) and [`renew`](Self::renew).
    pub(super) fn callbacks(state: &Arc<Mutex<Self>>) -> (RememberWriter, RenewGeneration) {
        let (first, also) = (Arc::clone(state), Arc::clone(state));
        (
            Box::new(move |export, writer| locked(&first).remember(export.as_str(), writer)),
            Box::new(move |export, loss| locked(&also).renew(export.as_str(), loss)),
        )
    }

    /// Records the session that was admitted to write an export.
    ///
    /// # Errors
    /// The reason and the remedy, for the host that is refused.
    pub(super) fn remember(&mut self, export: &str, writer: Writer) -> Result<(), String> {
        let Some(kept) = self.exports.get_mut(export) else { return Ok(()) };
        let before = kept.record.clone();
        kept.record.writer = writer;
        kept.record.boot = machine::boot();
        kept.save().map_err(|error| {
            kept.record = before;
            tracing::error!("{}: {error}; no host may write", kept.path.display());
            kept.refusal(&error)
        })
    }

    /// Records a new generation for an export whose completed writes may be lost.
    pub(super) fn renew(&mut self, export: &str, loss: Loss) -> Uuid {
        let random = Uuid::new_v4();
        let Some(kept) = self.exports.get_mut(export) else { return random };
        let generation = loss.renew(kept.record.generation, random);
        kept.record.generation = generation;
        kept.record.vm = machine::vm_generation();
        if let Err(error) = kept.save() {
            tracing::error!("{}: {error}; noted in {}", kept.path.display(), kept.note.display());
            // Invalidates the record on the disk: it now counts as older than the last.
            kept.note(&[Uuid::new_v4()]);
        }
        generation
    }
}

/// The state, locked. The registry of a target waits for it: not to be held while a disk is opened.
pub(super) fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Loads the record of a disk and brings it up to date.
    fn load(path: PathBuf, note: PathBuf, (disk, is_fcoe): (&Disk<'_>, bool)) -> Result<Self> {
        let about = format!("export {}", disk.name);
        let (read, unreadable) = match Record::read(&path) {
            Ok(read) => (read, None),
            Err(error) => (None, Some((error.kind(), error.to_string()))),
        };
        let own = read.filter(|(record, place)| {
            let machine = record.place.and_then(|place| place.machine);
            let is_own = machine.is_none() || machine == place.machine;
            if !is_own {
                tracing::warn!("{about}: {} is another machine's, and not used", path.display());
            }
            is_own
        });
        let own = own.filter(|(record, _)| disk.uuid.is_none_or(|uuid| uuid == record.uuid));
        let mut kept = Self {
            record: Record { is_fcoe, ..fresh(disk) },
            path,
            note,
            unreadable,
            continues: false,
        };
        let mut changed = own.is_none();
        if let Some((record, place)) = own {
            disk.check(&record)?;
            let suspected =
                kept.suspected_loss((&record, place), (disk, is_fcoe), machine::vm_generation());
            // Writes from the time with a cache may be in it until the kernel ends.
            let cached = disk.cached || (record.cached && record.boot == machine::boot());
            kept.record = Record { cached, is_fcoe, ..record.clone() };
            kept.record.disk = disk.identity.map(str::to_owned);
            kept.continues = suspected.is_none();
            changed = kept.record.disk != record.disk
                || (record.cached, record.is_fcoe) != (cached, is_fcoe);
            if let Some((why, loss)) = suspected {
                tracing::warn!("{about}: {why}: hosts are told that writes may be lost");
                kept.record = Record {
                    generation: loss.renew(record.generation, Uuid::new_v4()),
                    writer: if loss == Loss::Content { nobody() } else { record.writer },
                    boot: machine::boot(),
                    vm: machine::vm_generation(),
                    ..kept.record
                };
                changed = true;
            }
        }
        if changed && let Err(error) = kept.save() {
            tracing::warn!("{}: {error}; no host may write", kept.path.display());
        }
        Ok(kept)
    }

    /// Why completed writes may be lost since the record was written, if so, and which of them:
    /// with `Loss::Content` any, and another session may have written since.
    fn suspected_loss(
        &self,
        (record, place): (&Record, FileIdentity),
        (disk, is_fcoe): (&Disk<'_>, bool),
        vm: Option<Uuid>,
    ) -> Option<(&'static str, Loss)> {
        if disk.is_another(record) {
            Some(("another disk has taken its place", Loss::Content))
        } else if vm.is_some() && record.vm.is_some() && vm != record.vm {
            Some(("this virtual machine was restored to an earlier state", Loss::Content))
        } else if record.place != Some(place) {
            Some(("its record is a copy, of unknown age", Loss::Content))
        } else if self.noted().is_some_and(|last| !last.contains(&record.version)) {
            Some(("its record is not the last version", Loss::Content))
        } else if is_fcoe && !record.is_fcoe {
            // The sessions that were there may be away, and must not write what they had cached:
            // nobody will know when hosts of FCoE have written since.
            Some(("it was served over other links than FCoE", Loss::Content))
        } else if (record.cached || disk.cached) && record.boot != machine::boot() {
            Some(("the machine was rebooted", Loss::Cache))
        } else {
            None
        }
    }

    /// Writes the record to stable storage, and notes that it is the last version.
    fn save(&mut self) -> io::Result<()> {
        if let Some((kind, error)) = &self.unreadable {
            return Err(io::Error::new(*kind, error.clone()));
        }
        let before = self.record.version;
        self.record.version = Uuid::new_v4();
        // A process killed between these steps leaves one of these versions behind.
        self.note(&[before, self.record.version]);
        if let Err(error) = self.record.write(&self.path) {
            self.record.version = before;
            return Err(error);
        }
        self.note(&[self.record.version]);
        Ok(())
    }

    /// Notes which versions of the record may be the last: not permanently, but where a killed
    /// process can't lose it.
    fn note(&self, versions: &[Uuid]) {
        let lines: Vec<_> = versions.iter().map(Uuid::to_string).collect();
        let noted = replace(&self.note, |_| Ok(lines.join("\n")));
        if let Err(error) = noted {
            tracing::warn!("{}: {error}", self.note.display());
        }
    }

    /// The noted versions, if there are any.
    fn noted(&self) -> Option<Vec<Uuid>> {
        let text = fs::read_to_string(&self.note).ok()?;
        Some(text.lines().filter_map(|line| Uuid::parse_str(line).ok()).collect())
    }

    /// The detail of the refusal to a host that can't be admitted to write: cause and remedy. The
    /// reason itself says that the target cannot keep who writes.
    fn refusal(&self, error: &io::Error) -> String {
        let dir = identity::state_dir();
        let say = |dir: &Path, file: &Path| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                format!("no space is left: make room in {}", dir.display())
            }
            ErrorKind::ReadOnlyFilesystem => {
                format!("it is read-only: remount {} writable", dir.display())
            }
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                format!("its state is damaged: remove {}, restart it", file.display())
            }
            _ => format!("{}: {error}", dir.display()),
        };
        let text = say(&dir, &self.path);
        if text.len() <= REFUSAL_MAX {
            return text;
        }
        let mut text = say(Path::new("its state directory"), Path::new("the file its log names"));
        let end = (0..=REFUSAL_MAX.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text
    }
}

impl Disk<'_> {
    fn is_another(&self, record: &Record) -> bool {
        record.disk.is_some() && record.disk.as_deref() != self.identity
    }

    /// # Errors
    /// `Config` if the disk is another one than before, and the administrator has not accepted
    /// that.
    fn check(&self, record: &Record) -> Result<()> {
        if self.accepted || !self.is_another(record) {
            return Ok(());
        }
        let (was, is) = (record.disk.as_deref(), self.identity);
        let message = format!(
            "export {name}: {} is not the disk that {name} was (it was `{}`, this is `{}`); \
             correct the path, give it another name, or if it is to be {name} from now on, start \
             once with --accept-changed-disk {name}",
            self.path,
            was.unwrap_or_default(),
            is.unwrap_or("a disk without identity"),
            name = self.name,
        );
        Err(Error::new(Code::Config, message))
    }
}

/// The record of an unknown disk: no session can have written it before.
fn fresh(disk: &Disk<'_>) -> Record {
    Record {
        uuid: disk.uuid.unwrap_or_else(Uuid::new_v4),
        disk: disk.identity.map(str::to_owned),
        generation: Uuid::new_v4(),
        cached: disk.cached,
        boot: machine::boot(),
        vm: machine::vm_generation(),
        writer: nobody(),
        version: Uuid::new_v4(),
        place: None,
        is_fcoe: false,
    }
}

#[cfg(test)]
mod tests;
