//! A FUSE file system with a single file: the disk, for a loop device and for every program that
//! works on files.
//!
//! - All I/O is direct, in either direction up to 1 MiB a request (less with a small arena), up to
//!   128 asynchronous requests at once. A write that begins or ends within a block reads that block
//!   and writes it as a whole; writes to the same block wait for each other. Reads stop at the end
//!   of the disk.
//! - The file can be mapped (`MAP_SHARED` since Linux 6.6). Reads and writes on this machine, and
//!   its maps, see each other's data; a map does not see what other machines write.
//! - `fsync` is a flush. `O_DSYNC` writes are FUA. Punched holes and zeroed ranges read as zeroes.
//!   Any other `fallocate`, and changing the size, is refused.
//! - The session's threads only submit. The thread on which the disk answers sends the answer.
//! - Only root has access.
//!
//! # Death of this process
//! A program in an I/O request waits uninterruptibly until this process answers or *closes
//! `/dev/fuse`*, which the kernel does when the process dies. So no program hangs for ever, with
//! one exception, explained in `descriptors.rs`: threads of this very process. No thread that
//! shares its file descriptors with others ever touches a file below the mountpoint, or a device on
//! top of it. Allocating memory is another way to wait for a file system; see
//! [`avoid_reclaim_io`](tyche_block::avoid_reclaim_io).

mod filesystem;
mod inflight;
mod kernel;
mod locks;
mod mountpoint;
mod session;

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use tyche_block::Disk;

use self::mountpoint::Found;
pub(crate) use self::session::FuseSession;
use crate::{Attachment, Error, Stopped};

/// The subtype, which the list of mounts shows after `fuse.`.
const SUBTYPE: &str = "tyche";

/// The name of the file below the mountpoint.
const FILE_NAME: &str = "disk";

/// The time for which a busy unmount is retried: closing a file takes effect a little later.
const BUSY_GRACE: Duration = Duration::from_secs(1);

/// The interval between two tries.
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// A mounted file system. Dropping it stops it by force.
#[derive(Debug)]
pub struct FuseMount {
    mountpoint: PathBuf,
    file: PathBuf,
    session: FuseSession,
    /// Whether the mountpoint's directory was created by us.
    created: bool,
}

impl FuseMount {
    /// Mounts a file system with `disk` as its file at `mountpoint`, which is created if need be.
    /// The dead mount of a killed process is replaced.
    ///
    /// # Errors
    /// Without root, without FUSE in the kernel, or if something is mounted there already.
    pub fn start(mountpoint: &Path, disk: Arc<dyn Disk>) -> Result<Self, Error> {
        let (mountpoint, created) = prepare(mountpoint)?;
        let (session, mount) = FuseSession::start(disk, FILE_NAME)?;
        kernel::attach(&mount, &mountpoint).map_err(|error| {
            Error::new(format!("mount FUSE at {}", mountpoint.display()), error)
        })?;
        Ok(Self { file: mountpoint.join(FILE_NAME), mountpoint, session, created })
    }

    /// Whether a file system of this program is mounted at `mountpoint`, dead or alive.
    ///
    /// # Errors
    /// If the list of mounts can't be read.
    pub fn is_mounted(mountpoint: &Path) -> io::Result<bool> {
        match mountpoint::absolute(mountpoint) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            path => mountpoint::is_ours(&path?),
        }
    }

    /// Removes the dead mount of a killed process at `mountpoint`, if any. Returns whether there
    /// was one.
    ///
    /// # Errors
    /// If the list of mounts can't be read, or the kernel refuses to unmount.
    pub fn clean_stale(mountpoint: &Path) -> Result<bool, Error> {
        let explain = |error| Error::new(format!("clean up {}", mountpoint.display()), error);
        let path = match mountpoint::absolute(mountpoint) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            path => path.map_err(explain)?,
        };
        if mountpoint::find(&path).map_err(explain)? != Found::Stale {
            return Ok(false);
        }
        mountpoint::detach(&path).map_err(explain)?;
        Ok(true)
    }

    /// Unmounts the file system; false if it stays in use for [`BUSY_GRACE`]. The user may be a
    /// program in another mount namespace, which has a mount of its own.
    fn unmount_idle(&self) -> Result<bool, Error> {
        let deadline = Instant::now() + BUSY_GRACE;
        loop {
            if !self.session.is_in_use() {
                match mountpoint::unmount_idle(&self.mountpoint) {
                    Ok(()) => return Ok(true),
                    // Unmounted by another process.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(true),
                    Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                    Err(error) => return Err(self.explain_unmount(error)),
                }
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(BUSY_RETRY);
        }
    }

    fn explain_unmount(&self, error: io::Error) -> Error {
        Error::new(format!("unmount {}", self.mountpoint.display()), error)
    }
}

impl Attachment for FuseMount {
    fn device_path(&self) -> &Path {
        &self.file
    }

    /// Nothing to do: the kernel asks for the size whenever a program does.
    fn resized(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        if self.session.has_ended() {
            return Ok(Stopped::Gone);
        }
        if force {
            match mountpoint::detach(&self.mountpoint) {
                Err(error) if error.kind() != ErrorKind::InvalidInput => {
                    warn!(error = %self.explain_unmount(error), "FUSE mount not detached");
                }
                _ => {}
            }
        } else if !self.unmount_idle()? {
            return Ok(Stopped::InUse);
        }
        self.session.end()?;
        if self.created {
            // Fails if others have put files there.
            let _ = fs::remove_dir(&self.mountpoint);
        }
        Ok(Stopped::Gone)
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if let Err(error) = self.stop(true) {
            warn!(%error, "FUSE mount left behind");
        }
    }
}

/// Ensures that there is a directory without a mount. Returns its absolute path, and whether it is
/// new.
fn prepare(path: &Path) -> Result<(PathBuf, bool), Error> {
    let explain = |error| Error::new(format!("prepare mountpoint {}", path.display()), error);
    let created = match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(explain(error)),
    };
    if FuseMount::clean_stale(path)? {
        debug!(mountpoint = %path.display(), "removed the mount of a dead process");
    }
    let path = mountpoint::absolute(path).map_err(explain)?;
    match mountpoint::find(&path).map_err(explain)? {
        Found::Nothing => Ok((path, created)),
        _ => Err(explain(ErrorKind::ResourceBusy.into())
            .remedy("something is mounted there: unmount it, or choose another directory")),
    }
}
