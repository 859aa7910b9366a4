//! Turns: one request at a time for each volume.
//!
//! The programs that work on a volume hold its lock as well: they may outlive a driver that is
//! killed, such as an mkfs, and the next driver must not begin before they have ended.
//! Orchestrators ask again when they are told that an earlier request is still at work.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tonic::Status;

use crate::ids::VolumeId;

/// A directory of locks, one for each volume.
#[derive(Debug)]
pub(crate) struct Locks(PathBuf);

impl Locks {
    /// The locks in a directory, which is made.
    ///
    /// # Errors
    /// It can't be made.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self(dir.to_owned()))
    }

    fn path(&self, volume: &VolumeId) -> PathBuf {
        self.0.join(format!("{}.lock", volume.digest()))
    }

    /// Takes the lock of a volume. It is released when no process has the file open any more.
    ///
    /// # Errors
    /// `Aborted` if another request has it, or a program that an earlier one has started.
    pub(crate) fn take(&self, volume: &VolumeId) -> Result<File, Status> {
        let path = self.path(volume);
        let failed = |error| Status::internal(format!("{}: {error}", path.display()));
        let busy = || {
            Status::aborted(format!(
                "an earlier request, or a program that it has started, is at work with {}",
                volume.export
            ))
        };
        let file = File::create(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => return Err(busy()),
        }
        // Whoever had it before may have removed the file.
        let inode = |it: fs::Metadata| (it.dev(), it.ino());
        let own = file.metadata().map(inode).map_err(failed)?;
        let is_there = fs::metadata(&path).is_ok_and(|it| inode(it) == own);
        is_there.then_some(file).ok_or_else(busy)
    }

    /// Removes the lock of a volume that is no more. Whoever calls this has it.
    pub(crate) fn forget(&self, volume: &VolumeId) {
        // One that stays is an empty file.
        let _ = fs::remove_file(self.path(volume));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TargetId;

    #[test]
    fn a_lock_is_held_by_whoever_has_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let locks = Locks::new(&dir.path().join("locks")).unwrap();
        let target = TargetId::new("s@h", &format!("tyche_{}", "k".repeat(43))).unwrap();
        let volume = target.export("pvc-1");
        let lock = locks.take(&volume).unwrap();
        let copy = lock.try_clone().unwrap();
        drop(lock);
        assert_eq!(locks.take(&volume).unwrap_err().code(), tonic::Code::Aborted);
        assert!(locks.take(&target.export("pvc-2")).is_ok());
        drop(copy);
        let lock = locks.take(&volume).unwrap();
        locks.forget(&volume);
        assert!(!locks.path(&volume).exists());
        // Nobody else has it now.
        let _other = locks.take(&volume).unwrap();
        drop(lock);
    }
}
