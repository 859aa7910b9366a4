//! The session of a FUSE file system, wherever it is mounted.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use tracing::{debug, warn};
use tyche_block::{Disk, avoid_reclaim_io};

use super::filesystem::DiskFile;
use super::inflight::InFlight;
use super::kernel::{self, Abort};
use crate::{Error, slots};

/// The longest read or write, in bytes; the kernel's own limit by default.
const IO_MAX: u32 = 1 << 20;

/// Threads that read requests from the kernel. One copies data while another submits.
const SESSION_THREADS: usize = 2;

/// The time that the kernel has to end an aborted session.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection between the kernel and the threads that answer it.
#[derive(Debug)]
pub(crate) struct FuseSession {
    in_flight: Arc<InFlight>,
    /// `None` where the kernel does not offer it.
    abort: Option<Abort>,
    /// Receives the result of the session. `None` after its end.
    ended: Option<mpsc::Receiver<io::Result<()>>>,
}

impl FuseSession {
    /// Serves `disk` as the only file, `name`, of a file system. Also returns its mount, which has
    /// no path: the session ends when the mount is closed and the file is not in use.
    ///
    /// # Errors
    /// Without root, or without FUSE in the kernel.
    pub(crate) fn start(disk: Arc<dyn Disk>, name: &str) -> Result<(Self, OwnedFd), Error> {
        let io_max = slots::io_max_of(disk.arena(), IO_MAX, "FUSE mount")?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(explain_open)?;
        let mount = kernel::mount(&device, io_max).map_err(explain_mount)?;
        let abort = Abort::of(&mount).inspect_err(|error| {
            debug!(%error, "no fusectl: another mount of the file system can delay its end");
        });
        let in_flight = InFlight::new();
        let file = DiskFile::new(disk, name, Arc::clone(&in_flight), io_max);
        let ended = serve(file, device)?;
        Ok((Self { in_flight, abort: abort.ok(), ended: Some(ended) }, mount))
    }

    /// Whether a program has the file open.
    pub(super) fn is_in_use(&self) -> bool {
        self.in_flight.is_open()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_none()
    }

    /// Ends the session, even if the file system is still mounted elsewhere, and waits until its
    /// threads are gone. Users of the file get errors.
    ///
    /// # Errors
    /// If the kernel does not end it.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        let Some(ended) = &self.ended else { return Ok(()) };
        self.in_flight.closed.raise();
        if let Some(Err(error)) = self.abort.as_ref().map(Abort::abort) {
            warn!(%error, "abort through fusectl failed");
        }
        match ended.recv_timeout(END_TIMEOUT) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(Error::new("end the FUSE session", ErrorKind::TimedOut).remedy(
                    "its file system is mounted elsewhere: close the files in use, or write 1 to \
                     its `abort` file in a file system of type fusectl",
                ));
            }
            Ok(Err(error)) => warn!(%error, "FUSE session ended with an error"),
            Ok(Ok(())) | Err(mpsc::RecvTimeoutError::Disconnected) => {}
        }
        self.ended = None;
        Ok(())
    }
}

impl Drop for FuseSession {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            warn!(%error, "FUSE session left behind");
        }
    }
}

/// Starts the threads; returns the receiver of their result.
fn serve(file: DiskFile, device: File) -> Result<mpsc::Receiver<io::Result<()>>, Error> {
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(SESSION_THREADS);
    config.clone_fd = true;
    let session = Session::from_fd(file, device.into(), SessionACL::All, config)
        .map_err(|error| Error::new("FUSE handshake with the kernel", error))?;
    let (sender, ended) = mpsc::sync_channel(1);
    let run = move || {
        // The session's threads are started by this one and inherit it.
        if let Err(error) = avoid_reclaim_io() {
            debug!(%error, "FUSE threads without protection from memory reclaim");
        }
        // The receiver may be gone.
        let _ = sender.send(session.run());
    };
    thread::Builder::new()
        .name("fuse-session".into())
        .spawn(run)
        .map_err(|error| Error::new("start a thread for FUSE", error))?;
    Ok(ended)
}

fn explain_open(error: io::Error) -> Error {
    let error = Error::new("open /dev/fuse", error);
    match error.kind() {
        ErrorKind::NotFound => error.remedy("load the kernel module: modprobe fuse"),
        ErrorKind::PermissionDenied => error.remedy("run as root"),
        _ => error.remedy("is FUSE built into this kernel? (CONFIG_FUSE_FS)"),
    }
}

fn explain_mount(error: io::Error) -> Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => "run as root (CAP_SYS_ADMIN)",
        Some(libc::ENODEV) => "load the kernel module: modprobe fuse",
        _ => "",
    };
    Error::new("mount FUSE", error).remedy(remedy)
}
