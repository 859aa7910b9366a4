//! A ublk device that can grow in use, on kernels whose ublk driver does not resize (before 6.16).
//!
//! ```text
//! program -> /dev/dm-N: as large as the disk      the device mapper's; grows
//!                 |
//!            /dev/ublkbN: 1 EiB                   nobody else's
//!                 |
//!               Room -> Disk
//! ```
//!
//! The ublk device is larger than any disk. The device-mapper device maps the part of it that is
//! the disk, and grows by a new table, as a logical volume does. The price is one more driver on
//! the path of each request, and that the kernel scans no partitions on such devices (`kpartx`
//! does).
//!
//! Like the ublk device, the device-mapper device outlives this process, and is found again by its
//! UUID. The udev rules recognize the ublk device by its size, and keep all other programs from it.

mod room;

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use tyche_block::Disk;

use self::room::Room;
use crate::claim::{self, Cache, Claim};
use crate::mapper::{Map, Table, attribute};
use crate::ublk::{Adopt, Orphan, UblkDevice, UblkOptions};
use crate::{Attachment, Error, Stopped};

/// Prefixes of our devices' names and UUIDs. By the device mapper's convention a UUID starts with
/// the owning program in capitals.
const NAME: &str = "tyche-";
const UUID: &str = "TYCHE-";
/// The most characters of a name after the prefix.
const NAME_MAX: usize = 64;

/// A disk as a device-mapper device over a ublk device. Dropping it removes it by force.
pub struct GrowableUblk {
    map: Map,
    below: UblkDevice,
    room: Arc<Room>,
    disk: Arc<dyn Disk>,
    /// False once the device is removed, or left to another process.
    running: bool,
    /// The end of the kernel's cache.
    cache: Cache,
}

impl GrowableUblk {
    /// Makes `disk` a block device. It is shown as `name`, or a longer name if another device has
    /// that one, and found again by `identity`. The kernel scans no partitions, whatever `options`
    /// say.
    ///
    /// # Errors
    /// As [`UblkDevice::start`]; without the device mapper.
    pub fn start(
        disk: Arc<dyn Disk>,
        options: UblkOptions,
        name: &str,
        identity: &str,
        adopt: Adopt<'_>,
    ) -> Result<Self, Error> {
        Map::probe()?;
        let room = Room::new(Arc::clone(&disk));
        let options = UblkOptions { partitions: false, ..options };
        let mut below = UblkDevice::start(Arc::clone(&room) as _, options, adopt)?;
        // Characters that are safe in paths and in udev's rules.
        let plain = |it: &char| it.is_ascii_alphanumeric() || "-_.:+@".contains(*it);
        let name: String = name.chars().filter(plain).take(NAME_MAX).collect();
        let (name, uuid) = (format!("{NAME}{name}"), uuid(identity));
        match table(&disk, &below, None).and_then(|it| Map::create(&name, &uuid, &it)) {
            Ok(map) => Ok(Self { map, below, room, disk, running: true, cache: Cache::Written }),
            Err(error) => {
                // A `dmsetup` that timed out may have made the device before it was killed.
                if let Err(error) = remove_by_force(Map::find(&uuid).as_ref(), &mut below) {
                    tracing::warn!(%error, "device left behind");
                }
                Err(error)
            }
        }
    }

    /// Whether there is a device of that identity, of whatever process.
    pub fn exists(identity: &str) -> bool {
        Map::find(&uuid(identity)).is_some()
    }

    /// Takes over the device of that identity and mark, whose server has died.
    ///
    /// # Errors
    /// As [`UblkDevice::recover`].
    pub fn recover(
        disk: Arc<dyn Disk>,
        identity: &str,
        mark: u64,
        adopt: Adopt<'_>,
    ) -> Result<Self, Error> {
        let Some(map) = Map::find(&uuid(identity)) else {
            return Err(Error::new(format!("take over the device {identity}"), missing()));
        };
        if map.size().is_none_or(|size| size > disk.geometry().size) {
            return Err(Error::new(format!("take over {}", map.path().display()), smaller()));
        }
        let room = Room::new(Arc::clone(&disk));
        let below = UblkDevice::recover(Arc::clone(&room) as _, mark, adopt)?;
        Ok(Self { map, below, room, disk, running: true, cache: Cache::Written })
    }

    /// Removes the remains of a device whose server has died: the ublk device of that mark, and the
    /// device over it, which has that identity, if there is one. Without `force`, only if it is not
    /// in use.
    ///
    /// # Errors
    /// The system's error when it refuses.
    pub fn remove_orphan(identity: &str, mark: u64, force: bool) -> Result<Stopped, Error> {
        let mut below = Orphan::find(mark)?;
        if force {
            // Requests in flight have no server: they must fail before the device mapper can let
            // go.
            below.as_mut().map_or(Ok(()), Orphan::stop)?;
        }
        let Some(map) = Map::find(&uuid(identity)) else {
            return below.map_or(Ok(Stopped::Gone), |below| below.remove(force));
        };
        if force {
            map.abandon()?;
        } else if is_in_use(&map)? {
            return Ok(Stopped::InUse);
        } else {
            map.remove()?;
        }
        below.map_or(Ok(Stopped::Gone), |below| below.remove(true))
    }
}

impl Attachment for GrowableUblk {
    fn device_path(&self) -> &Path {
        self.map.path()
    }

    fn resized(&mut self) -> Result<(), Error> {
        let (size, shown) = (self.disk.geometry().size, self.map.size());
        if shown == Some(size) {
            return Ok(());
        }
        if shown.is_some_and(|shown| shown > size) {
            return Err(Error::new(format!("resize {}", self.map.path().display()), smaller()));
        }
        self.room.grow();
        self.map.load(&table(&self.disk, &self.below, Some(&self.map))?)
    }

    fn leave(&mut self) {
        self.running = false;
        self.below.leave();
    }

    fn give_up_cache(&mut self) {
        self.cache = Cache::GivenUp;
    }

    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        if !self.running {
            return Ok(Stopped::Gone);
        }
        if force {
            let in_use = self.map.is_there() && is_in_use(&self.map).unwrap_or(true);
            remove_by_force(Some(&self.map), &mut self.below)?;
            self.running = false;
            return Ok(if in_use { Stopped::InUse } else { Stopped::Gone });
        }
        if self.map.is_there() {
            // Once the cache is written out, the device mapper reports whether it is in use.
            let Some(claim) = Claim::take(self.map.path(), self.cache)? else {
                return Ok(Stopped::InUse);
            };
            claim.release();
            match self.map.remove() {
                Err(_) if self.map.is_there() && is_in_use(&self.map)? => {
                    return Ok(Stopped::InUse);
                }
                Err(error) if self.map.is_there() => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        remove_by_force(None, &mut self.below)?;
        self.running = false;
        Ok(Stopped::Gone)
    }
}

impl Drop for GrowableUblk {
    fn drop(&mut self) {
        if let Err(error) = self.stop(true) {
            tracing::warn!(%error, "device left behind");
        }
    }
}

/// Removes both devices, even in use. The ublk device below is stopped first: then all I/O fails,
/// and the device mapper has nothing to wait for.
fn remove_by_force(map: Option<&Map>, below: &mut UblkDevice) -> Result<(), Error> {
    let halted = below.halt();
    let abandoned = map.map_or(Ok(()), Map::abandon);
    halted.and_then(|()| below.delete()).and(abandoned)
}

fn uuid(identity: &str) -> String {
    format!("{UUID}{identity}")
}

/// The table for the whole present disk, to replace the current one of `map`, if any.
fn table(disk: &Arc<dyn Disk>, below: &UblkDevice, map: Option<&Map>) -> Result<Table, Error> {
    let node = format!("ublkb{}", below.number());
    let device = attribute(&node, "dev");
    let device = device.ok_or_else(|| Error::new(format!("find {node}"), missing()))?;
    let geometry = disk.geometry();
    let read_only = geometry.read_only || map.is_some_and(Map::is_read_only);
    Ok(Table { size: geometry.size, offset: room::OFFSET, device, read_only })
}

fn is_in_use(map: &Map) -> Result<bool, Error> {
    let explain = |error| Error::new(format!("look at {}", map.path().display()), error);
    claim::is_in_use(map.path()).map_err(explain)
}

fn smaller() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the export is smaller than the device")
}

fn missing() -> io::Error {
    ErrorKind::NotFound.into()
}
