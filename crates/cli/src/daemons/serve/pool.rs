//! Pools: places in which the disks of exports are made, cloned and deleted by command. One is a
//! directory with files ([`Directory`]), or a thin pool of LVM with volumes ([`ThinPool`]).
//!
//! A disk is made in steps that are the same for both: it is drafted ([`NewDisk`]), its leftover is
//! kept, it is put in its place, and it is kept as an export. Nothing that is there is overwritten.

mod directory;
mod lvm;
mod thin;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use tyche_store::Store;

use crate::shared::error::{Code, Error, Result};
use crate::shared::export::{Export, Source};
use directory::Directory;
pub(super) use directory::sync_directory;
pub(super) use lvm::LIMIT as LVM_LIMIT;
use thin::NewVolume;
pub(super) use thin::{ThinPool, ThinUsage, VolumeId};

/// The kinds of pools, before their places.
const DIRECTORY: &str = "dir:";
const THIN: &str = "lvm-thin:";

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// Its name at this target.
    pub(crate) name: String,
    #[serde(rename = "path", deserialize_with = "place")]
    pub(crate) place: Place,
}

/// The place of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Directory(Directory),
    Thin(ThinPool),
}

fn place<'de, D: Deserializer<'de>>(from: D) -> Result<Place, D::Error> {
    let text = String::deserialize(from)?;
    if let Some(pool) = text.strip_prefix(THIN) {
        return ThinPool::parse(pool).map(Place::Thin).map_err(D::Error::custom);
    }
    let dir = text.strip_prefix(DIRECTORY).map(Path::new).filter(|dir| dir.is_absolute());
    // Without a slash at its end, and the like.
    let dir = dir.map(|dir| Place::Directory(Directory::new(dir.components().collect())));
    dir.ok_or_else(|| D::Error::custom(no_place(&text)))
}

/// The error for a text that is no place, with the place that was meant if that can be told.
fn no_place(text: &str) -> String {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ':', '.']);
    let volume = text.strip_prefix("/dev/").unwrap_or(text);
    let is_volume = volume.split_once('/').is_some_and(|(a, b)| is_name(a) && is_name(b));
    let meant = match (is_volume, text.starts_with('/')) {
        (true, is_path) if !is_path || text.starts_with("/dev/") => format!("{THIN}{volume}"),
        (_, true) => format!("{DIRECTORY}{text}"),
        _ => {
            return "write a directory, such as \"dir:/srv/tyche\", or a thin pool of LVM, such as \
                    \"lvm-thin:vg0/pool0\""
                .to_owned();
        }
    };
    format!("the kind of the pool is missing: write {meant:?}")
}

/// A disk that is being made in a pool.
pub(super) enum NewDisk {
    /// A complete file without a name; how long writes to the one that it is a clone of have
    /// waited.
    File(File, Duration),
    /// A volume, of which nothing is there yet.
    Volume(NewVolume),
}

impl Pool {
    /// Its path, as the configuration has it.
    pub(crate) fn path(&self) -> String {
        match &self.place {
            Place::Directory(dir) => format!("{DIRECTORY}{dir}"),
            Place::Thin(pool) => format!("{THIN}{pool}"),
        }
    }

    /// Whether its disks are volumes, and not files.
    pub(crate) fn has_volumes(&self) -> bool {
        matches!(self.place, Place::Thin(_))
    }

    /// The path in it of the disk of an export of that name.
    ///
    /// # Errors
    /// `Usage` if the name is too long for it, `Config` if the path is not UTF-8.
    pub(super) fn disk_path(&self, export: &str) -> Result<PathBuf> {
        match &self.place {
            Place::Directory(dir) => Ok(dir.file(export)),
            Place::Thin(pool) => pool.device(export).map_err(|error| self.about(&error)),
        }
    }

    /// Whether the path of an export's disk leads into it. A volume may be in another pool of the
    /// same volume group.
    fn may_have(&self, export: &Export) -> bool {
        let Ok(Source::File(path)) = export.source() else { return false };
        match &self.place {
            Place::Directory(dir) => dir.has(&path),
            Place::Thin(pool) => pool.volume_at(&path).is_some(),
        }
    }

    /// Drafts a new disk of zeroes for an export.
    ///
    /// # Errors
    /// `Usage` if the size makes no sense in it; `Exists` if there is a volume of that name;
    /// `Device`, with the remedy.
    pub(super) fn new_disk(&self, export: &str, size: u64) -> Result<NewDisk> {
        let made = match &self.place {
            Place::Directory(dir) => dir.new_file(size).map(|it| NewDisk::File(it, Duration::ZERO)),
            Place::Thin(pool) => pool.new_volume(export, size).map(NewDisk::Volume),
        };
        made.map_err(|error| self.about(&error))
    }

    /// Drafts a clone of the open disk of an export, which may be written meanwhile. `identity`:
    /// the one that the disk has reported.
    ///
    /// # Errors
    /// `Exists` if there is a volume of that name; `Device`, with the remedy.
    pub(super) fn clone_disk(
        &self,
        (export, store): (&Export, &dyn Store),
        identity: Option<&str>,
        clone: &str,
    ) -> Result<NewDisk> {
        let made = match &self.place {
            Place::Directory(dir) => {
                let from = store.file().ok_or_else(|| {
                    let message = format!("{} is no regular file", export.path);
                    Error::new(Code::Device, message)
                });
                from.and_then(|from| dir.new_clone(from))
                    .map(|(file, pause)| NewDisk::File(file, pause))
            }
            Place::Thin(pool) => {
                let volume = pool.held(Path::new(&export.path), identity);
                volume.and_then(|from| pool.new_clone(clone, &from)).map(NewDisk::Volume)
            }
        };
        made.map_err(|error| self.about(&error))
    }

    /// Puts a new disk at its path, on stable storage. Returns how long writes to the disk that it
    /// is a clone of had to wait.
    ///
    /// # Errors
    /// `Exists` if something has that name; `Device` if the system refuses it.
    pub(super) fn put(&self, disk: &NewDisk, path: &Path) -> Result<Duration> {
        let put = match (&self.place, disk) {
            (Place::Directory(dir), NewDisk::File(file, pause)) => {
                dir.put(file, path).map(|()| *pause)
            }
            (Place::Thin(_), NewDisk::Volume(volume)) => volume.make(),
            _ => unreachable!("a disk is put into the pool that it was drafted for"),
        };
        put.map_err(|error| self.about(&error))
    }

    /// The volume of it that is the open disk of an export; none if it has files, or no target has
    /// made that. `identity`: the one that the disk has reported.
    ///
    /// # Errors
    /// `Device` if another volume has its name by now, or LVM can't be asked.
    pub(super) fn volume(
        &self,
        export: &Export,
        identity: Option<&str>,
    ) -> Result<Option<VolumeId>> {
        match &self.place {
            Place::Directory(_) => Ok(None),
            Place::Thin(pool) => {
                let volume = pool.found(Path::new(&export.path), identity);
                volume.map(|it| it.map(|it| it.id)).map_err(|error| self.about(&error))
            }
        }
    }

    /// Gives the disk of an export, which has that name, another one: a file has both then, a
    /// volume only the new one.
    ///
    /// # Errors
    /// `Exists` if something has that name; `Device` if the system refuses it.
    pub(super) fn rename(&self, store: &dyn Store, from: &Path, to: &Path) -> Result<()> {
        let renamed = match &self.place {
            Place::Directory(dir) => match store.file() {
                Some(file) => dir.name_file(file, to),
                None => Err(Error::new(Code::Device, format!("{}: not open", from.display()))),
            },
            Place::Thin(pool) => pool.rename(from, to),
        };
        renamed.map_err(|error| self.about(&error))
    }

    /// Enlarges the volume of an export; false if it is none that a target has made.
    ///
    /// # Errors
    /// `Usage` if the size makes no sense in it; `Device` if LVM refuses it.
    pub(super) fn enlarge(
        &self,
        export: &Export,
        identity: Option<&str>,
        size: u64,
    ) -> Result<bool> {
        let Place::Thin(pool) = &self.place else { return Ok(false) };
        let volume = pool.found(Path::new(&export.path), identity);
        let enlarged = volume.and_then(|volume| match volume {
            Some(volume) => pool.enlarge(&volume, size).map(|()| true),
            None => Ok(false),
        });
        enlarged.map_err(|error| self.about(&error))
    }

    /// Its fault, in words: no disk can be made in it now, or it had better be set otherwise.
    pub(super) fn remark(&self) -> Option<String> {
        let said = match &self.place {
            Place::Directory(dir) => dir.remark(),
            Place::Thin(pool) => pool.remark(),
        };
        said.map(|said| format!("pool {}: {said}", self.name))
    }

    fn about(&self, error: &Error) -> Error {
        Error { code: error.code, message: format!("pool {}: {}", self.name, error.message) }
    }
}

/// The pool that the disk of an export is in, if any. Of a volume LVM is asked, if its group has
/// several pools.
///
/// # Errors
/// `Device` if LVM can't be asked.
pub(super) fn of<'a>(pools: &'a [Pool], export: &Export) -> Result<Option<&'a Pool>> {
    let mut candidates = pools.iter().filter(|pool| pool.may_have(export));
    let (first, second) = (candidates.next(), candidates.next());
    let (Some(Pool { place: Place::Thin(thin), .. }), Some(_)) = (first, second) else {
        return Ok(first);
    };
    let found = thin.pool_of(Path::new(&export.path))?;
    Ok(pools.iter().find(|pool| match &pool.place {
        Place::Directory(_) => false,
        Place::Thin(pool) => Some(pool) == found.as_ref(),
    }))
}

/// A thin pool in whose group the disk of an export is, if any.
pub(super) fn thin_of(pools: &[Pool], export: &Export) -> Option<ThinPool> {
    pools.iter().filter(|pool| pool.may_have(export)).find_map(|pool| match &pool.place {
        Place::Directory(_) => None,
        Place::Thin(pool) => Some(pool.clone()),
    })
}

/// Refuses two pools of one name or place.
///
/// # Errors
/// `Config`.
pub(super) fn refuse_twins(pools: &[Pool]) -> Result<()> {
    for (index, second) in pools.iter().enumerate() {
        let is_twin = |it: &&Pool| it.name == second.name || it.place == second.place;
        if let Some(first) = pools[..index].iter().find(is_twin) {
            let [first, second] =
                [first, second].map(|it| format!("`{}` ({})", it.name, it.path()));
            let message = format!("pools {first} and {second}: a pool has a name and a place");
            return Err(Error::new(Code::Config, message + " of its own"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, path: &str) -> Pool {
        toml::from_str(&format!("name = {name:?}\npath = {path:?}\n")).unwrap()
    }

    #[test]
    fn a_pool_is_an_absolute_directory_or_a_thin_pool() {
        let read = |path: &str| toml::from_str::<Pool>(&format!("name = \"a\"\npath = {path:?}\n"));
        assert_eq!(read("dir:/srv/vols/").unwrap().path(), "dir:/srv/vols");
        assert_eq!(read("lvm-thin:vg0/thin").unwrap().path(), "lvm-thin:vg0/thin");
        for wrong in ["vols", "dir:vols", "dir:", "lvm:vg/pool"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("write a directory, such as \"dir:/srv/tyche\""), "{error}");
        }
        for (wrong, meant) in [
            ("/srv/vols", "write \"dir:/srv/vols\""),
            ("/srv/vols/a.b", "write \"dir:/srv/vols/a.b\""),
            ("vg0/pool0", "write \"lvm-thin:vg0/pool0\""),
            ("/dev/vg0/pool0", "write \"lvm-thin:vg0/pool0\""),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(meant), "{error}");
        }
        for wrong in ["vg0", "vg0/", "/pool", "vg0/a/b", "-x/pool", "vg0/-y", "vg 0/p", "../p"] {
            let error = read(&format!("lvm-thin:{wrong}")).unwrap_err().to_string();
            assert!(error.contains("write VG/POOL"), "{error}");
        }
    }

    #[test]
    fn an_export_is_in_the_pool_that_its_path_leads_to() {
        let pools = [pool("fast", "dir:/srv/fast"), pool("slow", "dir:/srv/slow")];
        let thin = [pool("thin", "lvm-thin:vg0/thin")];
        let of = |pools, text: &str| {
            let found = of(pools, &Export::parse(text).unwrap()).unwrap();
            found.map(|it: &Pool| it.name.clone())
        };
        assert_eq!(of(&pools, "a=/srv/slow/a").as_deref(), Some("slow"));
        for other in ["a=/srv/fast/below/a", "a=/srv/a", "a=mem:1M", "a=/srv/fast"] {
            assert_eq!(of(&pools, other), None, "{other}");
        }
        assert_eq!(of(&thin, "a=/dev/vg0/a").as_deref(), Some("thin"));
        for other in ["a=/dev/vg1/a", "a=/dev/vg0", "a=/dev/vg0/a/b", "a=/dev/sda"] {
            assert_eq!(of(&thin, other), None, "{other}");
        }
    }

    #[test]
    fn a_pool_has_a_name_and_a_place_of_its_own() {
        let pools = [pool("fast", "dir:/srv/fast"), pool("thin", "lvm-thin:vg0/thin")];
        refuse_twins(&pools).unwrap();
        for twin in [pool("fast", "dir:/srv/b"), pool("b", "lvm-thin:vg0/thin")] {
            let error = refuse_twins(&[&pools[..], &[twin]].concat()).unwrap_err();
            assert!(error.code == Code::Config && error.message.contains("of its own"), "{error}");
        }
    }
}
