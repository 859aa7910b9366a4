//! A loop device over a FUSE file: a disk becomes `/dev/loopN`.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;
use tyche_block::Disk;

use crate::fuse::FuseMount;
use crate::loopdev::LoopDevice;
use crate::{Attachment, Error, Stopped};

/// Directory below the runtime directory where the file is mounted.
const MOUNTPOINT: &str = "fuse";

/// A disk as a loop device. Dropping it stops it by force.
///
/// What the device still needs is taken away last: without force the file system stays until the
/// device is gone. With force it is aborted first, so that nothing can wait for it.
#[derive(Debug)]
pub struct LoopAttachment {
    device_path: PathBuf,
    /// `None` once it was let go.
    device: Option<LoopDevice>,
    fuse: FuseMount,
    runtime_dir: PathBuf,
}

impl LoopAttachment {
    /// Makes `disk` a loop device. `runtime_dir` is created if need be; it belongs to this
    /// attachment alone, and what a killed process has left there is cleaned up.
    ///
    /// # Errors
    /// Without root, FUSE, or a free loop device; the message says what to do. If the disk does
    /// not answer within half a minute.
    pub fn start(disk: Arc<dyn Disk>, runtime_dir: &Path) -> Result<Self, Error> {
        DirBuilder::new().recursive(true).mode(0o700).create(runtime_dir).map_err(|error| {
            Error::new(format!("create the directory {}", runtime_dir.display()), error)
        })?;
        let geometry = disk.geometry();
        // If the device can't be had, dropping the mount aborts whatever it still waits for.
        let fuse = FuseMount::start(&runtime_dir.join(MOUNTPOINT), disk)?;
        let device = LoopDevice::attach(fuse.device_path(), &geometry)?;
        Ok(Self {
            device_path: device.path().to_owned(),
            device: Some(device),
            fuse,
            runtime_dir: runtime_dir.to_owned(),
        })
    }

    /// Takes away what a killed process has left below `runtime_dir`. Returns whether there was
    /// something. Its loop device needs no cleaning up.
    ///
    /// # Errors
    /// As [`FuseMount::clean_stale`].
    pub fn clean_stale(runtime_dir: &Path) -> Result<bool, Error> {
        FuseMount::clean_stale(&runtime_dir.join(MOUNTPOINT))
    }

    fn force_stop(&mut self) -> Result<Stopped, Error> {
        let mut in_use = Stopped::Gone;
        if let Some(mut device) = self.device.take() {
            // An idle device is let go in good order, its cache written. One that is in use, or
            // whose disk does not answer, needs the abort.
            match device.detach(true) {
                Ok(stopped) => in_use = stopped,
                Err(error) => {
                    warn!(%error, "forced");
                    in_use = Stopped::InUse;
                }
            }
            let aborted = self.fuse.stop(true);
            if !device.abandon() {
                warn!(device = %self.device_path.display(), "still waits for I/O");
            }
            let _ = aborted?;
        }
        let _ = self.fuse.stop(true)?;
        Ok(in_use)
    }

    fn remove_dir(&self) {
        // It stays if it is not empty, which is up to whoever put something there.
        let _ = fs::remove_dir(&self.runtime_dir);
    }
}

impl Attachment for LoopAttachment {
    fn device_path(&self) -> &Path {
        &self.device_path
    }

    fn resized(&mut self) -> Result<(), Error> {
        self.device.as_ref().map_or(Ok(()), LoopDevice::set_capacity)
    }

    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        if force {
            let stopped = self.force_stop()?;
            self.remove_dir();
            return Ok(stopped);
        }
        if let Some(device) = &mut self.device {
            if device.detach(false)? == Stopped::InUse {
                return Ok(Stopped::InUse);
            }
            self.device = None;
        }
        let stopped = self.fuse.stop(false)?;
        if stopped == Stopped::Gone {
            self.remove_dir();
        }
        Ok(stopped)
    }
}

impl Drop for LoopAttachment {
    fn drop(&mut self) {
        if let Err(error) = self.force_stop() {
            warn!(%error, "loop attachment left behind");
        }
    }
}
