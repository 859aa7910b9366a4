//! Whether an open file or device is still what it was when it was opened.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, SeekFrom, StatxFlags, seek, statx};

use crate::BackingError;

/// Compares a file or device with the `size` that it is exported with. What can't be asked is taken
/// for healthy: requests will tell.
pub(super) fn check(file: BorrowedFd<'_>, is_device: bool, size: u64) -> Result<(), BackingError> {
    let found = if is_device { device(file) } else { regular(file) };
    match found? {
        Some(now) if now < size => Err(BackingError::Shrunk { now, size }),
        _ => Ok(()),
    }
}

/// The kernel lets a device that is open have no blocks once it is gone.
fn device(device: BorrowedFd<'_>) -> Result<Option<u64>, BackingError> {
    match seek(device, SeekFrom::End(0)) {
        Ok(0) => Err(BackingError::Removed),
        found => Ok(found.ok()),
    }
}

/// Asks for what the kernel knows already, lest a file server that does not answer is waited for.
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
