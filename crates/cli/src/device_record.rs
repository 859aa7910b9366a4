//! What udev knows of our disks: which export each is.
//!
//! A disk of another machine has no serial number that its driver could tell. So each has a record,
//! `/run/tyche/devices/NAME`, from which the rule that comes with Tyche (`60-tyche.rules`) makes
//! `/dev/disk/by-id/tyche-UUID`, `-partN` for its partitions, and the properties that are in the
//! record. It is written when the disk is there, so udev has to be told to look again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use uuid::Uuid;

use crate::error::{Code, Context, Result};
use crate::runtime;

/// Where the kernel shows its block devices.
const BLOCK_DEVICES: &str = "/sys/class/block";
/// Exists where udevd runs.
const UDEVD: &str = "/run/udev/control";
/// How long udev may take to make the links.
const UDEV_TIMEOUT_S: u32 = 5;

/// The record of a disk; removed when dropped, and its links with it.
#[derive(Debug)]
pub(crate) struct DeviceRecord {
    name: String,
    path: PathBuf,
}

impl DeviceRecord {
    /// Writes the record, and waits until udev has seen it. `None` if that is no block device.
    ///
    /// # Errors
    /// If the record can't be written. That udev does not make links is no error.
    pub(crate) fn write(device: &Path, uuid: Uuid, export: &str) -> Result<Option<Self>> {
        let Some(name) = block_device(device) else { return Ok(None) };
        let dir = runtime::devices();
        runtime::create(&dir)?;
        let path = dir.join(&name);
        // udev must not see a half of it.
        let aside = dir.join(format!(".{name}"));
        fs::write(&aside, properties(uuid, export))
            .and_then(|()| fs::rename(&aside, &path))
            .context(Code::Permission, path.display())?;
        let record = Self { name, path };
        record.announce(Some(uuid));
        Ok(Some(record))
    }

    /// Makes udev look at the disk and its partitions, and waits for `/dev/disk/by-id/tyche-UUID`.
    fn announce(&self, uuid: Option<Uuid>) {
        for device in with_partitions(Path::new(BLOCK_DEVICES), &self.name) {
            if let Err(error) = fs::write(device.join("uevent"), "change") {
                let device = device.display();
                tracing::debug!(%device, %error, "udev does not hear of it");
            }
        }
        if let Some(uuid) = uuid.filter(|_| Path::new(UDEVD).exists()) {
            let settled = Command::new("udevadm")
                .args(["settle", &format!("--timeout={UDEV_TIMEOUT_S}")])
                .arg(format!("--exit-if-exists=/dev/disk/by-id/tyche-{uuid}"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            tracing::debug!(?settled, "waited for udev");
        }
    }
}

impl Drop for DeviceRecord {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            // A disk that goes away has been forgotten by udev already.
            Ok(()) => self.announce(None),
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "left behind");
            }
        }
    }
}

/// Removes the record that a daemon that died has left of its disk.
pub(crate) fn forget(device: &Path) {
    let Some(name) = device.file_name().and_then(|name| name.to_str()) else { return };
    let path = runtime::devices().join(name);
    if path.exists() {
        drop(DeviceRecord { name: name.to_owned(), path });
    }
}

/// The kernel's name of a block device.
fn block_device(device: &Path) -> Option<String> {
    let name = device.strip_prefix("/dev").ok()?.to_str()?;
    let is_there =
        !name.is_empty() && !name.contains('/') && Path::new(BLOCK_DEVICES).join(name).exists();
    is_there.then(|| name.to_owned())
}

/// The directories of a disk and of its partitions; none if it is gone.
fn with_partitions(devices: &Path, disk: &str) -> Vec<PathBuf> {
    let disk = devices.join(disk);
    let entries = fs::read_dir(&disk).into_iter().flatten();
    let below = entries.filter_map(|entry: io::Result<_>| entry.ok().map(|it| it.path()));
    let mut found: Vec<_> = below.filter(|path| path.join("partition").exists()).collect();
    found.sort();
    if disk.exists() {
        found.insert(0, disk);
    }
    found
}

/// Properties in the form that udev imports.
fn properties(uuid: Uuid, export: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_/".contains(c);
    let export = export.replace(|c| !plain(c), "_");
    format!("TYCHE_UUID={uuid}\nTYCHE_EXPORT={export}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_end_a_property_does_not() {
        let said = properties(Uuid::nil(), "a\" b\nTYCHE_UUID=x/1.2");
        let uuid = "00000000-0000-0000-0000-000000000000";
        assert_eq!(said, format!("TYCHE_UUID={uuid}\nTYCHE_EXPORT=a__b_TYCHE_UUID=x/1.2\n"));
    }

    #[test]
    fn partitions_come_after_their_disk() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["x0/x0p2", "x0/x0p1", "x0/queue"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for partition in ["x0/x0p1/partition", "x0/x0p2/partition"] {
            fs::write(dir.path().join(partition), "1").unwrap();
        }
        let wanted = ["x0", "x0/x0p1", "x0/x0p2"].map(|name| dir.path().join(name));
        assert_eq!(with_partitions(dir.path(), "x0"), wanted);
        assert!(with_partitions(dir.path(), "x1").is_empty());
    }

    #[test]
    fn what_is_no_block_device_has_no_record() {
        for path in ["/dev/null", "/run/x/disk", "/dev/no/such", "/dev/nothing9", "/dev/"] {
            assert_eq!(block_device(Path::new(path)), None, "{path}");
        }
    }
}
