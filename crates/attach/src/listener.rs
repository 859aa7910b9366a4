//! A listening Unix socket, and its path in the file system.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    shutdown, socket_with,
};

use crate::Error;

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 16;

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
    pub(crate) fn bind(path: &Path, protocol: &str) -> Result<(Self, OwnedFd), Error> {
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
        let listener = fd.try_clone().map_err(|error| explain("clone", error))?;
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

    /// Ends a waiting [`accept`] and every later one.
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

/// Waits for a connection.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<UnixStream> {
    loop {
        match accept_with(&listener, SocketFlags::CLOEXEC) {
            Ok(fd) => return Ok(fd.into()),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
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
