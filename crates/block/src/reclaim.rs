//! Protection from memory reclaim for the threads that serve a disk.
//!
//! When memory is short, a thread that allocates may have to write dirty pages out first, and wait
//! for that. If the pages belong to a file system on the disk that the thread itself serves, it
//! waits for ever. So such threads are marked in the kernel.

use std::fs::File;
use std::io;
use std::io::Read;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

/// Marks the calling thread, and every thread that it starts from now on, as one that serves a
/// disk: when it allocates memory, the kernel does not make it start I/O and wait for it.
///
/// Must be called by every thread that a request of a disk depends on.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_RESOURCE`; the thread then works without the protection.
pub fn avoid_reclaim_io() -> io::Result<()> {
    // `PR_SET_IO_FLUSHER` sets a flag of the calling thread, which its later threads inherit.
    Ok(configure_io_flusher_behavior(true)?)
}

/// The bytes that the kernel could give out without writing any to a disk, as it estimates them;
/// `None` if it does not say.
pub(crate) fn available_memory() -> Option<u64> {
    // The line is among the first three.
    let mut text = [0; 256];
    let read = File::open("/proc/meminfo").and_then(|mut file| file.read(&mut text)).ok()?;
    let text = std::str::from_utf8(&text[..read]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Locks the memory of this process: all present pages, program text included, and every later
/// page at its first touch. So the process never waits for a page that must be read from a disk
/// that it serves itself.
///
/// # Errors
/// `PermissionDenied` or `OutOfMemory` without `CAP_IPC_LOCK` and with a limit on locked memory.
pub fn lock_memory() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT)?;
    // Locked at the first touch only: stacks and the like are large, and mostly never touched.
    Ok(mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}
