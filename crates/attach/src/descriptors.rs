//! The file descriptors of threads, processes and their children.
//!
//! A thread that waits for a FUSE server can't be killed, and keeps every descriptor of its process
//! open, even while the process is dying. If the server is in the same process, `/dev/fuse` stays
//! open, the kernel never learns that there will be no answer, and the process never ends. A thread
//! with a descriptor table of its own, without `/dev/fuse`, may wait: when the other threads are
//! gone, `/dev/fuse` is closed, and the kernel answers.
//!
//! A daemon keeps no descriptor of the process that started it. Otherwise a pipe or a lock would
//! stay in use while the daemon lives, and the reader of the pipe would never see its end.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;

use libc::c_uint;

/// The first number after the standard streams.
const AFTER_STREAMS: c_uint = 3;

/// Gives the calling thread a descriptor table of its own, with only `/dev/null` in it, as the
/// standard streams.
///
/// # Safety
/// The calling thread owns no descriptor now, and never uses one that another thread owns: in this
/// table their numbers mean nothing, or another file. That includes the files of a logger.
pub(crate) unsafe fn make_private() -> io::Result<()> {
    // SAFETY: the caller guarantees it for this thread; the tables of other threads do not change.
    unsafe { close_range(0, libc::CLOSE_RANGE_UNSHARE)? };
    // The lowest numbers are given out first. Without this, a later file could get the number of a
    // standard stream, and printed text would be written to it.
    for _ in 0..AFTER_STREAMS {
        let _ = OpenOptions::new().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    Ok(())
}

/// Closes all descriptors but the standard streams.
///
/// # Safety
/// The process has one thread, which owns no descriptor.
pub(crate) unsafe fn close_inherited() -> io::Result<()> {
    // SAFETY: as required of the caller.
    unsafe { close_range(AFTER_STREAMS, 0) }
}

/// Limits programs that this process starts from now on to the standard streams, even if this
/// process was started with more.
///
/// # Errors
/// On kernels before 5.11.
pub fn keep_from_children() -> io::Result<()> {
    // SAFETY: no descriptor of this process is closed.
    unsafe { close_range(AFTER_STREAMS, libc::CLOSE_RANGE_CLOEXEC) }
}

/// # Safety
/// Nobody owns the closed descriptors: those from `first` on, in the table chosen by `flags`.
unsafe fn close_range(first: c_uint, flags: c_uint) -> io::Result<()> {
    // SAFETY: the system call takes only numbers; the caller guarantees that it closes no
    // descriptor in use.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
