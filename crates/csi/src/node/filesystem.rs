//! The file system on a volume: found, made, checked, grown.
//!
//! It is made only if nothing at all is found. The programs hold the volume's lock: a driver that
//! is killed leaves them at work.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use tonic::Status;

use super::mounts::Device;
use crate::program::Program;

/// Time limit to look at a disk.
const LOOK: Duration = Duration::from_secs(60);
/// Time limit to make, check or grow a file system.
const WORK: Duration = Duration::from_secs(600);
/// Exit code of blkid: it has found nothing.
const NOTHING: i32 = 2;
/// Exit codes of e2fsck are bits; these mean that the file system is good now.
const GOOD: i32 = 1 | 2;
/// Bytes that must be readable before blkid's word that nothing is there counts.
const BEGINNING: usize = 1 << 20;
/// Offset of the byte in the superblock of XFS that is 1 until mkfs has ended (`sb_inprogress`).
const IN_PROGRESS: u64 = 126;

/// The content of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// No known signature: it may be formatted.
    Nothing,
    /// A file system of that type.
    FileSystem(String),
    /// Something else, in words.
    Other(String),
}

/// Looks at what is on a disk.
///
/// # Errors
/// `Internal` if it can't be read.
pub(super) fn look(device: &Device, lock: &File) -> Result<Content, Status> {
    let path = &device.path;
    let blkid = Program::new("blkid").args(["-p", "-o", "export"]).args([path]).holds(lock);
    let found = blkid.run(LOOK).map_err(|error| error.status("blkid"))?;
    let content = match found.code {
        Some(0) => content(&found.stdout),
        // A disk that can't be read has nothing on it, too, for blkid.
        Some(NOTHING) => {
            let read = File::open(path).and_then(|mut it| it.read_exact(&mut vec![0; BEGINNING]));
            let failed = |error| Status::internal(format!("{}: {error}", path.display()));
            read.map_err(failed)?;
            Content::Nothing
        }
        Some(8) => Content::Other("signatures of several file systems".to_owned()),
        _ => return Err(found.failed("blkid")),
    };
    if content == Content::FileSystem("xfs".to_owned()) && is_half_made(path) {
        return Ok(Content::Nothing);
    }
    Ok(content)
}

/// Whether an mkfs of XFS was killed. One of ext4 writes what blkid looks for at its end.
fn is_half_made(path: &Path) -> bool {
    let mut byte = [0];
    let read = File::open(path).and_then(|it| it.read_exact_at(&mut byte, IN_PROGRESS));
    read.is_ok() && byte == [1]
}

/// The content of a disk, as blkid has found it: `KEY=VALUE`, one a line.
fn content(found: &str) -> Content {
    let value = |key: &str| {
        let mut lines = found.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
    };
    match (value("TYPE"), value("USAGE").as_deref()) {
        (Some(kind), Some("filesystem")) => Content::FileSystem(kind),
        (Some(kind), _) => Content::Other(kind),
        (None, _) => {
            let table = value("PTTYPE").map(|it| format!("a partition table ({it})"));
            Content::Other(table.unwrap_or_else(|| "something that blkid knows".to_owned()))
        }
    }
}

/// Makes a file system.
pub(super) fn make(device: &Device, kind: &str, lock: &File) -> Result<(), Status> {
    // New disks are zeroes: there is nothing to discard.
    let options: &[&str] = match kind {
        "xfs" => &["-q", "-K", "-f"],
        _ => &["-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1"],
    };
    let name = format!("mkfs.{kind}");
    let program = Program::new(name).args(options).args([&device.path]).holds(lock);
    program.succeed(WORK).map(drop)
}

/// Repairs what can be repaired without a question. XFS does so when it is mounted.
///
/// # Errors
/// `Internal`: somebody has to look at it.
pub(super) fn check(device: &Device, kind: &str, lock: &File) -> Result<(), Status> {
    match kind {
        "xfs" => Ok(()),
        _ => e2fsck(&["-p"], device, lock),
    }
}

fn e2fsck(options: &[&str], device: &Device, lock: &File) -> Result<(), Status> {
    let program = Program::new("e2fsck").args(options).args([&device.path]).holds(lock);
    let done = program.run(WORK).map_err(|error| error.status("e2fsck"))?;
    match done.code {
        Some(code) if code & !GOOD == 0 => Ok(()),
        _ => Err(done.failed("e2fsck")),
    }
}

/// Makes a file system of ext4 that is not mounted as large as its disk, if it is smaller. XFS
/// grows when it is mounted only.
pub(super) fn grow_unmounted(device: &Device, kind: &str, lock: &File) -> Result<(), Status> {
    let failed = |error| Status::internal(format!("{}: {error}", device.path.display()));
    if kind == "xfs" || !has_room(&device.path, device.size()).map_err(failed)? {
        return Ok(());
    }
    // What resize2fs asks for.
    e2fsck(&["-f", "-p"], device, lock)?;
    Program::new("resize2fs").args([&device.path]).holds(lock).succeed(WORK).map(drop)
}

/// Makes a mounted file system as large as its disk.
pub(super) fn grow(device: &Device, kind: &str, point: &Path, lock: &File) -> Result<(), Status> {
    let program = match kind {
        "xfs" => Program::new("xfs_growfs").args([point]),
        _ => Program::new("resize2fs").args([&device.path]),
    };
    program.holds(lock).succeed(WORK).map(drop)
}

/// Whether a disk has a block more than its file system of ext4, whose superblock says how many it
/// has.
fn has_room(path: &Path, size: u64) -> std::io::Result<bool> {
    let mut superblock = [0; 1024];
    File::open(path)?.read_exact_at(&mut superblock, 1024)?;
    let field = |at: usize| {
        let bytes = superblock[at..at + 4].try_into().expect("four bytes");
        u64::from(u32::from_le_bytes(bytes))
    };
    let has_high_half = field(0x60) & 0x80 != 0;
    let blocks = field(0x04) | if has_high_half { field(0x150) << 32 } else { 0 };
    let block = 1024u64.checked_shl(field(0x18) as u32).unwrap_or(0);
    Ok(blocks.saturating_add(1).saturating_mul(block) <= size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blkid_is_understood() {
        let found = "DEVNAME=/dev/loop0\nUUID=1\nVERSION=1.0\nTYPE=ext4\nUSAGE=filesystem\n";
        assert_eq!(content(found), Content::FileSystem("ext4".into()));
        for (found, word) in [
            ("TYPE=LVM2_member\nUSAGE=raid\n", "LVM2_member"),
            ("TYPE=crypto_LUKS\nUSAGE=crypto\n", "crypto_LUKS"),
            ("PTUUID=1\nPTTYPE=gpt\n", "partition table (gpt)"),
            ("DEVNAME=/dev/loop0\n", "something"),
        ] {
            let Content::Other(what) = content(found) else { panic!("{found}") };
            assert!(what.contains(word), "{what}");
        }
    }

    #[test]
    fn an_mkfs_that_was_killed_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let disk = File::create(&path).unwrap();
        disk.set_len(4096).unwrap();
        assert!(!is_half_made(&path));
        disk.write_all_at(&[1], IN_PROGRESS).unwrap();
        assert!(is_half_made(&path));
        assert!(!is_half_made(&dir.path().join("none")));
    }

    #[test]
    fn room_behind_a_file_system_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let disk = File::create(&path).unwrap();
        disk.set_len(4096).unwrap();
        // 100 blocks of 4 KiB.
        disk.write_all_at(&100u32.to_le_bytes(), 1024 + 0x04).unwrap();
        disk.write_all_at(&2u32.to_le_bytes(), 1024 + 0x18).unwrap();
        for (blocks, room) in [(100, false), (101, true), (99, false)] {
            assert_eq!(has_room(&path, blocks * 4096).unwrap(), room, "{blocks}");
        }
        assert!(!has_room(&path, 101 * 4096 - 1).unwrap(), "a part of a block is none");
        // The upper half counts with 64-bit numbers of blocks only.
        disk.write_all_at(&1u32.to_le_bytes(), 1024 + 0x150).unwrap();
        assert!(has_room(&path, 101 * 4096).unwrap());
        disk.write_all_at(&0x80u32.to_le_bytes(), 1024 + 0x60).unwrap();
        assert!(!has_room(&path, 101 * 4096).unwrap());
    }
}
