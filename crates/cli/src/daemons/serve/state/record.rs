//! The record of one export, in a file of its own: written as a whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use tyche_engine::identity;
use tyche_proto::wire::Name;
use tyche_proto::{Identity, Writer};
use uuid::Uuid;

/// See the [module](self).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The export's UUID.
    pub(super) uuid: Uuid,
    /// The identity that its disk reports.
    pub(super) disk: Option<String>,
    /// The generation: completed writes survive within it.
    pub(super) generation: Uuid,
    /// Whether completed writes may be in a volatile cache.
    pub(super) cached: bool,
    /// The boot of the kernel that had them.
    pub(super) boot: Uuid,
    /// The virtual machine's generation, if it could be read.
    pub(super) vm: Option<Uuid>,
    /// The last session admitted to write.
    #[serde(with = "KeptWriter")]
    pub(super) writer: Writer,
    /// A new UUID for each time that the record is written.
    pub(super) version: Uuid,
    /// The place of the file that it was written to.
    pub(super) place: Option<FileIdentity>,
    /// Whether it is served to hosts of FCoE only. Missing in the record of an earlier release.
    #[serde(default, rename = "fcoe")]
    pub(super) is_fcoe: bool,
}

/// The serialized form of a [`Writer`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Writer")]
struct KeptWriter {
    session: Uuid,
    device: Uuid,
    /// Missing in the record of an earlier release.
    #[serde(default, with = "kept_host")]
    host: Option<Identity>,
}

/// The serialized form of an [`Identity`].
mod kept_host {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Identity, Name, Uuid};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kept {
        Keyed { name: String, machine: Uuid },
        Claimed(Uuid),
    }

    pub(super) fn serialize<S: Serializer>(
        host: &Option<Identity>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let kept = host.map(|host| match host {
            Identity::Keyed { name, machine } => Kept::Keyed { name: name.to_string(), machine },
            Identity::Claimed(uuid) => Kept::Claimed(uuid),
        });
        kept.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Identity>, D::Error> {
        let kept: Option<Kept> = Option::deserialize(from)?;
        let identity = |kept| match kept {
            Kept::Claimed(uuid) => Ok(Identity::Claimed(uuid)),
            Kept::Keyed { name, machine } => {
                let name = Name::new(&name).ok_or_else(|| D::Error::custom("no name of a host"))?;
                Ok(Identity::Keyed { name, machine })
            }
        };
        kept.map(identity).transpose()
    }
}

/// Identity of one file on one machine: a copy of the file has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    pub(super) machine: Option<Uuid>,
    inode: u64,
    /// Birth time in seconds and nanoseconds, if the file system knows it.
    born: Option<(i64, u32)>,
}

impl FileIdentity {
    pub(super) fn of(file: impl AsFd) -> io::Result<Self> {
        let fields = StatxFlags::INO | StatxFlags::BTIME;
        let status = statx(file, "", AtFlags::EMPTY_PATH, fields)?;
        let knows_birth = status.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = (status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
        let inode = status.stx_ino;
        Ok(Self { machine: identity::keeper(), inode, born: knows_birth.then_some(born) })
    }

    /// Whether the file system says when files were made: another file has another identity then,
    /// even if it has the inode of one that is gone.
    pub(super) fn knows_birth(&self) -> bool {
        self.born.is_some()
    }
}

impl Record {
    /// Reads the record in a file, and the place of that file; `None` if there is no file.
    pub(super) fn read(path: &Path) -> io::Result<Option<(Self, FileIdentity)>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let record = serde_json::from_reader(&file).map_err(io::Error::from)?;
        Ok(Some((record, FileIdentity::of(&file)?)))
    }

    /// Writes the record to stable storage, with the place of its file in it.
    pub(super) fn write(&mut self, path: &Path) -> io::Result<()> {
        replace(path, |file| {
            self.place = Some(FileIdentity::of(file)?);
            Ok(serde_json::to_string(self)?)
        })
    }
}

/// Replaces a file by a new one, on stable storage. `content` may inspect the new file.
pub(super) fn replace(
    path: &Path,
    content: impl FnOnce(&File) -> io::Result<String>,
) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    create_all(dir)?;
    let new = with_suffix(path, ".new");
    // Never written in place: the file must have its own inode and birth time.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let text = content(&file)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(new, path)?;
    File::open(dir)?.sync_all()
}

/// Creates a directory that only its owner may enter, on stable storage.
fn create_all(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        create_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
        created => created?,
    }
    dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_kept_with_its_host_and_read_without() {
        let uuid = Uuid::from_u128(1);
        let record = |host| Record {
            uuid,
            disk: None,
            generation: uuid,
            cached: false,
            boot: uuid,
            vm: None,
            writer: Writer { session: uuid, device: uuid, host },
            version: uuid,
            place: None,
            is_fcoe: false,
        };
        let keyed = Identity::Keyed { name: Name::new("alpha").unwrap(), machine: uuid };
        for host in [None, Some(keyed), Some(Identity::Claimed(uuid))] {
            let text = serde_json::to_string(&record(host)).unwrap();
            let read: Record = serde_json::from_str(&text).unwrap();
            assert_eq!(read.writer, record(host).writer, "{text}");
        }
        // As an earlier release has written it.
        let mut text = serde_json::to_value(record(Some(keyed))).unwrap();
        text["writer"].as_object_mut().unwrap().remove("host").unwrap();
        let read: Record = serde_json::from_value(text).unwrap();
        assert_eq!(read.writer, record(None).writer);
    }

    #[test]
    fn a_file_knows_that_it_was_copied_and_not_that_it_was_moved() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (path, copy) = (dir.path().join("deep/below/a"), dir.path().join("copy"));
        replace(&path, |file| Ok(serde_json::to_string(&FileIdentity::of(file)?)?)).unwrap();
        let kept = |path: &Path| -> (FileIdentity, FileIdentity) {
            let file = File::open(path).unwrap();
            (serde_json::from_reader(&file).unwrap(), FileIdentity::of(&file).unwrap())
        };
        let (says, is) = kept(&path);
        assert_eq!(says, is);
        fs::copy(&path, &copy).unwrap();
        let (says, is) = kept(&copy);
        assert_ne!(says, is);
        fs::remove_file(&copy).unwrap();
        fs::rename(&path, &copy).unwrap();
        let (says, is) = kept(&copy);
        assert_eq!(says, is);
    }
}
