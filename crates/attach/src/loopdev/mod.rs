//! Loop devices: a file becomes `/dev/loopN`.
//!
//! The device has direct I/O, so nothing is cached twice; the kernel scans its partitions. It lives
//! as long as its [`LoopDevice`], or as long as it is open elsewhere (a mounted file system),
//! whichever is longer. It never outlives both, not even if the process is killed.
//!
//! As the device is held open all the time, the close of a program that writes through the device's
//! cache without `fsync` is not the *last* close; the kernel then writes at its leisure, as with a
//! file.
//!
//! Every call has a time limit, because the file may be served by this very process (see
//! [`fuse`](crate::fuse)), and its disk may not answer.

mod keeper;
mod sys;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::warn;
use tyche_block::Geometry;

use self::keeper::{Binding, Command};
use crate::claim::BUSY_GRACE;
use crate::{Error, Stopped};

/// The longest wait for binding. The kernel reads the partition table, so the disk must answer.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest wait for a change of size.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait for a release. The kernel writes its cache out, so the disk must answer.
const DETACH_TIMEOUT: Duration = Duration::from_secs(30);

/// As [`DETACH_TIMEOUT`], with force: long enough for a disk that does answer.
const FORCED_DETACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest wait for the keeper's end after the device's file fails all I/O.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval between two checks for the keeper's end.
const ABANDON_RETRY: Duration = Duration::from_millis(10);

/// A bound loop device. Dropping it releases it; the device vanishes with its last close.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// `None` once the keeper was told to end.
    commands: Option<mpsc::Sender<Command>>,
    keeper: JoinHandle<()>,
}

impl LoopDevice {
    /// Binds a free loop device to `file`. The device gets the properties of `disk`, and the size
    /// of the file.
    ///
    /// # Errors
    /// Without root, loop devices, or a free one; if the file must be writable and can't be opened
    /// for writing; if it does not answer in time.
    pub fn attach(file: &Path, disk: &Geometry) -> Result<Self, Error> {
        let (commands, inbox) = mpsc::channel();
        let (sender, bound) = mpsc::sync_channel(1);
        let Geometry { block_size, read_only, rotational, .. } = *disk;
        let binding = Binding { file: file.to_owned(), block_size, read_only, rotational };
        let keeper = thread::Builder::new()
            .name("loop-keeper".into())
            .spawn(move || keeper::run(&binding, &sender, &inbox))
            .map_err(|error| Error::new("start a thread for a loop device", error))?;
        let path = bound.recv_timeout(ATTACH_TIMEOUT).map_err(|error| {
            no_answer(&format!("attach a loop device to {}", file.display()), error)
        })??;
        Ok(Self { path, commands: Some(commands), keeper })
    }

    /// The device's path: `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the device's size to the present size of its file.
    ///
    /// # Errors
    /// The kernel's error when it refuses, or if it takes too long.
    pub fn set_capacity(&self) -> Result<(), Error> {
        let action = format!("resize {}", self.path.display());
        match self.ask(Command::Resize, RESIZE_TIMEOUT) {
            Some(answer) => answer.map_err(|error| no_answer(&action, error))?,
            None => Err(Error::new(action, ErrorKind::NotConnected)),
        }
    }

    /// Releases the device, after the kernel has written out its cache. A device that is open
    /// elsewhere stays: without `force`, it stays ours, and `detach` may be called again; with
    /// `force`, it vanishes with its last close.
    ///
    /// # Errors
    /// If the kernel could not write in time. It continues, and `detach` may be called again. With
    /// `force`, the device is released all the same.
    pub fn detach(&mut self, force: bool) -> Result<Stopped, Error> {
        let action = format!("detach {}", self.path.display());
        let (patience, timeout) = match force {
            true => (Duration::ZERO, FORCED_DETACH_TIMEOUT),
            false => (BUSY_GRACE, DETACH_TIMEOUT),
        };
        let release = |answer| Command::Release { patience, answer };
        let answer = match self.ask(release, timeout) {
            // The keeper has ended: the device was released before.
            None | Some(Err(RecvTimeoutError::Disconnected)) => Ok(Stopped::Gone),
            Some(Ok(answer)) => answer,
            Some(Err(error)) => Err(no_answer(&action, error)),
        };
        if force {
            self.commands = None;
        }
        answer
    }

    /// Releases the device, whose file fails all I/O by now. Returns false if the kernel still
    /// waits for it after some seconds.
    pub(crate) fn abandon(&mut self) -> bool {
        self.commands = None;
        let deadline = Instant::now() + ABANDON_TIMEOUT;
        while !self.keeper.is_finished() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(ABANDON_RETRY);
        }
        true
    }

    /// Sends a command and waits for the answer; `None` if the keeper has ended.
    fn ask<T>(
        &self,
        command: impl FnOnce(SyncSender<T>) -> Command,
        timeout: Duration,
    ) -> Option<Result<T, RecvTimeoutError>> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.commands.as_ref()?.send(command(sender)).ok()?;
        Some(answer.recv_timeout(timeout))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.abandon() {
            warn!(device = %self.path.display(), "the kernel still waits for I/O to a loop device");
        }
    }
}

fn no_answer(action: &str, error: RecvTimeoutError) -> Error {
    match error {
        RecvTimeoutError::Timeout => Error::new(action, ErrorKind::TimedOut)
            .remedy("its disk does not answer: restore the connection, or use force"),
        RecvTimeoutError::Disconnected => {
            Error::new(action, io::Error::other("the thread that holds the device has panicked"))
        }
    }
}
