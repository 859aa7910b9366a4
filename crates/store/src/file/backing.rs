//! Checks that an open file or device is still the one that was opened.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, SeekFrom, StatxFlags, seek, statx};

use crate::BackingError;

/// Compares a file or device with the exported `size`. If the kernel gives no answer, it counts as
/// healthy: requests will fail if it is not.
pub(super) fn check(file: BorrowedFd<'_>, is_device: bool, size: u64) -> Result<(), BackingError> {
    let found = if is_device { device(file) } else { regular(file) };
    match found? {
        Some(now) if now < size => Err(BackingError::Shrunk { now, size }),
        _ => Ok(()),
    }
}

/// The size of a device. The kernel reports a removed device that is still open as empty.
fn device(device: BorrowedFd<'_>) -> Result<Option<u64>, BackingError> {
    match seek(device, SeekFrom::End(0)) {
        Ok(0) => Err(BackingError::Removed),
        found => Ok(found.ok()),
    }
}

/// The size of a file, from the kernel's cache: a file server that hangs is not waited for.
fn regular(file: BorrowedFd<'_>) -> Result<Option<u64>, BackingError> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(found) = statx(file, "", flags, StatxFlags::SIZE | StatxFlags::NLINK) else {
        return Ok(None);
    };
    if found.stx_nlink == 0 {
        return Err(BackingError::Deleted);
    }
    Ok(Some(found.stx_size))
}
