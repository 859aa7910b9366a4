//! Other names of exports, by command. An export has the one name or the other at any moment, also
//! if the target is killed, and stays the same disk: its UUID, its LUN, its last writer, who may
//! have it, and the file or volume in a pool that has its name go with it.

use std::path::{Path, PathBuf};

use tyche_proto::RenameRefused;

use super::by::By;
use super::changes::{added, changed, check, finish_renames, named, refuse_configured};
use super::config::{Config, Export};
use super::exports::export_name;
use super::pool::{self, Pool, VolumeId};
use super::state::{Leftover, locked};
use super::{Served, conflict, pool_files};
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::report::ExportChanged;

/// Gives an export that was added by command, and that no host has connected, another name. The
/// same again changes nothing.
///
/// # Errors
/// `NotFound` if there is no such export; `Config` or `Usage` if the configuration has it; `Exists`
/// if the name is another export's, or was; `Refused` if hosts have it connected; `Device` if its
/// disk is missing, or its file can't have the name; `Other` if it can't be kept. Nothing has
/// changed then.
pub(super) fn rename(served: &Served, from: &str, to: &str, by: &By<'_>) -> Result<ExportChanged> {
    let _changing = by.turn(served)?;
    let before = served.exports.current().clone();
    let Some(export) = named(&before, from) else {
        return was_renamed(served, &before, (from, to));
    };
    let name = export_name(to)?;
    if from == to {
        return Ok(changed(served, to, false, 0));
    }
    let key = served.exports.target.export(from).ok_or_else(|| served.exports.no_export(from))?;
    let refused = |why| refusal(from, why);
    check_name(served, &before, (export, to))?;
    served.exports.target.check_rename(key, name).map_err(refused)?;
    finish_renames(served)?;
    pool_files::settle(&served.exports.state, &before.export.iter().collect::<Vec<_>>());
    let place = Place::of(served, &before, (export, to))?;
    let wanted = renamed(served, &before, (export, to), place.as_ref())?;
    check(&wanted)?;
    let file =
        place.map(|place| NamedFile::prepare(served, &before, export, &place)).transpose()?;
    let renaming = Renaming { served, from, to, before: &before, wanted: &wanted, file };
    // Who may have it is decided about the one name or the other.
    let mut rights = served.rights();
    let kept = served.exports.target.rename(key, name, || renaming.keep());
    kept.map_err(refused).flatten().inspect_err(|_| renaming.take_back())?;
    rights.rename(from, to);
    let followed = locked(&served.exports.state).finish_renames(rights.decisions());
    drop(rights);
    renaming.clean_up(followed);
    *served.exports.current() = wanted;
    tracing::info!(export = to, former = from, "export {from} is {to} now");
    Ok(changed(served, to, true, 0))
}

/// The answer if there is no export to be renamed: it may have been before.
fn was_renamed(
    served: &Served,
    config: &Config,
    (from, to): (&str, &str),
) -> Result<ExportChanged> {
    let is_it = |it: &Export| it.renamed_from.as_deref() == Some(from);
    if named(config, to).is_some_and(is_it) {
        return Ok(changed(served, to, false, 0));
    }
    match config.idle.iter().find(|export| export.name == from) {
        None => Err(served.exports.no_export(from)),
        Some(idle) => {
            let what = "is not served: remove it, and add it by the other name";
            Err(Error::new(Code::Usage, format!("{} {what}", idle.described())))
        }
    }
}

/// Checks that an export is one to be renamed, and that the name is nobody's.
fn check_name(served: &Served, config: &Config, (export, to): (&Export, &str)) -> Result<()> {
    let uuid = locked(&served.exports.state).uuid(&export.name);
    let same = uuid.map_or_else(String::new, |uuid| format!(", with `uuid = \"{uuid}\"`"));
    let there = format!("give it that name{same}");
    refuse_configured(export, &there, "start the target with that name")?;
    let idle = config.idle.iter().find(|it| it.name == to);
    if let Some(other) = named(config, to).or(idle) {
        let message = format!("{} is there already", other.described());
        return Err(Error::new(Code::Exists, message));
    }
    if locked(&served.exports.state).has_record(to) || served.rights().has_decided(to) {
        let message = format!(
            "`{to}` was another export, and the target still knows who has written it, or who may \
             have it, should it come back: choose another name"
        );
        return Err(Error::new(Code::Exists, message));
    }
    Ok(())
}

fn refusal(name: &str, why: RenameRefused) -> Error {
    let (code, what) = match why {
        RenameRefused::Unknown => (Code::NotFound, "is gone".to_owned()),
        RenameRefused::Taken(taken) => (Code::Exists, format!("keeps its name: {taken}")),
        RenameRefused::InUse(hosts) => {
            let hosts = hosts.join(", ");
            let remedy = "disconnect it there first: hosts know an export by its name";
            (Code::Refused, format!("is connected by {hosts}; {remedy}"))
        }
        RenameRefused::Offline(why) => {
            (Code::Device, format!("is renamed when its disk is there: {why}"))
        }
    };
    Error::new(code, format!("{name} {what}"))
}

/// The configuration after it: clones of the export know it by its name, too.
fn renamed(
    served: &Served,
    before: &Config,
    (export, to): (&Export, &str),
    place: Option<&Place<'_>>,
) -> Result<Config> {
    let uuid = locked(&served.exports.state).uuid(&export.name);
    let mut wanted = before.clone();
    let all = wanted.export.iter_mut().chain(&mut wanted.idle);
    for origin in all.filter_map(|it| it.origin.as_mut()).filter(|it| Some(it.uuid) == uuid) {
        to.clone_into(&mut origin.export);
    }
    let it = wanted.export.iter_mut().find(|it| it.name == export.name);
    let it = it.ok_or_else(|| served.exports.no_export(&export.name))?;
    if let Some(Place { path, .. }) = place {
        let path = path.clone().into_os_string().into_string();
        it.path = path.map_err(|path| Error::new(Code::Config, format!("{path:?}: not UTF-8")))?;
    }
    it.renamed_from = Some(std::mem::replace(&mut it.name, to.to_owned()));
    Ok(wanted)
}

/// The place in a pool that a disk is to have under the other name of its export.
struct Place<'a> {
    pool: &'a Pool,
    path: PathBuf,
    /// The volume that it is; none if it is a file.
    volume: Option<VolumeId>,
}

impl<'a> Place<'a> {
    /// That of an export whose disk is in a pool and has its name; none of others, and of a volume
    /// that no target has made.
    fn of(
        served: &Served,
        config: &'a Config,
        (export, to): (&Export, &str),
    ) -> Result<Option<Self>> {
        let Some(pool) = pool::of(&config.pool, export)? else { return Ok(None) };
        if Path::new(&export.path) != pool.disk_path(&export.name)? {
            return Ok(None);
        }
        let identity = locked(&served.exports.state).disk(&export.name);
        let volume = pool.volume(export, identity.as_deref())?;
        let path = pool.disk_path(to)?;
        let is_moved = volume.is_some() || !pool.has_volumes();
        Ok(is_moved.then_some(Self { pool, path, volume }))
    }
}

/// A file in a pool that has two names, one of which is to go; or a volume, which has one.
struct NamedFile {
    /// The former name of a file, once the other one is kept.
    before: Option<Leftover>,
    /// The other name, until that is kept.
    now: Leftover,
}

impl NamedFile {
    /// Gives the file of an export the other name as well, or its volume the other name. A target
    /// that is killed then takes that back when it starts again.
    fn prepare(
        served: &Served,
        config: &Config,
        export: &Export,
        Place { pool, path, volume }: &Place<'_>,
    ) -> Result<Self> {
        let Export { name, path: present, .. } = export;
        if let Some(other) = conflict::sharing(&config.export, name) {
            let message = format!("{present} keeps its name: {} has it, too", other.described());
            return Err(Error::new(Code::Refused, message));
        }
        let disk = served.exports.disk(name).ok_or_else(|| served.exports.no_export(name))?;
        let this = match volume {
            Some(volume) => {
                let now = Leftover::volume(path, None, volume).beside(Path::new(present));
                Self { before: None, now }
            }
            None => {
                let file = disk.store().file();
                let file =
                    file.ok_or_else(|| Error::new(Code::Device, format!("{present}: not open")))?;
                let left = |at: &Path, other: &Path| {
                    let left = Leftover::new(at, None, file).context(Code::Device, at.display());
                    left.map(|left| left.beside(other))
                };
                let before = left(Path::new(present), path)?;
                if !before.is_there().context(Code::Device, present)? {
                    let message = format!("{present} is not the file that is served any more");
                    return Err(Error::new(Code::Device, message));
                }
                Self { before: Some(before), now: left(path, Path::new(present))? }
            }
        };
        let state = &served.exports.state;
        let kept = {
            let mut state = locked(state);
            state.leave(this.now.clone());
            state.keep_added(added(config))
        };
        let renamed = kept.and_then(|()| pool.rename(&**disk.store(), Path::new(present), path));
        renamed.inspect_err(|_| this.forget(served))?;
        Ok(this)
    }

    /// Takes the other name back.
    fn forget(&self, served: &Served) {
        match self.now.remove() {
            Ok(()) => locked(&served.exports.state).take_up(&self.now),
            Err(error) => tracing::warn!("{error}; that name goes when the target starts again"),
        }
    }
}

/// A new name that is being kept.
struct Renaming<'a> {
    served: &'a Served,
    from: &'a str,
    to: &'a str,
    before: &'a Config,
    wanted: &'a Config,
    file: Option<NamedFile>,
}

impl Renaming<'_> {
    /// Keeps the name: from then on the export has it.
    fn keep(&self) -> Result<()> {
        let mut state = locked(&self.served.exports.state);
        state.rename(self.from, self.to);
        if let Some(file) = &self.file {
            state.take_up(&file.now);
            file.before.iter().for_each(|before| state.leave(before.clone()));
        }
        let kept = state.keep_added(added(self.wanted));
        match kept {
            Ok(()) => state.follow(self.from, self.to),
            Err(_) => {
                state.keep_name(self.from);
                if let Some(file) = &self.file {
                    file.before.iter().for_each(|before| state.take_up(before));
                    state.leave(file.now.clone());
                }
            }
        }
        kept
    }

    /// Takes back what was prepared, if it is certain that the former name is kept.
    fn take_back(&self) {
        let kept = locked(&self.served.exports.state).keep_added(added(self.before));
        match (kept, &self.file) {
            (Ok(()), Some(file)) => file.forget(self.served),
            (Ok(()), None) => {}
            (Err(error), _) => {
                let Self { from, to, .. } = self;
                tracing::error!("export {from} may be {to} after a restart: {error}");
            }
        }
    }

    /// Removes what has the former name. What can't be removed is when the target starts again.
    fn clean_up(&self, followed: Result<()>) {
        let mut state = locked(&self.served.exports.state);
        let mut result = followed;
        if let Some(NamedFile { before: Some(before), .. }) = &self.file {
            match before.remove() {
                Ok(()) => state.take_up(before),
                Err(error) => result = Err(error.into()),
            }
        }
        if let Err(error) = state.keep_added(added(self.wanted)).and(result) {
            tracing::warn!("{error}; it is tried again when the target starts");
        }
    }
}
