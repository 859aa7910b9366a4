//! Options of sockets that rustix does not have.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Sets an option. A pointer in `value` must point to what the option asks for.
pub(crate) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    let (len, value) = (size_of_val(value) as libc::socklen_t, ptr::from_ref(value).cast());
    // SAFETY: the value is `len` bytes long and outlives the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) }).map(drop)
}

/// Reads an option. `T` must be made of integers only: the kernel may write any bytes to it.
pub(crate) fn option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut T,
) -> io::Result<()> {
    let (mut len, value) = (size_of_val(value) as libc::socklen_t, ptr::from_mut(value).cast());
    // SAFETY: the kernel writes at most `len` bytes, the size of the value; the callers pass plain
    // integers.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut len) })
        .map(drop)
}

/// The result of a system call that returns -1 on failure.
pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
