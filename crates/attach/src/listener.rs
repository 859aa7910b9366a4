//! A listening Unix socket, and its path in the file system.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    shutdown, socket_with,
};
use tracing::warn;

use crate::Error;

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// The pause when another connection can't be accepted (no file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket bound to a path. Dropping it removes the path, if it is still this socket's.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    path: PathBuf,
    /// Device and inode of the path at its creation.
    identity: (u64, u64),
    fd: OwnedFd,
}

impl ListeningSocket {
    /// Binds to `path` and listens, replacing the socket of a dead server. Also returns a second
    /// handle for the thread that accepts. `protocol` is for messages.
    pub(crate) fn bind(path: &Path, protocol: &'static str) -> Result<(Self, Listener), Error> {
        let explain = |action: &str, error: io::Error| {
            Error::new(format!("{action} the {protocol} socket {}", path.display()), error)
        };
        remove_dead(path).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => explain("bind", error)
                .remedy("another server listens there: stop it, or choose another path"),
            _ => explain("replace", error),
        })?;
        let address = SocketAddrUnix::new(path).map_err(|error| {
            explain("bind", error.into()).remedy("use a path of less than 108 bytes")
        })?;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| explain("create", error.into()))?;
        bind(&fd, &address).map_err(|error| explain("bind", error.into()))?;
        let made = fs::symlink_metadata(path).map_err(|error| explain("find", error))?;
        let clone = fd.try_clone().map_err(|error| explain("clone", error))?;
        let listener = Listener { fd: clone, protocol };
        let socket = Self { path: path.to_owned(), identity: (made.dev(), made.ino()), fd };
        // Nobody can connect before `listen`, so the permissions are never too loose.
        fs::set_permissions(path, Permissions::from_mode(0o600))
            .map_err(|error| explain("protect", error))?;
        listen(&socket.fd, BACKLOG).map_err(|error| explain("listen on", error.into()))?;
        Ok((socket, listener))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends a waiting accept and every later one.
    pub(crate) fn shut_down(&self) {
        // Can't fail on a listening socket; the next connection would wake it all the same.
        let _ = shutdown(&self.fd, Shutdown::Both);
        self.remove();
    }

    fn remove(&self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours {
            // It may be removed already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The end of a socket that accepts connections, for a thread of its own.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    /// For messages.
    protocol: &'static str,
}

impl Listener {
    /// Accepts one connection after the other, until `is_over`.
    pub(crate) fn accept_until(
        &self,
        is_over: impl Fn() -> bool,
    ) -> impl Iterator<Item = UnixStream> {
        std::iter::from_fn(move || {
            while !is_over() {
                match accept_with(&self.fd, SocketFlags::CLOEXEC) {
                    Ok(fd) => return Some(fd.into()),
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(_) if is_over() => {}
                    Err(error) => {
                        let error = io::Error::from(error);
                        warn!(%error, "accept on the {} socket failed", self.protocol);
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
            None
        })
    }
}

/// Removes a socket without a listener. Leaves everything else alone.
fn remove_dead(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
    }
}
