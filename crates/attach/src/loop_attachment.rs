//! A loop device over a FUSE file: a disk becomes `/dev/loopN`.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;
use tyche_block::Disk;

use crate::fuse::FuseSession;
use crate::loopdev::LoopDevice;
use crate::{Attachment, Error, Stopped};

/// A disk as a loop device. Dropping it stops it by force.
///
/// The file system below it is mounted without a path, so nobody else can use it, copy it to
/// another mount namespace, or find it after this process.
///
/// Without force, the file system stays until the device is gone. With force, it is aborted in any
/// case, after an attempt to release the device, so that nothing can wait for it.
#[derive(Debug)]
pub struct LoopAttachment {
    device_path: PathBuf,
    /// `None` once it was released.
    device: Option<LoopDevice>,
    fuse: FuseSession,
    /// The file system of the device's file.
    _mount: OwnedFd,
}

impl LoopAttachment {
    /// Makes `disk` a loop device. `name` is shown as its file in lists of loop devices.
    ///
    /// # Errors
    /// Without root, FUSE, or a free loop device; the message names the remedy. If the disk does
    /// not answer within half a minute.
    pub fn start(disk: Arc<dyn Disk>, name: &str) -> Result<Self, Error> {
        let geometry = disk.geometry();
        // If no device can be bound, dropping the session aborts all pending requests.
        let (fuse, mount) = FuseSession::start(disk, name)?;
        // A path rather than a descriptor: the thread that opens it shares no descriptors with this
        // one.
        let file = PathBuf::from(format!("/proc/self/fd/{}/{name}", mount.as_raw_fd()));
        let device = LoopDevice::attach(&file, &geometry)?;
        let device_path = device.path().to_owned();
        Ok(Self { device_path, device: Some(device), fuse, _mount: mount })
    }

    fn force_stop(&mut self) -> Result<Stopped, Error> {
        let mut in_use = Stopped::Gone;
        if let Some(mut device) = self.device.take() {
            // An idle device is released after its cache is written out. One that is in use, or
            // whose disk does not answer, needs the abort.
            match device.detach(true) {
                Ok(stopped) => in_use = stopped,
                Err(error) => {
                    warn!(%error, "loop device not released: its I/O is aborted");
                    in_use = Stopped::InUse;
                }
            }
            let ended = self.fuse.end();
            if !device.abandon() {
                warn!(device = %self.device_path.display(), "loop device still waits for I/O");
            }
            ended?;
        }
        self.fuse.end()?;
        Ok(in_use)
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
            return self.force_stop();
        }
        if let Some(device) = &mut self.device {
            if device.detach(false)? == Stopped::InUse {
                return Ok(Stopped::InUse);
            }
            self.device = None;
        }
        self.fuse.end()?;
        Ok(Stopped::Gone)
    }
}

impl Drop for LoopAttachment {
    fn drop(&mut self) {
        if let Err(error) = self.force_stop() {
            warn!(%error, "loop attachment left behind");
        }
    }
}
