//! A FUSE file system with a single file, `disk`: the disk for a loop device, and for everything
//! that works on a file.
//!
//! - All I/O is direct, in either direction up to 1 MiB a request (less with a small arena), up
//!   to 128 asynchronous requests at once. Offset and length must be multiples of the disk's
//!   block size; anything else gets `EINVAL`. So must buffers of 1 MiB and more be, as with
//!   `O_DIRECT`, or the kernel cuts their I/O where no block ends. Reads end with the disk.
//! - `fsync` is a flush. `O_DSYNC` writes are FUA. Punched holes and zeroed ranges read as
//!   zeroes. Any other `fallocate`, and changing the size, is refused.
//! - The session's threads only submit. The thread on which the disk answers sends the answer.
//! - Only root may look inside.
//!
//! # Who may wait for whom
//! A program in an I/O request waits uninterruptibly until this process answers or *closes
//! `/dev/fuse`*, which the kernel does when the process dies. So nothing dies badly, with one
//! exception, explained in `descriptors.rs`: threads of this very process.
//! None that shares its file descriptors with others ever touches a file below the mountpoint,
//! or a device on top of it. Allocating memory is another way to wait for a file system; see
//! [`avoid_reclaim_io`].

mod filesystem;
mod inflight;
mod mountpoint;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Config, Session, SessionACL};
use tracing::{debug, warn};
use tyche_block::Disk;

use self::filesystem::{DiskFile, FILE_NAME};
use self::inflight::InFlight;
use self::mountpoint::Found;
use crate::reclaim::avoid_reclaim_io;
use crate::{Attachment, Error, Stopped, slots};

/// The longest read or write, in bytes; the kernel's own limit by default.
const IO_MAX: u32 = 1 << 20;

/// Threads that take requests from the kernel. One copies what another submits.
const SESSION_THREADS: usize = 2;

/// How long the kernel may take to end the session after the unmount.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a mount that is busy is tried again: closing a file takes effect a little later.
const BUSY_GRACE: Duration = Duration::from_secs(1);

/// Between two such tries.
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// A mounted file system. Dropping it stops it by force.
#[derive(Debug)]
pub struct FuseMount {
    mountpoint: PathBuf,
    file: PathBuf,
    in_flight: Arc<InFlight>,
    /// Says how the session ended. `None` after it has.
    ended: Option<mpsc::Receiver<io::Result<()>>>,
    /// The mountpoint's directory did not exist before.
    created: bool,
}

impl FuseMount {
    /// Mounts a file system with `disk` as its file at `mountpoint`, which is created if need be.
    /// The dead mount of a process that was killed is replaced.
    ///
    /// # Errors
    /// Without root, without FUSE in the kernel, or if something is mounted there already.
    pub fn start(mountpoint: &Path, disk: Arc<dyn Disk>) -> Result<Self, Error> {
        let io_max = slots::io_max(disk.arena(), IO_MAX);
        if io_max == 0 {
            let error = io::Error::from(ErrorKind::InvalidInput);
            return Err(Error::new("FUSE mount", error).remedy("use an arena of 4 pages or more"));
        }
        let (mountpoint, created) = prepare(mountpoint)?;
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(|error| explain_open(Error::new("open /dev/fuse", error)))?;
        mountpoint::mount_fuse(&device, &mountpoint, io_max)
            .map_err(|error| explain_mount(&mountpoint, error))?;

        let in_flight = InFlight::new();
        let (sender, ended) = mpsc::sync_channel(1);
        let mount = Self {
            file: mountpoint.join(FILE_NAME),
            mountpoint,
            in_flight: Arc::clone(&in_flight),
            ended: Some(ended),
            created,
        };
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.n_threads = Some(SESSION_THREADS);
        config.clone_fd = true;
        let file = DiskFile::new(disk, in_flight, io_max);
        let session = Session::from_fd(file, device.into(), SessionACL::All, config)
            .map_err(|error| Error::new("FUSE handshake with the kernel", error))?;
        thread::Builder::new()
            .name("fuse-session".into())
            .spawn(move || {
                // The session's threads are started by this one and inherit it.
                if let Err(error) = avoid_reclaim_io() {
                    debug!(%error, "FUSE threads without protection from memory reclaim");
                }
                // Nobody may be listening any more.
                let _ = sender.send(session.run());
            })
            .map_err(|error| Error::new("start a thread for FUSE", error))?;
        Ok(mount)
    }

    /// Takes the dead mount of a process that was killed away, if there is one at `mountpoint`.
    /// Returns whether there was.
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
        mountpoint::unmount_abort(&path).map_err(explain)?;
        Ok(true)
    }

    /// Unmounts; false if the mount is busy, and stays so for a while.
    fn unmount_idle(&self) -> Result<bool, Error> {
        let deadline = Instant::now() + BUSY_GRACE;
        loop {
            match mountpoint::unmount_idle(&self.mountpoint) {
                Ok(()) => return Ok(true),
                // Unmounted by somebody else: fine if the session ends, which is looked at next.
                Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(true),
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                Err(error) => return Err(self.explain_unmount(error)),
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(BUSY_RETRY);
        }
    }

    /// Waits until the session's threads are gone.
    fn join(&mut self) -> Result<(), Error> {
        let Some(ended) = &self.ended else { return Ok(()) };
        match ended.recv_timeout(SESSION_END_TIMEOUT) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(self.explain_unmount(ErrorKind::TimedOut.into()).remedy(
                    "it was unmounted lazily by somebody else: close the files in use, or write 1 \
                     to its `abort` file in a file system of type fusectl",
                ));
            }
            Ok(Err(error)) => warn!(%error, "FUSE session"),
            Ok(Ok(())) | Err(mpsc::RecvTimeoutError::Disconnected) => {}
        }
        self.ended = None;
        self.in_flight.closed.raise();
        if self.created {
            // It may hold what somebody else has put there.
            let _ = fs::remove_dir(&self.mountpoint);
        }
        Ok(())
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
        if self.ended.is_none() {
            return Ok(Stopped::Gone);
        }
        if force {
            self.in_flight.closed.raise();
            match mountpoint::unmount_abort(&self.mountpoint) {
                Err(error) if error.kind() != ErrorKind::InvalidInput => {
                    return Err(self.explain_unmount(error));
                }
                _ => {}
            }
        } else if !self.unmount_idle()? {
            return Ok(Stopped::InUse);
        }
        self.join().map(|()| Stopped::Gone)
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if let Err(error) = self.stop(true) {
            warn!(%error, "FUSE mount left behind");
        }
    }
}

/// Makes sure that there is a directory without a mount. Returns its absolute path, and whether
/// it is new.
fn prepare(path: &Path) -> Result<(PathBuf, bool), Error> {
    let explain = |error| Error::new(format!("prepare mountpoint {}", path.display()), error);
    let created = match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(explain(error)),
    };
    if FuseMount::clean_stale(path)? {
        debug!(mountpoint = %path.display(), "took away the mount of a dead process");
    }
    let path = mountpoint::absolute(path).map_err(explain)?;
    match mountpoint::find(&path).map_err(explain)? {
        Found::Nothing => Ok((path, created)),
        _ => Err(explain(ErrorKind::ResourceBusy.into())
            .remedy("something is mounted there: unmount it, or choose another directory")),
    }
}

fn explain_open(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => error.remedy("load the kernel module: modprobe fuse"),
        ErrorKind::PermissionDenied => error.remedy("run as root"),
        _ => error.remedy("is FUSE built into this kernel? (CONFIG_FUSE_FS)"),
    }
}

fn explain_mount(mountpoint: &Path, error: io::Error) -> Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => "run as root (CAP_SYS_ADMIN)",
        Some(libc::ENODEV) => "load the kernel module: modprobe fuse",
        _ => "",
    };
    Error::new(format!("mount FUSE at {}", mountpoint.display()), error).remedy(remedy)
}
