//! Checks that an open file or device is still the one that was opened.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, SeekFrom, StatxFlags, seek, statx};

use crate::BackingError;

/// The present state of a file or device. If the kernel gives no answer, it counts as healthy:
/// requests will fail if it is not.
#[derive(Default)]
pub(super) struct Found {
    pub(super) size: Option<u64>,
    /// It is removed or deleted.
    pub(super) gone: Option<BackingError>,
}

/// A device. The kernel reports a removed one that is still open as empty.
pub(super) fn device(device: BorrowedFd<'_>) -> Found {
    match seek(device, SeekFrom::End(0)) {
        Ok(0) => Found { size: None, gone: Some(BackingError::Removed) },
        found => Found { size: found.ok(), gone: None },
    }
}

/// A file, from the kernel's cache: a file server that hangs is not waited for. One that is deleted
/// has a size nevertheless.
pub(super) fn regular(file: BorrowedFd<'_>) -> Found {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(found) = statx(file, "", flags, StatxFlags::SIZE | StatxFlags::NLINK) else {
        return Found::default();
    };
    let gone = (found.stx_nlink == 0).then_some(BackingError::Deleted);
    Found { size: Some(found.stx_size), gone }
}
