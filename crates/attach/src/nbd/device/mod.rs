//! The kernel's own network block device: a disk becomes `/dev/nbdN`.
//!
//! The kernel is the client of a [connection](super::connection) over a pair of sockets. It gets by
//! netlink what other clients get in the handshake.
//!
//! Failures, with one socket (the default):
//!
//! - *The target is lost.* The disk answers every request in the end (`--ctrl-loss-tmo`), so the
//!   kernel is told to wait for ever. It logs requests that seem stuck.
//! - *This process dies.* The device stays, and requests wait for
//!   [`dead_timeout`](NbdDeviceOptions::dead_timeout). A new process that [takes
//!   over](NbdDevice::recover) gets them: new ones at once, and those in flight at the kernel's
//!   next check of them ([`LOOK_AGAIN`]). No program sees an error.
//! - *The device is removed by force.* The sockets are closed, so that nothing in the kernel can
//!   wait for them, and then the device is removed: requests in flight fail with `EIO`.
//!
//! With several sockets there is a hardware queue for each. But the kernel's only reaction to a
//! late reply is to give the socket up and send the request on another. A request that is late
//! because of the target must not be sent twice: a write still in flight might then overtake later
//! ones. So the kernel's timeout must exceed the disk's own, and after the death of a process its
//! requests in flight wait that long. Hence one socket is the default.
//!
//! A device that others have open can't vanish. It fails all I/O, and is free again after its last
//! close.

mod kernel;
mod netlink;
mod sysfs;

use std::fmt;
use std::io::{self, ErrorKind};
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use tyche_block::{Disk, Geometry};

use self::kernel::{Ends, Server};
use self::netlink::{Configuration, Driver};
use super::PAYLOAD_MAX;
use super::handshake::transmission_flags;
use crate::claim::{self, Cache, Claim};
use crate::{Attachment, Error, Stopped, slots};

/// With one socket, the interval at which the kernel checks whether a request in flight has lost
/// its connection. Each time it logs a line for each such request.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// With several sockets, the kernel's timeout in excess of the disk's.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kernel's longest timeout: it counts up to 2^32 ticks of a millisecond.
const PATIENCE_MAX: Duration = Duration::from_secs(4_000_000);

/// The time that the kernel has to notice the death of a process.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval between two tries.
const RECONNECT_RETRY: Duration = Duration::from_millis(20);

/// Options of a device.
#[derive(Clone, Debug)]
pub struct NbdDeviceOptions {
    /// Sockets between the kernel and this process, each a hardware queue. See the [module](super)
    /// for the cost of more than one.
    pub sockets: NonZeroU16,
    /// The time within which the disk answers every request, perhaps with an error; `None` if there
    /// is no limit. Used with several sockets only.
    pub answer_within: Option<Duration>,
    /// The time that requests wait for a new process after this one has died, before they fail.
    pub dead_timeout: Duration,
    /// Identifies the device: needed to take it over or to remove it. Short text, such as a UUID.
    pub identity: String,
}

impl NbdDeviceOptions {
    /// One socket, and five minutes for a new process.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            sockets: NonZeroU16::MIN,
            answer_within: None,
            dead_timeout: Duration::from_secs(300),
            identity: identity.into(),
        }
    }

    /// The kernel's timeout. Zero means no limit, with one socket.
    fn timeout_s(&self) -> u64 {
        if self.sockets == NonZeroU16::MIN {
            return 0;
        }
        let wanted = self.answer_within.and_then(|limit| limit.checked_add(PATIENCE));
        wanted.unwrap_or(PATIENCE_MAX).min(PATIENCE_MAX).as_secs()
    }
}

/// A disk as a device of the kernel's nbd driver. Dropping it stops it by force.
pub struct NbdDevice {
    number: u32,
    path: PathBuf,
    identity: String,
    disk: Arc<dyn Disk>,
    driver: Driver,
    /// `None` once the device was released.
    server: Option<Server>,
    /// The end of the kernel's cache.
    cache: Cache,
}

impl NbdDevice {
    /// Checks that this kernel supports it.
    ///
    /// # Errors
    /// The missing part, and its remedy.
    pub fn probe() -> Result<(), Error> {
        Driver::open().map(drop)
    }

    /// Makes `disk` a block device on a free nbd device, loading the driver if need be.
    ///
    /// # Errors
    /// Without root or the driver; if the arena is too small for a request; the kernel's error when
    /// it refuses.
    pub fn start(disk: Arc<dyn Disk>, options: &NbdDeviceOptions) -> Result<Self, Error> {
        let request_max = request_max(&disk)?;
        let driver = Driver::open()?;
        let explain = |error: io::Error| {
            let denied = error.kind() == ErrorKind::PermissionDenied;
            let error = Error::new("make an nbd device", error);
            if denied { error.remedy("run as root") } else { error }
        };
        let ends: Vec<_> = (0..options.sockets.get())
            .map(|_| Ends::pair())
            .collect::<Result<_, _>>()
            .map_err(explain)?;
        let number = {
            let sockets: Vec<_> = ends.iter().map(|ends| ends.kernel.as_fd()).collect();
            let configuration = configuration(&disk.geometry(), options, &sockets);
            driver.connect(&configuration).map_err(explain)?
        };
        let mut server = Server::new(&disk);
        let served = ends.into_iter().try_for_each(|ends| server.serve(ends.ours));
        // From here on, dropping it removes the device.
        let device = Self::of(number, disk, driver, server, options);
        served.map_err(explain)?;
        device.tune(options);
        if let Err(error) = sysfs::set_request_max(number, request_max) {
            warn!(device = %device.path.display(), %error, "requests stay small");
        }
        scan_partitions(&device.path);
        Ok(device)
    }

    /// Takes over the device of a dead process: waiting requests are served, and those that were in
    /// flight are sent again. The number of sockets stays.
    ///
    /// # Errors
    /// As [`start`](Self::start). `NotFound` if the device has no disk any more or belongs to
    /// another; `ResourceBusy` if its process is alive.
    pub fn recover(
        number: u32,
        disk: Arc<dyn Disk>,
        options: &NbdDeviceOptions,
    ) -> Result<Self, Error> {
        let action = format!("take over /dev/nbd{number}");
        let refuse = |kind: ErrorKind| Error::new(action.as_str(), kind);
        let explain = |error: io::Error| Error::new(action.as_str(), error);
        if sysfs::identity(number).as_deref() != Some(options.identity.as_str()) {
            let error = refuse(ErrorKind::NotFound);
            return Err(error.remedy("it is not ours any more: connect again"));
        }
        let sockets = sysfs::queues(number).clamp(1, usize::from(u16::MAX)) as u16;
        let sockets = NonZeroU16::new(sockets).expect("it was made one at least");
        let options = NbdDeviceOptions { sockets, ..options.clone() };
        // The former process may have had the kernel make longer ones.
        let wanted = sysfs::request_max(number).filter(|bytes| *bytes <= PAYLOAD_MAX.into());
        let kept =
            wanted.ok_or(ErrorKind::InvalidInput).and_then(|bytes| slots::keep(&disk, bytes));
        kept.map_err(|kind| {
            refuse(kind).remedy("the arena must be as large as the former process's")
        })?;
        let driver = Driver::open()?;
        let mut server = Server::new(&disk);
        let deadline = Instant::now() + RECONNECT_TIMEOUT;
        while server.connections() < usize::from(sockets.get()) {
            let ends = Ends::pair().map_err(explain)?;
            let sockets = [ends.kernel.as_fd()];
            let configuration = configuration(&disk.geometry(), &options, &sockets);
            driver.reconnect(number, &configuration).map_err(explain)?;
            if let Some(stream) = ends.if_taken() {
                server.serve(stream).map_err(explain)?;
            } else if Instant::now() < deadline {
                thread::sleep(RECONNECT_RETRY);
            } else {
                return Err(refuse(ErrorKind::ResourceBusy)
                    .remedy("the process that serves it must end first"));
            }
        }
        let device = Self::of(number, disk, driver, server, &options);
        device.tune(&options);
        Ok(device)
    }

    /// The device of this identity, if it has a disk, whether its process is alive or dead. Kernels
    /// before 5.14 don't report identities.
    pub fn find(identity: &str) -> Option<u32> {
        let ours = |&number: &u32| sysfs::identity(number).as_deref() == Some(identity);
        sysfs::numbers().into_iter().find(ours)
    }

    /// Removes the device of this identity from a dead process, if there is one. Its waiting
    /// requests fail. Without `force`, only if it is not in use.
    ///
    /// # Errors
    /// The kernel's error when it refuses.
    pub fn remove_orphan(identity: &str, force: bool) -> Result<Stopped, Error> {
        let Some(number) = Self::find(identity) else { return Ok(Stopped::Gone) };
        let path = path(number);
        let explain = |error| Error::new(format!("remove {}", path.display()), error);
        // The open may wait until the device has a server: only without `force`.
        if !force && claim::is_in_use(&path).map_err(explain)? {
            return Ok(Stopped::InUse);
        }
        disconnect(&Driver::open()?, number)?;
        Ok(Stopped::Gone)
    }

    fn of(
        number: u32,
        disk: Arc<dyn Disk>,
        driver: Driver,
        server: Server,
        options: &NbdDeviceOptions,
    ) -> Self {
        let (path, identity) = (path(number), options.identity.clone());
        Self { number, path, identity, disk, driver, server: Some(server), cache: Cache::Written }
    }

    /// Sets the attributes that netlink can't set.
    fn tune(&self, options: &NbdDeviceOptions) {
        if options.timeout_s() != 0 {
            return;
        }
        if let Err(error) = sysfs::set_look_again(self.number, LOOK_AGAIN) {
            let device = self.path.display();
            warn!(%device, %error, "after a restart, the kernel will take 30 s to send again");
        }
    }

    /// Removes the device in any state. The sockets go first: otherwise the kernel would wait at
    /// the disconnect for a disk that does not answer.
    fn release(&mut self, server: Server) -> Result<(), Error> {
        server.hang_up();
        let disconnected = disconnect(&self.driver, self.number);
        drop(server);
        debug!(device = %self.path.display(), "nbd device released");
        disconnected
    }
}

impl fmt::Debug for NbdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NbdDevice({} of {})", self.path.display(), self.identity)
    }
}

impl Attachment for NbdDevice {
    fn device_path(&self) -> &Path {
        &self.path
    }

    fn resized(&mut self) -> Result<(), Error> {
        if self.server.is_none() {
            return Ok(());
        }
        let Geometry { size, block_size, .. } = self.disk.geometry();
        self.driver
            .resize(self.number, &self.identity, size, block_size)
            .map_err(|error| Error::new(format!("resize {}", self.path.display()), error))
    }

    fn leave(&mut self) {
        std::mem::forget(self.server.take());
    }

    fn give_up_cache(&mut self) {
        self.cache = Cache::GivenUp;
    }

    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        let Some(server) = self.server.take() else { return Ok(Stopped::Gone) };
        if force {
            self.release(server)?;
            let in_use = sysfs::has_disk(self.number);
            return Ok(if in_use { Stopped::InUse } else { Stopped::Gone });
        }
        match Claim::take(&self.path, self.cache) {
            Ok(Some(claim)) => {
                self.release(server)?;
                claim.release();
                Ok(Stopped::Gone)
            }
            Ok(None) => {
                self.server = Some(server);
                Ok(Stopped::InUse)
            }
            Err(error) => {
                self.server = Some(server);
                Err(error)
            }
        }
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        if let Err(error) = self.stop(true) {
            warn!(device = %self.path.display(), %error, "nbd device left behind");
        }
    }
}

fn path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/nbd{number}"))
}

/// The kernel's longest request to `disk`, in bytes.
fn request_max(disk: &Arc<dyn Disk>) -> Result<u32, Error> {
    slots::io_max_of(disk.arena(), PAYLOAD_MAX, "make an nbd device")
}

fn configuration<'a>(
    geometry: &Geometry,
    options: &'a NbdDeviceOptions,
    sockets: &'a [std::os::fd::BorrowedFd<'a>],
) -> Configuration<'a> {
    Configuration {
        identity: &options.identity,
        size: geometry.size,
        block_size: geometry.block_size,
        flags: transmission_flags(geometry),
        timeout_s: options.timeout_s(),
        dead_timeout_s: options.dead_timeout.as_secs(),
        sockets,
    }
}

/// Opens the device, at which the kernel reads the partition table of a new disk.
fn scan_partitions(device: &Path) {
    let path = device.to_owned();
    let scan = move || drop(claim::open_privately(&path, 0));
    if let Err(error) = thread::Builder::new().name("nbd-scan".into()).spawn(scan) {
        warn!(%error, "no thread to look for partitions");
    }
}

fn disconnect(driver: &Driver, number: u32) -> Result<(), Error> {
    driver
        .disconnect(number)
        .map_err(|error| Error::new(format!("disconnect /dev/nbd{number}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_more_patient_than_the_disk() {
        let mut options = NbdDeviceOptions::new("test");
        options.answer_within = Some(Duration::from_secs(600));
        assert_eq!(options.timeout_s(), 0, "one socket is never given up");
        options.sockets = NonZeroU16::new(4).unwrap();
        assert_eq!(options.timeout_s(), 630);
        for forever in [None, Some(Duration::MAX), Some(PATIENCE_MAX)] {
            options.answer_within = forever;
            assert!(options.timeout_s().checked_mul(1000).is_some_and(|ms| ms < 1 << 32));
        }
    }
}
