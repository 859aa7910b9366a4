//! The identity of a file or device, unique and stable over restarts, reboots and other paths to
//! it: one line, to read and to compare. It never has a number that depends on the order in which
//! the machine finds its devices.
//!
//! A regular file is identified by its inode and its time of birth, and by its file system if that
//! has an identity. A block device is identified by the first of: device-mapper or RAID UUID,
//! world-wide id, serial number, the file behind a loop device. A partition is identified by its
//! disk, its number and its start, or by its own UUID if the disk has no identity.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Mode, OFlags, Stat, StatxFlags, fstat, fstatfs, fstatvfs, major, minor, open, statx,
};

/// Attributes in sysfs that name a device and not the place where it was found.
const NAMES: [&str; 7] =
    ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial", "device/cid"];

/// File systems whose id is derived from their UUID; others derive it from a device number.
const EXT4: i64 = 0xef53;
const BTRFS: i64 = 0x9123_683e;

/// The identity of a regular file.
pub(super) fn of_file(file: BorrowedFd<'_>, stat: &Stat) -> String {
    let mut identity = format!("file: inode {}", stat.st_ino);
    let born = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
        .ok()
        .filter(|statx| statx.stx_mask & StatxFlags::BTIME.bits() != 0);
    if let Some(statx) = born {
        identity += &format!(", born {}.{:09}", statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec);
    }
    let has_id = fstatfs(file).is_ok_and(|fs| [EXT4, BTRFS].contains(&fs.f_type));
    if let Some(fs) = fstatvfs(file).ok().filter(|_| has_id) {
        identity += &format!(", file system {:x}", fs.f_fsid);
    }
    identity
}

/// The identity of a block device; `None` if it has none.
pub(super) fn of_device(stat: &Stat) -> Option<String> {
    let node = sysfs(stat.st_rdev);
    let Some(number) = attribute(&node, "partition") else { return of_disk(&node) };
    let start = attribute(&node, "start").unwrap_or_default();
    let disk = of_disk(&node.join(".."));
    let of_disk = disk.map(|disk| format!("{disk}, partition {number} at sector {start}"));
    of_disk.or_else(|| {
        let events = fs::read_to_string(node.join("uevent")).ok()?;
        let uuid = events.lines().find_map(|line| line.strip_prefix("PARTUUID="))?;
        Some(format!("partition: {uuid}"))
    })
}

/// The identity of the whole disk at a path in sysfs.
fn of_disk(node: &Path) -> Option<String> {
    let named = |name: &&str| Some(format!("{name}: {}", attribute(node, name)?));
    NAMES.iter().find_map(named).or_else(|| {
        let path = attribute(node, "loop/backing_file")?;
        let offset = attribute(node, "loop/offset").unwrap_or_default();
        let file = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        // The file may be gone, or in another mount namespace.
        let identity = file.and_then(|file| Ok(of_file(file.as_fd(), &fstat(&file)?)));
        Some(format!("loop: {} from {offset}", identity.unwrap_or(path)))
    })
}

/// The path in sysfs of the block device with that number.
pub(super) fn sysfs(device: u64) -> PathBuf {
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // Resolved, so that `..` of a partition is its disk.
    fs::canonicalize(&link).unwrap_or_else(|_| link.into())
}

/// The value of an attribute; `None` if it is missing or empty.
pub(super) fn attribute(node: &Path, name: &str) -> Option<String> {
    let value = fs::read_to_string(node.join(name)).ok()?;
    let value = value.trim();
    if value.is_empty() { None } else { Some(value.to_owned()) }
}
