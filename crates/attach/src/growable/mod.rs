//! A ublk device that can grow in use, on kernels whose ublk driver can't let it (before 6.16).
//!
//! ```text
//! program -> /dev/dm-N: as large as the disk      the device mapper's; grows
//!                 |
//!            /dev/ublkbN: 1 EiB                   nobody else's
//!                 |
//!               Room -> Disk
//! ```
//!
//! The ublk device is made larger than any disk, and the device mapper's stands for as much of it as
//! there is. It grows by another table, as a logical volume does. The price is a pass through one
//! more driver for each request, and that the kernel looks for no partitions on such devices
//! (`kpartx` does).
//!
//! Like the device below it outlives this process, and is found again by its UUID.

mod room;

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use tyche_block::Disk;
use tyche_wake::MakePoller;

use self::room::Room;
use crate::claim::{self, Claim};
use crate::mapper::{self, Map, Table};
use crate::ublk::{Orphan, UblkDevice, UblkOptions};
use crate::{Attachment, Error, Stopped};

/// What the names of our devices begin with, and their UUIDs, as the device mapper has it: in
/// capitals for the program that a device belongs to.
const NAME: &str = "tyche-";
const UUID: &str = "TYCHE-";

/// A disk as a device of the device mapper over a ublk device. Dropping it takes it away by force.
pub struct GrowableUblk {
    map: Map,
    /// `None` once it was taken away, or left to another process.
    below: Option<UblkDevice>,
    disk: Arc<dyn Disk>,
}

impl GrowableUblk {
    /// Makes `disk` a block device, which people know by `name` if no other has that name, and
    /// programs by `identity`.
    ///
    /// # Errors
    /// As [`UblkDevice::start`]; without the device mapper.
    pub fn start(
        disk: Arc<dyn Disk>,
        options: UblkOptions,
        name: &str,
        identity: &str,
        adopt: &dyn Fn(MakePoller),
    ) -> Result<Self, Error> {
        Map::probe()?;
        let below = UblkDevice::start(Arc::new(Room(Arc::clone(&disk))), options, adopt)?;
        let name: String = name.chars().filter(is_plain).take(NAME_MAX).collect();
        let (name, uuid) = (format!("{NAME}{name}"), uuid(identity));
        let map = table(&disk, &below, |table| Map::create(&name, &uuid, table))?;
        Ok(Self { map, below: Some(below), disk })
    }

    /// Whether there is a device of that identity, made by whatever process.
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
        adopt: &dyn Fn(MakePoller),
    ) -> Result<Self, Error> {
        let Some(map) = Map::find(&uuid(identity)) else {
            return Err(Error::new(format!("take over the device {identity}"), missing()));
        };
        let explain = |error| Error::new(format!("take over {}", map.path().display()), error);
        if map.size().is_none_or(|size| size > disk.geometry().size) {
            let smaller = "the export is smaller than the device";
            return Err(explain(io::Error::new(ErrorKind::InvalidData, smaller)));
        }
        let below = UblkDevice::recover(Arc::new(Room(Arc::clone(&disk))), mark, adopt)?;
        let mut this = Self { map, below: Some(below), disk };
        if let Err(error) = this.resized() {
            tracing::warn!(%error, "the device keeps its size");
        }
        Ok(this)
    }

    /// Removes what is left of a device whose server has died: the ublk device of that mark, and the
    /// device over it, which has that identity, if there is one. Without `force`, only if nobody
    /// uses it.
    ///
    /// # Errors
    /// What the system says when it refuses.
    pub fn remove_orphan(identity: &str, mark: u64, force: bool) -> Result<Stopped, Error> {
        let mut below = Orphan::find(mark)?;
        let Some(map) = Map::find(&uuid(identity)) else {
            return below.map_or(Ok(Stopped::Gone), |below| below.remove(force));
        };
        if !force {
            if is_in_use(&map)? {
                return Ok(Stopped::InUse);
            }
            map.remove()?;
        } else {
            // Nobody answers what is in flight: it must fail before the device mapper can let go.
            below.as_mut().map_or(Ok(()), Orphan::stop)?;
            map.abandon()?;
        }
        below.map_or(Ok(Stopped::Gone), |below| below.remove(true))
    }

    /// Takes the device away, which nobody can use any more.
    fn take_away_below(&mut self) -> Result<(), Error> {
        self.below.take().map_or(Ok(()), |mut below| below.stop(true).map(drop))
    }
}

impl Attachment for GrowableUblk {
    fn device_path(&self) -> &Path {
        self.map.path()
    }

    fn resized(&mut self) -> Result<(), Error> {
        let Some(below) = &self.below else { return Ok(()) };
        if self.map.size() == Some(self.disk.geometry().size) {
            return Ok(());
        }
        table(&self.disk, below, |table| self.map.become_other(table))
    }

    fn leave(&mut self) {
        if let Some(mut below) = self.below.take() {
            below.leave();
        }
    }

    fn stop(&mut self, force: bool) -> Result<Stopped, Error> {
        if self.below.is_none() {
            return Ok(Stopped::Gone);
        }
        if !force {
            // Once what is cached is written, the device mapper says whether it is in use.
            let Some(claim) = Claim::take(self.map.path())? else { return Ok(Stopped::InUse) };
            claim.release();
            return match self.map.remove() {
                Err(_) if is_in_use(&self.map)? => Ok(Stopped::InUse),
                removed => removed.and_then(|()| self.take_away_below()).map(|()| Stopped::Gone),
            };
        }
        let in_use = is_in_use(&self.map).unwrap_or(true);
        let abandoned = self.map.abandon();
        self.take_away_below()?;
        abandoned?;
        Ok(if in_use { Stopped::InUse } else { Stopped::Gone })
    }
}

impl Drop for GrowableUblk {
    fn drop(&mut self) {
        if let Err(error) = self.stop(true) {
            tracing::warn!(%error, "device left behind");
        }
    }
}

/// Characters of a name, which ends up in paths and in udev's rules.
const NAME_MAX: usize = 64;

fn is_plain(it: &char) -> bool {
    it.is_ascii_alphanumeric() || "-_.:+@".contains(*it)
}

fn uuid(identity: &str) -> String {
    format!("{UUID}{identity}")
}

/// Does something with the table that stands for all that there is of the disk.
fn table<T>(
    disk: &Arc<dyn Disk>,
    below: &UblkDevice,
    act: impl FnOnce(Table<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let node = format!("ublkb{}", below.number());
    let device = mapper::attribute(&node, "dev");
    let device = device.ok_or_else(|| Error::new(format!("find {node}"), missing()))?;
    let geometry = disk.geometry();
    act(Table::Part { size: geometry.size, device: &device, read_only: geometry.read_only })
}

fn is_in_use(map: &Map) -> Result<bool, Error> {
    let explain = |error| Error::new(format!("look at {}", map.path().display()), error);
    claim::is_in_use(map.path()).map_err(explain)
}

fn missing() -> io::Error {
    ErrorKind::NotFound.into()
}
