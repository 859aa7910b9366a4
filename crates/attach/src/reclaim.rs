//! Protection from memory reclaim for the threads that serve a disk.
//!
//! When memory is short, a thread that allocates may have to write dirty pages out first, and wait
//! for it. If those pages belong to a file system on the very disk that the thread serves, it waits
//! for itself. So such threads are marked in the kernel.

use std::io;

use libc::{c_int, c_ulong};
use rustix::mm::{MlockAllFlags, mlockall};

/// From `linux/prctl.h`; the libc crate lacks it.
const PR_SET_IO_FLUSHER: c_int = 57;

/// Marks the calling thread, and every thread that it starts from now on, as one that serves a
/// disk: when it allocates, no I/O is started on its behalf and waited for.
///
/// Must be called by every thread that a request of an attachment depends on.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_RESOURCE`; the thread then works without the protection.
pub fn avoid_reclaim_io() -> io::Result<()> {
    let (on, unused): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: this `prctl` takes numbers only and concerns the calling thread's flags.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, on, unused, unused, unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks all memory of this process: the present one, program text included, and what is touched
/// from now on. So no page of it is ever read from a disk that waits for it.
///
/// # Errors
/// `PermissionDenied` or `OutOfMemory` without `CAP_IPC_LOCK` and with a limit on locked memory.
pub fn lock_memory() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT)?;
    // Stacks and the like are large, and mostly never touched.
    Ok(mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}
