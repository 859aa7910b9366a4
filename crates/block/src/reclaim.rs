//! Protection from memory reclaim for the threads that serve a disk.
//!
//! When memory is short, a thread that allocates may have to write dirty pages out first, and wait
//! for it. If those pages belong to a file system on the very disk that the thread serves, it waits
//! for itself. So such threads are marked in the kernel.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

/// Marks the calling thread, and every thread that it starts from now on, as one that serves a
/// disk: when it allocates, no I/O is started on its behalf and waited for.
///
/// Must be called by every thread that a request of a disk depends on.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_RESOURCE`; the thread then works without the protection.
pub fn avoid_reclaim_io() -> io::Result<()> {
    // `PR_SET_IO_FLUSHER`, which concerns the calling thread only.
    Ok(configure_io_flusher_behavior(true)?)
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
