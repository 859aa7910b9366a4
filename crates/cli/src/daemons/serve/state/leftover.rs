//! Files and volumes in pools that are no export's: not yet, because their command is under way, or
//! not any more, because they are to be deleted. They are kept in one file with the exports that
//! were added, so that a file becomes an export, or ceases to be one, at one moment. What a killed
//! target has left over is removed when it starts again.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::super::config::Export;
use super::super::pool::{VolumeId, sync_directory};
use super::State;
use super::record::FileIdentity;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leftover {
    /// The path of the file or volume.
    #[serde(rename = "leftover")]
    pub(super) path: PathBuf,
    /// The export whose record is of this file, and of no use without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) export: Option<String>,
    /// The path that the file has as well, if it is to be left there only. It is not removed unless
    /// it is there. A volume has one path, and is to have this one then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    also: Option<PathBuf>,
    /// What is there: another file or volume of that path is somebody else's.
    #[serde(flatten)]
    disk: Disk,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Disk {
    File(FileIdentity),
    Volume(VolumeId),
}

impl Leftover {
    /// An open file, which has that path, or is to get it. `export`: the one whose record is of no
    /// use without it.
    ///
    /// # Errors
    /// The system's. `Unsupported` if the file system does not tell one file from a later one.
    pub(crate) fn new(path: &Path, export: Option<&str>, file: impl AsFd) -> io::Result<Self> {
        let file = FileIdentity::of(file)?;
        if !file.knows_birth() {
            let what = "its file system does not say when files were made";
            return Err(io::Error::new(ErrorKind::Unsupported, what));
        }
        Ok(Self::of(path, export, Disk::File(file)))
    }

    /// The same for a volume, which may not be there yet.
    pub(crate) fn volume(path: &Path, export: Option<&str>, volume: &VolumeId) -> Self {
        Self::of(path, export, Disk::Volume(volume.clone()))
    }

    fn of(path: &Path, export: Option<&str>, disk: Disk) -> Self {
        Self { path: path.to_owned(), export: export.map(str::to_owned), also: None, disk }
    }

    /// Whether it is a volume, which can't be deleted while somebody has it open.
    pub(crate) fn is_volume(&self) -> bool {
        matches!(self.disk, Disk::Volume(_))
    }

    /// The same for one of the two paths that a file has, or the one that a volume is not to have.
    #[must_use]
    pub(crate) fn beside(self, other: &Path) -> Self {
        Self { also: Some(other.to_owned()), ..self }
    }

    /// Whether it is a file that is at its path, and nothing else.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        self.is_at(&self.path)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let Disk::File(file) = &self.disk else { return Ok(false) };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match open(path, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno.into()),
            Ok(found) => Ok(FileIdentity::of(found)? == *file),
        }
    }

    /// Whether it may be removed: it is at its path, and where it is to be left, if anywhere.
    fn may_go(&self) -> io::Result<bool> {
        let is_left = self.also.as_ref().map_or(Ok(true), |other| self.is_at(other))?;
        Ok(is_left && self.is_there()?)
    }

    /// Removes the file or volume, if it is there, from stable storage as well; or has a volume at
    /// the path that it is to have.
    ///
    /// # Errors
    /// The system's, with the path.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if let Disk::Volume(volume) = &self.disk {
            let settled = match &self.also {
                Some(other) => volume.rename(&self.path, other),
                None => volume.delete(),
            };
            return settled.map_err(|error| {
                io::Error::other(format!("{}: {}", self.path.display(), error.message))
            });
        }
        let removed = self.may_go().and_then(|may_go| {
            if !may_go {
                return Ok(());
            }
            std::fs::remove_file(&self.path)?;
            self.path.parent().map_or(Ok(()), sync_directory)
        });
        removed.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })
    }
}

impl State {
    /// Files in pools that are to be no exports. Those that are have been taken up by somebody.
    pub(in super::super) fn leftovers<'a>(
        &mut self,
        exports: impl Iterator<Item = &'a Export>,
    ) -> Vec<Leftover> {
        let paths: BTreeSet<_> = exports.map(|export| Path::new(&export.path)).collect();
        self.leftovers.retain(|left| !paths.contains(&*left.path));
        self.leftovers.clone()
    }

    /// Has a file be kept as one that is to be no export, from the next
    /// [`keep_added`](Self::keep_added) on.
    pub(in super::super) fn leave(&mut self, left: Leftover) {
        self.leftovers.push(left);
    }

    /// Has a file be kept as such no more, from the next [`keep_added`](Self::keep_added) on.
    pub(in super::super) fn take_up(&mut self, left: &Leftover) {
        self.leftovers.retain(|it| it != left);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn only_the_file_itself_is_removed() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (path, aside) = (dir.path().join("a"), dir.path().join("b"));
        let left = Leftover::new(&path, Some("a"), File::create(&path).unwrap()).unwrap();
        let text = serde_json::to_string(&left).unwrap();
        assert_eq!(serde_json::from_str::<Leftover>(&text).unwrap(), left, "{text}");
        assert!(left.is_there().unwrap());
        fs::rename(&path, &aside).unwrap();
        fs::write(&path, "theirs").unwrap();
        left.remove().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        left.remove().unwrap();
        assert!(path.is_symlink() && aside.exists());
        fs::rename(&aside, &path).unwrap();
        left.remove().unwrap();
        assert!(!path.exists());
        left.remove().unwrap();
    }

    #[test]
    fn a_volume_is_kept_with_its_group_and_its_uuid() {
        let uuid = uuid::Uuid::from_u128(7);
        let kept = serde_json::json!({
            "leftover": "/dev/vg0/a", "export": "a", "volume": { "group": "vg0", "uuid": uuid },
        });
        let left = serde_json::from_value::<Leftover>(kept.clone()).unwrap();
        assert!(left.is_volume() && !left.is_there().unwrap());
        assert_eq!(serde_json::to_value(&left).unwrap(), kept);
        for wrong in [r#"{"leftover":"/dev/vg0/a"}"#, r#"{"leftover":"/a","volume":{"group":"b"}}"#]
        {
            assert!(serde_json::from_str::<Leftover>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_last_name_of_a_file_is_not_removed() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (old, new) = (dir.path().join("a"), dir.path().join("b"));
        let left = Leftover::new(&old, None, File::create(&old).unwrap()).unwrap().beside(&new);
        let text = serde_json::to_string(&left).unwrap();
        assert_eq!(serde_json::from_str::<Leftover>(&text).unwrap(), left, "{text}");
        for in_the_way in [false, true] {
            if in_the_way {
                fs::write(&new, "theirs").unwrap();
            }
            left.remove().unwrap();
            assert!(old.exists());
        }
        fs::remove_file(&new).unwrap();
        fs::hard_link(&old, &new).unwrap();
        left.remove().unwrap();
        assert!(!old.exists() && new.exists());
    }
}
