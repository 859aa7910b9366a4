//! Which file descriptors a thread, a process and its children have.
//!
//! A thread that waits for an answer of a FUSE server can't be killed, and keeps every descriptor
//! of its process open while it waits, even if the process is dying. If the server is in the same
//! process, `/dev/fuse` stays open, nobody tells the kernel that there will be no answer, and the
//! process never ends. A thread with a table of its own, without `/dev/fuse`, may wait: when the
//! other threads are gone, `/dev/fuse` is closed, and the kernel answers.
//!
//! A daemon has no descriptor of whoever started it either. A pipe or a lock would stay in use for
//! as long as the daemon lives, and a program that reads the other end of the pipe would never see
//! it end.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;

use libc::c_uint;

/// The first number after those of the standard streams.
const AFTER_STREAMS: c_uint = 3;

/// Gives the calling thread a table of file descriptors of its own, with nothing in it but
/// `/dev/null` as the standard streams.
///
/// # Safety
/// The calling thread owns no descriptor now, and never uses one that another thread owns: their
/// numbers mean nothing to it any more, or something else. That includes what a logger may have
/// open.
pub(crate) unsafe fn make_private() -> io::Result<()> {
    // SAFETY: the caller vouches for this thread, and the tables of all other threads stay as
    // they are.
    unsafe { close_range(0, libc::CLOSE_RANGE_UNSHARE)? };
    // The lowest numbers are given out first. If a file that is opened later had one of them, what
    // somebody prints would be written to it.
    for _ in 0..AFTER_STREAMS {
        let _ = OpenOptions::new().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    Ok(())
}

/// Closes everything but the standard streams.
///
/// # Safety
/// The process has one thread, which owns no descriptor.
pub(crate) unsafe fn close_inherited() -> io::Result<()> {
    // SAFETY: as the caller says.
    unsafe { close_range(AFTER_STREAMS, 0) }
}

/// Has programs that this process starts from now on begin with the standard streams alone, even if
/// this process was started with more.
///
/// # Errors
/// On kernels before 5.11.
pub fn keep_from_children() -> io::Result<()> {
    // SAFETY: nothing is closed, here and now.
    unsafe { close_range(AFTER_STREAMS, libc::CLOSE_RANGE_CLOEXEC) }
}

/// # Safety
/// Nobody owns what is closed: descriptors from `first` on, in the table that `flags` say.
unsafe fn close_range(first: c_uint, flags: c_uint) -> io::Result<()> {
    // SAFETY: the system call takes numbers only; as to what it closes, the caller vouches.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
