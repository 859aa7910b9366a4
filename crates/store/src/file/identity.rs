//! What a file or device is called for good: a number that stays the same over restarts and
//! reboots, so that an export can have a stable UUID without being given one.
//!
//! A regular file is known by its filesystem's id, its inode and its time of birth. A block
//! device is known by the first of: device-mapper or RAID UUID, world-wide id, serial number, the
//! file behind a loop device; a partition by that of its disk and its own number. What has none
//! of them is known by its device number, which is stable only as long as the machine finds its
//! devices in the same order.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Stat, StatxFlags, fstatvfs, major, minor, statx};

/// Attributes in sysfs that name a device and not the place where it was found.
const NAMES: [&str; 8] = [
    "dm/uuid",
    "md/uuid",
    "wwid",
    "device/wwid",
    "serial",
    "device/serial",
    "device/cid",
    "loop/backing_file",
];

/// FNV-1a of 128 bits: the identity must never change with a library's version.
struct Fingerprint(u128);

impl Fingerprint {
    fn new(domain: &str) -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d).add(domain.as_bytes())
    }

    fn add(self, bytes: &[u8]) -> Self {
        const PRIME: u128 = (1 << 88) | 0x13b;
        // The length goes in too, so that "ab", "c" differs from "a", "bc".
        let len = (bytes.len() as u64).to_le_bytes();
        Self(
            bytes
                .iter()
                .chain(&len)
                .fold(self.0, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)),
        )
    }
}

/// The identity of a regular file.
pub(super) fn of_file(file: BorrowedFd<'_>, stat: &Stat) -> u128 {
    let filesystem = fstatvfs(file).map_or(stat.st_dev, |fs| fs.f_fsid);
    let born = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
        .ok()
        .filter(|statx| statx.stx_mask & StatxFlags::BTIME.bits() != 0)
        .map_or((0, 0), |statx| (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec));
    Fingerprint::new("file")
        .add(&filesystem.to_le_bytes())
        .add(&stat.st_ino.to_le_bytes())
        .add(&born.0.to_le_bytes())
        .add(&born.1.to_le_bytes())
        .0
}

/// The identity of a block device.
pub(super) fn of_device(stat: &Stat) -> u128 {
    let node = sysfs(stat.st_rdev);
    let partition = attribute(&node, "partition");
    let disk = if partition.is_some() { node.join("..") } else { node };
    let name = NAMES.iter().find_map(|name| Some((*name, attribute(&disk, name)?)));
    let (kind, name) = name
        .unwrap_or_else(|| ("number", format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev))));
    Fingerprint::new("device")
        .add(kind.as_bytes())
        .add(name.as_bytes())
        .add(partition.unwrap_or_default().as_bytes())
        .0
}

/// The number of this boot of the machine: completed writes outlive a process in the kernel's
/// cache, but not the kernel.
pub(super) fn of_boot() -> Option<u64> {
    let id = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let hash = Fingerprint::new("boot").add(id.trim_ascii()).0;
    Some((hash >> 64) as u64 ^ hash as u64 | 1)
}

/// Where sysfs describes the block device of that number.
pub(super) fn sysfs(device: u64) -> PathBuf {
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // Resolved, so that `..` is the disk of a partition.
    fs::canonicalize(&link).unwrap_or_else(|_| link.into())
}

/// An attribute that is there and says something.
pub(super) fn attribute(node: &Path, name: &str) -> Option<String> {
    let value = fs::read_to_string(node.join(name)).ok()?;
    let value = value.trim();
    if value.is_empty() { None } else { Some(value.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_fnv_1a_and_keeps_parts_apart() {
        // The published value for "a", before the length that we add.
        let fold = |bytes: &[u8]| {
            bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, &byte| {
                (hash ^ u128::from(byte)).wrapping_mul((1 << 88) | 0x13b)
            })
        };
        assert_eq!(fold(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(Fingerprint::new("a").0, fold(b"a\x01\0\0\0\0\0\0\0"));
        let parts = |a: &str, b: &str| Fingerprint::new("x").add(a.as_bytes()).add(b.as_bytes()).0;
        assert_ne!(parts("ab", "c"), parts("a", "bc"));
    }
}
