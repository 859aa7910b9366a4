//! The exports of a running target, by name. What they are for its own hosts and for those of
//! FCoE is made here, from their configuration, their disks and their records.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tyche_engine::{Exported, RateLimit};
use tyche_fcoe::{TargetUnit, UnitRemoval, VisibleTo};
use tyche_native::{Arrival, Removal, Target, TargetExport};
use tyche_proto::wire::Name;
use tyche_proto::{ExportKey, HostId, SessionInfo};
use tyche_store::{ResizeError, Store};
use uuid::Uuid;

use super::access::Rights;
use super::checked_name;
use super::config::{Config, Export};
use super::disks::{self, MissingDisk, Opening};
use super::fcoe::Fcoe;
use super::state::{ExportRecord, State, locked};
use crate::output::bytes;
use crate::shared::error::{Code, Error, Result};
use crate::shared::links::LinkArgs;

/// The disk of an export, with its record, and why it is missing if it is.
pub(super) type OpenDisk = (Arc<dyn Store>, ExportRecord, Option<String>);

/// The exports, with the target and the ports of FCoE that serve them. The ports end first.
pub(super) struct Exports {
    /// The target's name.
    pub(super) name: String,
    pub(super) fcoe: Fcoe,
    pub(super) target: Target,
    pub(super) state: Arc<Mutex<State>>,
    /// The configuration at the start.
    pub(super) config: Config,
    /// The configuration as it was read last, with the exports that there are now.
    pub(super) current: Mutex<Config>,
    /// Held by whoever changes exports or links. It is not held while a link is opened, or while
    /// what was removed ends.
    pub(super) changing: Mutex<()>,
    /// The laboratory's wrapper around their stores.
    pub(super) link: LinkArgs,
}

impl Exports {
    /// Opens the configured disks and serves them; returns those that are missing.
    ///
    /// # Errors
    /// The configuration is wrong, a disk in memory has no room, or all disks are missing: then the
    /// error of the first.
    pub(super) fn open_all(
        &self,
        accepted: &[String],
        rights: &Rights,
    ) -> Result<Vec<(ExportKey, MissingDisk)>> {
        let Self { config, .. } = self;
        let begin = |export| Opening::begin_if_file(export, &config.pool);
        let openings: Vec<_> = config.export.iter().map(begin).collect();
        let mut missing = Vec::new();
        for (export, opening) in config.export.iter().zip(openings) {
            let accepted = accepted.contains(&export.name);
            let opened = disks::open(export, accepted, &self.state, opening)?;
            let (store, known, disk) = opened;
            let offline = disk.as_ref().map(|disk| disk.why.message.clone());
            let key = self.serve(export, rights, (store, known, offline))?;
            missing.extend(disk.map(|disk| (key, disk)));
        }
        if !missing.is_empty() && missing.len() == config.export.len() {
            return Err(missing.swap_remove(0).1.why);
        }
        for (_, MissingDisk { export, why, .. }) in &missing {
            tracing::error!("export {} is offline until its disk is there: {why}", export.name);
        }
        Ok(missing)
    }

    /// The configuration as it is served now.
    pub(super) fn current(&self) -> MutexGuard<'_, Config> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else changes the exports, and keeps others from it.
    pub(super) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all sessions in an orderly way, and serves nothing more.
    pub(super) fn stop(&self) {
        self.fcoe.stop();
        self.target.stop();
    }

    /// Opens the disk of one more export, which is to be [served](Self::serve).
    ///
    /// # Errors
    /// The disk is missing, or is another one than it was.
    pub(super) fn open(&self, export: &Export, accepted: bool) -> Result<OpenDisk> {
        let opening = self.begin_to_open(export);
        match disks::open(export, accepted, &self.state, opening)? {
            (_, _, Some(MissingDisk { why, .. })) => Err(why),
            (store, known, None) => Ok((store, known, None)),
        }
    }

    fn begin_to_open(&self, export: &Export) -> Option<Opening> {
        Opening::begin_if_file(export, &self.current().pool)
    }

    /// As [`open`](Self::open), but a disk that is missing is to be
    /// [waited for](disks::await_missing) once it is served.
    ///
    /// # Errors
    /// A disk in memory has no room.
    pub(super) fn open_or_miss(&self, export: &Export) -> Result<(OpenDisk, Option<MissingDisk>)> {
        let opening = self.begin_to_open(export);
        let (store, known, missing) = disks::open(export, false, &self.state, opening)?;
        let offline = missing.as_ref().map(|disk| disk.why.message.clone());
        Ok(((store, known, offline), missing))
    }

    /// Ends an export: hosts do not find it any more, and their sessions end. `None` if there is no
    /// such export.
    pub(super) fn remove(&self, name: &str) -> Option<ExportRemoval> {
        let key = self.target.export(name)?;
        let unit = self.fcoe.remove_unit(name);
        let removal = self.target.remove(key)?;
        Some(ExportRemoval { name: name.to_owned(), unit, removal })
    }

    /// The hosts that have an export connected, and the ports of FCoE that see it, in words.
    /// `visible`: the ports that may see it. It may take two seconds.
    pub(super) fn users(&self, name: &str, visible: &VisibleTo) -> Vec<String> {
        let report = self.target.report();
        let sessions = report.sessions.iter().filter(|session| session.export == name);
        let hosts = sessions.map(|session| session.host_name.clone());
        hosts.chain(self.fcoe.users(name, visible)).collect()
    }

    /// Serves an export with its disk to those who may have it; returns its key.
    ///
    /// # Errors
    /// Its name makes no sense, or its name or its UUID is another export's.
    pub(super) fn serve(
        &self,
        export: &Export,
        rights: &Rights,
        (mut store, known, offline): OpenDisk,
    ) -> Result<ExportKey> {
        let name = export_name(&export.name)
            .map_err(|error| Error { code: export.place.code(), ..error })?;
        let is_missing = offline.is_some();
        if let Some(wrapper) = &self.link.wrapper {
            store = wrapper.store(store, self.link.spin());
        }
        let key = self.target.add(TargetExport {
            name,
            uuid: known.uuid,
            generation: known.generation,
            store,
            shared: export.shared,
            last_writer: known.writer,
            allowed: rights.allowed_at(&export.name),
            offline,
        });
        let key = key.map_err(|taken| io::Error::new(ErrorKind::AlreadyExists, taken))?;
        self.target.set_limit(key, export.limit());
        let shown = self.show_unit(key, export, rights, (known.uuid, is_missing));
        // No part of it is served.
        shown.inspect_err(|_| drop(self.target.remove(key)))?;
        Ok(key)
    }

    /// Shows a served export to ports of FCoE, if the target has any.
    fn show_unit(
        &self,
        key: ExportKey,
        export: &Export,
        rights: &Rights,
        (uuid, is_missing): (Uuid, bool),
    ) -> Result<()> {
        if self.config.fcoe.is_empty() {
            return Ok(());
        }
        let mut state = locked(&self.state);
        let number = state.lun(&export.name, uuid)?;
        let continues = state.continues(&export.name).unwrap_or(is_missing);
        // The registry waits for it.
        drop(state);
        self.fcoe.add_unit(TargetUnit {
            number,
            exported: self.target.disk(key).expect("it was added"),
            uuid,
            shared: export.shared,
            initiators: rights.visible_at(&export.name),
            continues,
            generation: Some(Box::new(self.target.generation(key))),
        })
    }

    /// Checks that the LUN of an export is known, if the target has any, before it is served anew.
    ///
    /// # Errors
    /// `Config` if the record of LUNs can't be read.
    pub(super) fn check_lun(&self, name: &str) -> Result<()> {
        let mut state = locked(&self.state);
        match state.uuid(name).filter(|_| !self.config.fcoe.is_empty()) {
            Some(uuid) => state.lun(name, uuid).map(drop),
            None => Ok(()),
        }
    }

    /// Has the limits of a configuration count, of exports and of hosts.
    pub(super) fn set_limits(&self, config: &Config) {
        for export in &config.export {
            if let Some(key) = self.target.export(&export.name) {
                self.target.set_limit(key, export.limit());
            }
        }
        let mut hosts = BTreeMap::<Name, RateLimit>::new();
        for host in &config.host {
            // Several tables may be of one host, with a key in each: the lower limits count.
            if let Some(name) = Name::new(&host.name) {
                let limit = hosts.entry(name).or_default();
                *limit = limit.min(host.limit());
            }
        }
        let added = config.added_hosts.iter();
        hosts.extend(added.filter_map(|host| Some((Name::new(&host.name)?, host.limit()))));
        self.target.set_host_limits(&hosts);
    }

    /// All exports, with their disks.
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<Exported>> {
        self.target.exported().into_iter().map(|(_, exported)| exported)
    }

    /// The disk of the export of that name.
    pub(super) fn disk(&self, name: &str) -> Option<Arc<Exported>> {
        self.target.export(name).and_then(|key| self.target.disk(key))
    }

    /// The exports in words, each with its size and its LUN, if it has one.
    pub(super) fn described(&self) -> Vec<String> {
        let described = self.all().map(|exported| {
            let (name, size) = (exported.name(), exported.store().geometry().size);
            match self.fcoe.lun(&name) {
                // Its disk is missing.
                _ if size == 0 => format!("{name} (offline)"),
                Some(lun) => format!("{name} ({}, LUN {lun})", bytes(size)),
                None => format!("{name} ({})", bytes(size)),
            }
        });
        described.collect()
    }

    /// Whether there is an export of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.target.export(name).is_some()
    }

    /// Checks that there is an export of that name.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        if self.has(name) { Ok(()) } else { Err(self.no_export(name)) }
    }

    /// The error for a name that no export has.
    pub(super) fn no_export(&self, name: &str) -> Error {
        Error::new(Code::NotFound, format!("target `{}` has no export `{name}`", self.name))
    }

    /// As [`Target::resize`], for hosts of FCoE as well.
    pub(super) fn resize(&self, name: &str, size: Option<u64>) -> Result<Option<u64>, ResizeError> {
        let Some(key) = self.target.export(name) else { return Ok(None) };
        let size = self.target.resize(key, size)?;
        self.fcoe.resized(name);
        Ok(size)
    }

    /// Whether the export with that key is served.
    pub(super) fn is_served(&self, key: ExportKey) -> bool {
        self.target.disk(key).is_some_and(|it| self.target.export(&it.name()) == Some(key))
    }

    /// Serves an export whose disk has arrived.
    pub(super) fn bring_online(&self, key: ExportKey, arrival: Arrival) {
        if let Some(exported) = self.target.disk(key) {
            self.target.bring_online(key, arrival);
            self.fcoe.arrived(&exported.name(), arrival.uuid);
        }
    }

    /// Has these rights count: who may connect, and who may have each export. Returns the sessions
    /// that end.
    pub(super) fn set_access(&self, rights: &Rights) -> Vec<SessionInfo> {
        let exports = self.target.exported();
        let allowed = exports.iter().map(|(key, it)| (*key, rights.allowed_at(&it.name())));
        let ended = self.target.set_access(rights.access(), allowed.collect());
        let shown = exports.iter().map(|(_, it)| it.name()).map(|name| {
            let visible = rights.visible_at(&name);
            (name, visible)
        });
        self.fcoe.show(shown);
        ended
    }

    /// Has these rights count at an export. Returns the sessions that end, and the departure of
    /// ports that may not have it any more.
    pub(super) fn set_allowed(
        &self,
        name: &str,
        rights: &Rights,
    ) -> (Vec<SessionInfo>, tyche_fcoe::Departure) {
        let key = self.target.export(name);
        let ended = key.map(|key| self.target.set_allowed(key, rights.allowed_at(name)));
        (ended.unwrap_or_default(), self.fcoe.show([(name, rights.visible_at(name))]))
    }

    /// As [`Target::departure`].
    ///
    /// # Errors
    /// `NotFound` if there is no such export.
    pub(super) fn departure(
        &self,
        name: &str,
        host: Option<HostId>,
    ) -> Result<tyche_native::Departure> {
        let key = self.target.export(name).ok_or_else(|| self.no_export(name))?;
        Ok(self.target.departure(key, host))
    }
}

/// The end of an export. It keeps nothing of the target running.
pub(super) struct ExportRemoval {
    name: String,
    unit: Option<UnitRemoval>,
    removal: Removal,
}

impl ExportRemoval {
    /// The number of sessions that end.
    pub(super) fn sessions(&self) -> usize {
        self.removal.sessions().len()
    }

    /// Waits until nothing of its hosts is with its disk.
    ///
    /// # Errors
    /// `Device` if requests are still with its disk after `limit`. Hosts have it no more.
    pub(super) fn wait(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        let is_over = |unit: &UnitRemoval| unit.wait(left());
        if self.unit.as_ref().is_none_or(is_over) && self.removal.wait(left()).is_ok() {
            return Ok(());
        }
        let message = format!(
            "hosts do not have {} any more, but its disk has not finished requests within {} s",
            self.name,
            limit.as_secs_f64()
        );
        Err(Error::new(Code::Device, message))
    }
}

/// Checks the name of an export: hosts write it behind that of a target, and a slash.
pub(super) fn export_name(name: &str) -> Result<Name> {
    if name.starts_with('/') {
        let message = format!("`{name}`: the name of an export does not begin with `/`");
        return Err(Error::new(Code::Usage, message));
    }
    checked_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_export_does_not_begin_with_a_slash() {
        let error = export_name("/a").unwrap_err();
        assert_eq!(error.message, "`/a`: the name of an export does not begin with `/`");
        assert!(export_name("a/b").is_ok());
    }
}
