//! A pool: a directory whose files are the disks of exports, made, cloned and deleted by command.
//!
//! A new file has no name until its content is complete and on stable storage, and gets it only if
//! nothing else has it: what is in the directory is never overwritten.
//!
//! A clone shares its blocks with the original until either is written (FICLONE). On XFS and btrfs
//! it is of one moment, which needs no pause of the target: the kernel holds the lock of the
//! original against writes, waits for those that are under way, direct ones included, and writes
//! back what is cached, before it shares the first block. So a write that had completed is in the
//! clone, one that begins later is not, and neither is one without those that completed before it
//! began. Of other file systems that is not known, so they are refused.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, IFlags, Mode, OFlags, fstatfs, ioctl_ficlone, ioctl_getflags, ioctl_setflags,
    linkat, open,
};
use rustix::io::Errno;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::shared::error::{Code, Error, Result};
use crate::shared::export::{Export, Source};

/// File systems of which it is known that a clone is of one moment, as they number themselves.
const XFS: i64 = 0x5846_5342;
const BTRFS: i64 = 0x9123_683e;
/// The kind of pool that is a directory, before its path.
const DIRECTORY: &str = "dir:";

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// Its name at this target.
    pub(crate) name: String,
    /// Its directory.
    #[serde(rename = "path", deserialize_with = "directory")]
    pub(crate) dir: PathBuf,
}

fn directory<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let text = String::deserialize(from)?;
    let dir = text.strip_prefix(DIRECTORY).map(Path::new).filter(|dir| dir.is_absolute());
    // Without a slash at its end, and the like.
    let dir = dir.map(|dir| dir.components().collect());
    dir.ok_or_else(|| D::Error::custom("write a directory, such as \"dir:/srv/tyche\""))
}

impl Pool {
    /// Its path, as the configuration has it.
    pub(super) fn path(&self) -> String {
        format!("{DIRECTORY}{}", self.dir.display())
    }

    /// Whether the disk of an export is a file of it, whoever has made that.
    pub(super) fn has(&self, export: &Export) -> bool {
        match export.source() {
            Ok(Source::File(path)) => path.parent() == Some(&self.dir),
            _ => false,
        }
    }

    /// A new file without a name. It is gone with its last descriptor until it has one.
    ///
    /// # Errors
    /// `Device`, with the remedy.
    pub(super) fn new_file(&self) -> Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open(&self.dir, flags, Mode::RUSR | Mode::WUSR);
        file.map(File::from).map_err(|errno| {
            let why = match errno {
                Errno::NOENT | Errno::NOTDIR => "there is no such directory: make it, or mount it",
                Errno::OPNOTSUPP | Errno::ISDIR => {
                    "its file system has no files without a name (O_TMPFILE): XFS, btrfs and ext4 \
                     have"
                }
                _ => return self.failed("a new file", errno),
            };
            Error::new(Code::Device, format!("pool {}: {}: {why}", self.name, self.dir.display()))
        })
    }

    /// The error of an operation in it that the system has refused.
    pub(super) fn failed(&self, what: &str, error: impl Into<io::Error>) -> Error {
        let Self { name, dir } = self;
        let message = format!("pool {name}: {}: {what}: {}", dir.display(), error.into());
        Error::new(Code::Device, message)
    }

    /// Makes an empty file of it a clone of another, which may be written meanwhile. Returns how
    /// long writes to that had to wait.
    ///
    /// # Errors
    /// `Device`, with the remedy.
    pub(super) fn clone_file(&self, file: &File, from: BorrowedFd<'_>) -> Result<Duration> {
        if !fstatfs(file).is_ok_and(|fs| [XFS, BTRFS].contains(&fs.f_type)) {
            return Err(self.cannot_clone());
        }
        // Files with and without checksums share no blocks on btrfs.
        if ioctl_getflags(from).is_ok_and(|flags| flags.contains(IFlags::NOCOW)) {
            let flags =
                ioctl_getflags(file).and_then(|it| ioctl_setflags(file, it | IFlags::NOCOW));
            flags.map_err(|errno| self.failed("chattr +C", errno))?;
        }
        let began = Instant::now();
        match ioctl_ficlone(file, from) {
            Ok(()) => Ok(began.elapsed()),
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => Err(self.cannot_clone()),
            Err(Errno::XDEV) => {
                let what = "the file is on another file system than the directory";
                Err(Error::new(Code::Device, format!("pool {}: {what}", self.name)))
            }
            Err(errno) => Err(self.failed("clone (FICLONE)", errno)),
        }
    }

    fn cannot_clone(&self) -> Error {
        let message = format!(
            "pool {}: the file system of {} makes no clones: snapshots need XFS with reflinks (the \
             default of mkfs.xfs) or btrfs; move the pool to one of these",
            self.name,
            self.dir.display()
        );
        Error::new(Code::Device, message)
    }

    /// Gives a complete file its name, or one more, on stable storage.
    ///
    /// # Errors
    /// `Exists` if something has that name; `Device` if the system refuses it.
    pub(super) fn name_file(&self, file: impl AsFd, path: &Path) -> Result<()> {
        let open = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        match linkat(CWD, &open, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let message = format!(
                    "{} is there, and is no export: nothing is overwritten; export it (`tyche \
                     export add NAME={0}`), remove it, or choose another name",
                    path.display()
                );
                return Err(Error::new(Code::Exists, message));
            }
            Err(errno) => return Err(self.failed("link", errno)),
        }
        sync_directory(&self.dir).map_err(|error| self.failed("fsync", error))
    }
}

/// The pool that the disk of an export is in, if any.
pub(super) fn of<'a>(pools: &'a [Pool], export: &Export) -> Option<&'a Pool> {
    pools.iter().find(|pool| pool.has(export))
}

/// Has the names in a directory on stable storage.
pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Refuses two pools of one name or directory.
///
/// # Errors
/// `Config`.
pub(super) fn refuse_twins(pools: &[Pool]) -> Result<()> {
    for (index, second) in pools.iter().enumerate() {
        let twin = pools[..index].iter().find(|it| it.name == second.name || it.dir == second.dir);
        if let Some(first) = twin {
            let [first, second] =
                [first, second].map(|it| format!("`{}` ({})", it.name, it.path()));
            let message = format!("pools {first} and {second}: a pool has a name and a directory");
            return Err(Error::new(Code::Config, message + " of its own"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn pool(dir: &Path) -> Pool {
        Pool { name: "fast".into(), dir: dir.to_owned() }
    }

    #[test]
    fn a_pool_is_an_absolute_directory() {
        let read = |path: &str| toml::from_str::<Pool>(&format!("name = \"a\"\npath = {path:?}\n"));
        assert_eq!(read("dir:/srv/vols/").unwrap().path(), "dir:/srv/vols");
        for wrong in ["/srv/vols", "dir:vols", "dir:", "lvm-thin:vg/pool"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("write a directory, such as \"dir:/srv/tyche\""), "{error}");
        }
    }

    #[test]
    fn an_export_is_in_the_pool_whose_directory_has_its_file() {
        let [fast, slow] = ["/srv/fast", "/srv/slow"].map(|dir| pool(Path::new(dir)));
        let pools = [fast.clone(), Pool { name: "slow".into(), ..slow }];
        let of = |text: &str| of(&pools, &Export::parse(text).unwrap()).map(|it| &it.name[..]);
        assert_eq!(of("a=/srv/slow/a"), Some("slow"));
        for other in ["a=/srv/fast/below/a", "a=/srv/a", "a=mem:1M", "a=/srv/fast"] {
            assert_eq!(of(other), None, "{other}");
        }
        refuse_twins(&pools).unwrap();
        let error = refuse_twins(&[fast.clone(), fast]).unwrap_err();
        assert!(error.code == Code::Config && error.message.contains("`fast`"), "{error}");
    }

    #[test]
    fn a_file_gets_its_name_when_it_is_complete_and_nothing_else_has_it() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let pool = pool(dir.path());
        let list = || fs::read_dir(dir.path()).unwrap().count();
        let file = pool.new_file().unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(list(), 0);
        pool.name_file(&file, &dir.path().join("a")).unwrap();
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().len(), 1 << 20);
        fs::write(dir.path().join("b"), "theirs").unwrap();
        let error = pool.name_file(pool.new_file().unwrap(), &dir.path().join("b")).unwrap_err();
        assert!(error.code == Code::Exists && error.message.contains("is no export"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("b")).unwrap(), "theirs");
        let gone = Pool { dir: dir.path().join("gone"), ..pool };
        let error = gone.new_file().unwrap_err();
        assert!(error.message.contains("gone: there is no such directory"), "{error}");
    }

    #[test]
    fn a_file_system_without_clones_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = pool(dir.path());
        let (file, from) = (pool.new_file().unwrap(), pool.new_file().unwrap());
        let error = pool.clone_file(&file, from.as_fd()).unwrap_err();
        assert!(error.code == Code::Device && error.message.contains("XFS with reflinks"));
    }
}
