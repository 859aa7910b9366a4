//! Threads with file descriptors of their own.
//!
//! A thread that waits for an answer of a FUSE server can't be killed, and keeps every descriptor
//! of its process open while it waits, even if the process is dying. If the server is in the same
//! process, `/dev/fuse` stays open, nobody tells the kernel that there will be no answer, and the
//! process never ends. A thread with a table of its own, without `/dev/fuse`, may wait: when the
//! other threads are gone, `/dev/fuse` is closed, and the kernel answers.

use std::io;

use libc::c_uint;

/// Gives the calling thread a table of file descriptors of its own, with only the standard
/// streams in it.
///
/// # Safety
/// The calling thread owns no descriptor now, and never uses one that another thread owns: their
/// numbers mean nothing to it any more, or something else. That includes what a logger may have
/// open.
pub(crate) unsafe fn make_private() -> io::Result<()> {
    let first: c_uint = 3;
    // SAFETY: the caller vouches for this thread, and the tables of all other threads stay as
    // they are.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, first, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
