//! A directory whose files are disks.
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

use std::fmt;
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

use super::super::names::file_name;
use crate::shared::error::{Code, Error, Result};

/// File systems of which it is known that a clone is of one moment, as they number themselves.
const XFS: i64 = 0x5846_5342;
const BTRFS: i64 = 0x9123_683e;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory(PathBuf);

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Directory {
    /// The one at a whole path.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the file for an export.
    pub(super) fn file(&self, export: &str) -> PathBuf {
        self.0.join(file_name(export))
    }

    /// Whether a file is directly in it, whoever has made that.
    pub(in super::super) fn has(&self, file: &Path) -> bool {
        file.parent() == Some(&self.0)
    }

    /// Its fault, in words: no file can be made in it.
    pub(super) fn remark(&self) -> Option<String> {
        let is_missing = !self.0.is_dir();
        is_missing.then(|| format!("there is no directory {self} now: nothing is made there"))
    }

    /// A new sparse file of that size, without a name.
    ///
    /// # Errors
    /// `Device`, with the remedy.
    pub(super) fn new_file(&self, size: u64) -> Result<File> {
        let file = self.nameless()?;
        file.set_len(size).map_err(|error| self.failed(&format!("{size} bytes"), error))?;
        Ok(file)
    }

    /// A new clone of a file, without a name, and how long writes to that had to wait.
    ///
    /// # Errors
    /// `Device`, with the remedy.
    pub(super) fn new_clone(&self, from: BorrowedFd<'_>) -> Result<(File, Duration)> {
        let file = self.nameless()?;
        let pause = self.clone_file(&file, from)?;
        Ok((file, pause))
    }

    /// Gives a file its name, with its content on stable storage.
    ///
    /// # Errors
    /// As [`name_file`](Self::name_file).
    pub(super) fn put(&self, file: &File, path: &Path) -> Result<()> {
        file.sync_all().map_err(|error| self.failed("fsync", error))?;
        self.name_file(file, path)
    }

    /// A new file without a name. It is gone with its last descriptor until it has one.
    ///
    /// # Errors
    /// `Device`, with the remedy.
    fn nameless(&self) -> Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open(&self.0, flags, Mode::RUSR | Mode::WUSR);
        file.map(File::from).map_err(|errno| {
            let why = match errno {
                Errno::NOENT | Errno::NOTDIR => "there is no such directory: make it, or mount it",
                Errno::OPNOTSUPP | Errno::ISDIR => {
                    "its file system has no files without a name (O_TMPFILE): XFS, btrfs and ext4 \
                     have"
                }
                _ => return self.failed("a new file", errno),
            };
            Error::new(Code::Device, format!("{self}: {why}"))
        })
    }

    /// The error of an operation in it that the system has refused.
    fn failed(&self, what: &str, error: impl Into<io::Error>) -> Error {
        Error::new(Code::Device, format!("{self}: {what}: {}", error.into()))
    }

    /// Makes an empty file of it a clone of another, which may be written meanwhile. Returns how
    /// long writes to that had to wait.
    ///
    /// # Errors
    /// `Device`, with the remedy.
    fn clone_file(&self, file: &File, from: BorrowedFd<'_>) -> Result<Duration> {
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
                Err(Error::new(Code::Device, what))
            }
            Err(errno) => Err(self.failed("clone (FICLONE)", errno)),
        }
    }

    fn cannot_clone(&self) -> Error {
        let message = format!(
            "the file system of {self} makes no clones: snapshots need XFS with reflinks (the \
             default of mkfs.xfs) or btrfs; move the pool to one of these"
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
        sync_directory(&self.0).map_err(|error| self.failed("fsync", error))
    }
}

/// Has the names in a directory on stable storage.
pub(in super::super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_gets_its_name_when_it_is_complete_and_nothing_else_has_it() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let pool = Directory(dir.path().to_owned());
        let list = || fs::read_dir(dir.path()).unwrap().count();
        let file = pool.nameless().unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(list(), 0);
        pool.name_file(&file, &dir.path().join("a")).unwrap();
        assert_eq!(fs::metadata(dir.path().join("a")).unwrap().len(), 1 << 20);
        fs::write(dir.path().join("b"), "theirs").unwrap();
        let error = pool.name_file(pool.nameless().unwrap(), &dir.path().join("b")).unwrap_err();
        assert!(error.code == Code::Exists && error.message.contains("is no export"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("b")).unwrap(), "theirs");
        let gone = Directory(dir.path().join("gone"));
        let error = gone.nameless().unwrap_err();
        assert!(error.message.contains("gone: there is no such directory"), "{error}");
    }

    #[test]
    fn a_file_system_without_clones_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = Directory(dir.path().to_owned());
        let (file, from) = (pool.nameless().unwrap(), pool.nameless().unwrap());
        let error = pool.clone_file(&file, from.as_fd()).unwrap_err();
        assert!(error.code == Code::Device && error.message.contains("XFS with reflinks"));
    }
}
