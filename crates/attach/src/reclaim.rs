//! Memory and the threads that serve a disk.
//!
//! When memory is short, a thread that allocates may be made to write dirty pages out first, and
//! to wait for it. If those pages belong to a file system on the very disk that the thread
//! serves, it waits for itself. The kernel can be told which threads these are.

use std::io;

use libc::{c_int, c_ulong};
use rustix::mm::{MlockAllFlags, mlockall};

/// Of `linux/prctl.h`; the libc crate does not have it.
const PR_SET_IO_FLUSHER: c_int = 57;

/// Tells the kernel that the calling thread, and every thread that it starts from now on, serves
/// a disk: when it allocates, no I/O is started on its behalf and waited for.
///
/// To be called by every thread that must run for a request of an attachment to be answered.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_RESOURCE`; the thread then works, without the protection.
pub fn avoid_reclaim_io() -> io::Result<()> {
    let (on, unused): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: this `prctl` takes numbers only and concerns the calling thread's flags.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, on, unused, unused, unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps all memory of this process where it is: what is there now, program text included, and what
/// is touched from now on. So no page of it ever has to be read from a disk that waits for it.
///
/// # Errors
/// `PermissionDenied` or `OutOfMemory` without `CAP_IPC_LOCK` and with a limit on locked memory.
pub fn lock_memory() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT)?;
    // Stacks and the like are large, and mostly never touched.
    Ok(mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}
