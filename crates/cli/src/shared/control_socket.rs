//! Control sockets: Unix sockets at which daemons of this machine are asked. The protocol over them
//! is that of [`control`](crate::shared::control).

use std::io;
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Uid, geteuid};

use crate::shared::places::Connection;
use crate::shared::readers;

/// The longest path of a Unix socket in bytes, as the kernel has it.
const SOCKET_PATH_MAX: usize = 107;
/// Time limit for a daemon's report: it needs milliseconds. A daemon that takes longer is stopped,
/// or stuck.
pub(crate) const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which a daemon without requests looks whether its socket is still there.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Whether a process listens at a control socket.
pub(crate) fn listens(socket: &Path) -> bool {
    // Too many others wait to connect if that takes so long.
    reach(socket, REPORT_TIMEOUT).map_or_else(|error| is_timeout(&error), |_| true)
}

/// Connects to a daemon.
pub(super) fn reach(socket: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let kind = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let connection = socket_with(AddressFamily::UNIX, kind.0, kind.1, None)?;
    // The limit for connecting as well: one waits while too many others do.
    set_socket_timeout(&connection, Timeout::Send, Some(timeout))?;
    connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection.into())
}

/// Whether a daemon did not answer in time.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A control socket, and the file that it was bound to.
pub(super) struct Bound {
    listener: UnixListener,
    file: (u64, u64),
}

impl Bound {
    /// The next connection; none if there is none for [`LOOK_EVERY`].
    pub(super) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&LOOK_EVERY)) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(_) => Ok(Some(self.listener.accept()?.0)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn is_at(&self, socket: &Path) -> bool {
        identity(socket).is_ok_and(|file| file == self.file)
    }
}

/// The device and the inode of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|it| (it.dev(), it.ino()))
}

/// Binds a control socket, in the place of a dead process's.
pub(super) fn bind(socket: &Path) -> io::Result<Bound> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let len = socket.as_os_str().len();
    if len > SOCKET_PATH_MAX {
        let message = format!(
            "{}: {len} bytes are too long for a socket, {SOCKET_PATH_MAX} are possible: give \
             TYCHE_RUNTIME_DIR, or a name, a shorter one",
            socket.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let listener = UnixListener::bind(socket)?;
    // A connection takes the right to write.
    readers::admit(socket, Mode::RGRP | Mode::WGRP);
    Ok(Bound { listener, file: identity(socket)? })
}

/// Whether who is at the other end may change anything: root, and the daemon's own user.
pub(super) fn may_change(stream: &UnixStream) -> bool {
    let owns = |uid: Uid| uid.is_root() || uid == geteuid();
    socket_peercred(stream).is_ok_and(|peer| owns(peer.uid))
}

impl Connection for UnixStream {
    fn hang_up(&self) {
        // It fails only if the client has gone.
        let _ = self.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let socket = |len: usize| {
            let name = "s".repeat(len - dir.path().as_os_str().len() - 1);
            bind(&dir.path().join(name)).err().map(|error| error.to_string())
        };
        assert_eq!(socket(SOCKET_PATH_MAX), None);
        let error = socket(SOCKET_PATH_MAX + 1).unwrap();
        for part in ["108 bytes are too long for a socket", "give TYCHE_RUNTIME_DIR"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
