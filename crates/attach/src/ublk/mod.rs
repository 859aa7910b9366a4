//! A block device of the kernel's own ublk driver, served by threads of this process.
//!
//! ```text
//! program -> /dev/ublkbN -> block layer, one queue for some CPUs each
//!                               |  request          ^  answer
//!                               v                   |
//!                        Queue: its ring, its descriptors     a thread each, or the disk's own
//!                               |  submit           ^  Inbox
//!                               v                   |
//!                             Disk: the session's threads
//! ```
//!
//! If the disk has at least as many queues as the device, each queue of the device is polled by the
//! thread that serves a queue of the disk, so a request goes from the block layer to the network
//! without a hand-over. Otherwise each queue of the device has a thread of its own, and the threads
//! copy data in parallel.
//!
//! The device outlives this process: if the process dies, requests wait until another one [takes
//! over](UblkDevice::recover), and those in flight are issued again. The devices of a program are
//! identified by a *mark*, a number that the kernel keeps.
//!
//! Linux 6.5 or later is needed, where data can be copied at any time (`UBLK_F_USER_COPY`); 6.16 or
//! later to resize an existing device. Zero copy (`UBLK_F_SUPPORT_ZERO_COPY`,
//! `UBLK_F_AUTO_BUF_REG`, 6.15) is of no use here: it lets the kernel move a request's pages, but
//! never the server read them, and network data are checksummed on the way.

mod abi;
mod control;
mod io_descriptors;
mod orphan;
mod params;
mod queue;
mod service;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tyche_block::Disk;

use self::abi::DeviceInfo;
use self::control::Control;
pub use self::orphan::Orphan;
use self::params::{check_params, params};
pub(crate) use self::service::Adopt;
use self::service::Service;
use crate::claim::{self, Cache, Claim};
use crate::{Attachment, Error, SECTOR, Stopped, slots};

/// The longest read or write, in bytes.
const IO_MAX: u32 = 1 << 20;
/// The features of all our devices.
const FLAGS: u64 = abi::F_USER_RECOVERY
    | abi::F_USER_RECOVERY_REISSUE
    | abi::F_CMD_IOCTL_ENCODE
    | abi::F_USER_COPY;
/// The time that the kernel has to notice the death of a server.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between two checks.
const RECOVERY_RETRY: Duration = Duration::from_millis(50);

/// Options of a device.
#[derive(Clone, Copy, Debug)]
pub struct UblkOptions {
    /// Queues, 1 to the number of CPUs.
    pub queues: u16,
    /// Requests in flight on each, 1 to 4096.
    pub depth: u16,
    /// The mark, which identifies the device's owner.
    pub mark: u64,
    /// Whether the kernel scans for partitions, now and whenever it is told to.
    ///
    /// During the first scan, before Linux 6.19, this process must not be killed: the kernel would
    /// keep its own reads for the next server, and wait for them, with the device locked.
    pub partitions: bool,
}

/// A disk as `/dev/ublkbN`. Dropping it removes the device by force.
pub struct UblkDevice {
    number: u32,
    path: PathBuf,
    control: Control,
    features: u64,
    disk: Arc<dyn Disk>,
    service: Service,
    /// False once the device is stopped, or left to another process.
    running: bool,
    /// The end of the kernel's cache.
    cache: Cache,
}

impl UblkDevice {
    /// Checks that this kernel supports it.
    ///
    /// # Errors
    /// The missing part, and its remedy.
    pub fn probe() -> Result<(), Error> {
        features(&mut Control::open()?).map(drop)
    }

    /// Whether this kernel can resize a device in use (Linux 6.16).
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn grows() -> Result<bool, Error> {
        Ok(features(&mut Control::open()?)? & abi::F_UPDATE_SIZE != 0)
    }

    /// Makes `disk` a block device.
    ///
    /// `adopt` passes a poller to the thread that serves a queue of the disk, by its number.
    ///
    /// # Errors
    /// Without root or the driver; the system's error when it refuses.
    pub fn start(
        disk: Arc<dyn Disk>,
        options: UblkOptions,
        adopt: Adopt<'_>,
    ) -> Result<Self, Error> {
        let mut control = Control::open()?;
        let features = features(&mut control)?;
        let io_max = slots::io_max(disk.arena(), IO_MAX);
        let info = DeviceInfo {
            queues: options.queues,
            depth: options.depth,
            io_max,
            device: abi::ANY_DEVICE,
            flags: FLAGS,
            server_flags: options.mark,
            ..DeviceInfo::default()
        };
        let explain = |error| Error::new("make a ublk device", error);
        let info = control.add(info).map_err(explain)?;
        let params = params(&disk.geometry(), io_max);
        let started = control.set_params(info.device, params).map_err(explain).and_then(|()| {
            let service = Service::start(&info, &disk, options.partitions, adopt)?;
            Ok((control.start(info.device).map_err(explain), service))
        });
        let (started, service) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = control.delete(info.device);
                return Err(error);
            }
        };
        let this = Self::new(info.device, control, features, disk, service);
        started.map(|()| this)
    }

    /// Takes over the device of that mark, whose server has died. The kernel issues its unanswered
    /// requests again. The size stays: see [`resized`](Attachment::resized).
    ///
    /// # Errors
    /// `NotFound` if there is no such device; if its server lives; if the disk does not match the
    /// one that it was made from.
    pub fn recover(disk: Arc<dyn Disk>, mark: u64, adopt: Adopt<'_>) -> Result<Self, Error> {
        let Some(orphan) = Orphan::find(mark)?.filter(Orphan::waits) else {
            return Err(Error::new("take over a ublk device", ErrorKind::NotFound));
        };
        let Orphan { info, path, mut control } = orphan;
        let explain = |error| Error::new(format!("take over {}", path.display()), error);
        let number = info.device;
        let features = features(&mut control)?;
        let io_max = slots::io_max(disk.arena(), IO_MAX);
        let of_device = control.params(number).map_err(explain)?;
        check_params(&of_device, &params(&disk.geometry(), io_max)).map_err(explain)?;
        slots::keep(&disk, u64::from(of_device.basic.sectors_max) * SECTOR)
            .map_err(|kind| explain(kind.into()))?;
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        while let Err(error) = control.start_recovery(number) {
            if error.kind() != ErrorKind::ResourceBusy || Instant::now() >= deadline {
                return Err(explain(error).remedy("another process may still serve it"));
            }
            thread::sleep(RECOVERY_RETRY);
        }
        // If a later step fails, the device waits for the next attempt.
        let service = Service::start(&info, &disk, true, adopt)?;
        control.end_recovery(number).map_err(explain)?;
        Ok(Self::new(number, control, features, disk, service))
    }

    fn new(
        number: u32,
        control: Control,
        features: u64,
        disk: Arc<dyn Disk>,
        service: Service,
    ) -> Self {
        Self {
            number,
            path: path(number),
            control,
            features,
            disk,
            service,
            running: true,
            cache: Cache::Written,
        }
    }

    /// The number of the device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Removes the block device: all I/O fails from now on.
    pub(crate) fn halt(&mut self) -> Result<(), Error> {
        if self.running {
            self.control.stop(self.number).map_err(|error| self.explain(error))?;
            self.running = false;
            self.service.end();
        }
        Ok(())
    }

    /// Removes a halted device.
    pub(crate) fn delete(&mut self) -> Result<(), Error> {
        self.control.delete(self.number).map_err(|error| self.explain(error))
    }

    fn explain(&self, error: io::Error) -> Error {
        Error::new(format!("stop {}", self.path.display()), error)
    }
}

impl Attachment for UblkDevice {
    fn device_path(&self) -> &Path {
        &self.path
    }

    fn resized(&mut self) -> Result<(), Error> {
        let size = self.disk.geometry().size;
        let explain = |error| Error::new(format!("resize {}", self.path.display()), error);
        if self.features & abi::F_UPDATE_SIZE == 0 {
            let params = self.control.params(self.number).map_err(explain)?;
            if params.basic.sectors * SECTOR == size {
                return Ok(());
            }
            return Err(explain(ErrorKind::Unsupported.into()).remedy(
                "Linux changes the size of ublk devices from 6.16 on; disconnect and connect \
                 again, with --growable if it is to grow in use next time",
            ));
        }
        self.control.update_size(self.number, size / SECTOR).map_err(explain)
    }

    fn leave(&mut self) {
        self.running = false;
    }

    fn give_up_cache(&mut self) {
        self.cache = Cache::GivenUp;
    }

    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        if !self.running {
            return Ok(Stopped::Gone);
        }
        if !force {
            let Some(claim) = Claim::take(&self.path, self.cache)? else {
                return Ok(Stopped::InUse);
            };
            let halted = self.halt();
            claim.release();
            return halted.and_then(|()| self.delete()).map(|()| Stopped::Gone);
        }
        let in_use = claim::is_in_use(&self.path).unwrap_or(true);
        self.halt()?;
        self.delete()?;
        Ok(if in_use { Stopped::InUse } else { Stopped::Gone })
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        if self.running
            && let Err(error) = self.halt().and_then(|()| self.delete())
        {
            tracing::warn!(%error, "ublk device left behind");
        }
    }
}

fn path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// The driver's features, if they suffice.
fn features(control: &mut Control) -> Result<u64, Error> {
    // A driver that does not know the query is too old.
    let features = control.features().unwrap_or(0);
    if features & FLAGS == FLAGS {
        return Ok(features);
    }
    let error = Error::new("use the ublk driver", ErrorKind::Unsupported);
    Err(error.remedy("Linux 6.5 or later is needed"))
}
