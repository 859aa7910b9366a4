//! The mounts of this machine, as the kernel lists them.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tonic::Status;

/// The mounts that the kernel shows to this process.
const TABLE: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Major and minor number of what its file system is on.
    pub(super) device: (u32, u32),
    /// The part of that file system that is mounted: a path in it.
    root: PathBuf,
    pub(super) point: PathBuf,
    pub(super) is_read_only: bool,
    /// Type of the file system.
    pub(super) kind: String,
}

/// All mounts, the latest last.
#[derive(Clone, Debug)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads them.
    ///
    /// # Errors
    /// `Internal` if the kernel does not tell them.
    pub(super) fn read() -> Result<Self, Status> {
        let table = fs::read(TABLE);
        let table = table.map_err(|error| Status::internal(format!("{TABLE}: {error}")))?;
        Ok(Self::parse(&table))
    }

    fn parse(table: &[u8]) -> Self {
        Self(table.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// The mount that is seen at a path, if one is there.
    pub(super) fn at(&self, point: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|it| it.point == point)
    }

    /// The places at which a block device is mounted, as a file system or by its node.
    pub(super) fn of(&self, device: &Device) -> Vec<&Path> {
        let is_it = |it: &&Mount| it.device == device.number || it.shows(device);
        self.0.iter().filter(is_it).map(|it| it.point.as_path()).collect()
    }
}

impl Mount {
    /// Whether it shows the node of a block device instead of a file.
    fn shows(&self, device: &Device) -> bool {
        self.kind == "devtmpfs" && self.root.file_name() == device.path.file_name()
    }
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) path: PathBuf,
    /// Major and minor number.
    pub(super) number: (u32, u32),
}

impl Device {
    /// The block device that a path names.
    ///
    /// # Errors
    /// `Internal` if it names none.
    pub(super) fn open(path: &Path) -> Result<Self, Status> {
        let wrong = |error| Status::internal(format!("{}: {error}", path.display()));
        let found = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
        if !found.file_type().is_block_device() {
            return Err(wrong("no block device".into()));
        }
        let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        Ok(Self { path: path.to_owned(), number })
    }

    /// The directory in which the kernel shows it.
    fn directory(&self) -> PathBuf {
        let (major, minor) = self.number;
        format!("/sys/dev/block/{major}:{minor}").into()
    }

    fn attribute(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.directory().join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        let sectors = self.attribute("size").and_then(|it| it.parse::<u64>().ok());
        sectors.unwrap_or_default() * 512
    }

    /// Whether the kernel refuses writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.attribute("ro").as_deref() == Some("1")
    }

    /// The number that the kernel gives to a disk, and to none after it with the same name.
    fn sequence(&self) -> Option<u64> {
        self.attribute("diskseq")?.parse().ok()
    }

    /// Whether the disk with that sequence number is gone: another has its name, or nothing is
    /// behind that.
    pub(super) fn is_gone(&self, sequence: Option<u64>) -> bool {
        let directory = self.directory();
        if !directory.exists() || self.sequence() != sequence {
            return true;
        }
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        let lacks = |file: &str| !directory.join(file).exists();
        (name.starts_with(b"loop") && lacks("loop/backing_file"))
            || (name.starts_with(b"nbd") && lacks("pid"))
    }
}

/// Parses a line of the table; `None` if it is another kind of line.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let [root, point] = [fields.next()?, fields.next()?].map(unescaped);
    let options = std::str::from_utf8(fields.next()?).ok()?;
    let kind = fields.skip_while(|it| *it != b"-").nth(1)?;
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        point,
        is_read_only: options.split(',').any(|it| it == "ro"),
        kind: String::from_utf8_lossy(kind).into_owned(),
    })
}

/// A path without the escapes for spaces and the like: a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, more)) = rest.split_first() {
        let digits = more.get(..3).filter(|_| first == b'\\');
        let digits = digits.and_then(|it| std::str::from_utf8(it).ok());
        if let Some(byte) = digits.and_then(|it| u8::from_str_radix(it, 8).ok()) {
            path.push(byte);
            rest = &more[3..];
        } else {
            path.push(first);
            rest = more;
        }
    }
    std::ffi::OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw,size=1k\n\
30 1 7:0 / /stage rw,relatime shared:9 - ext4 /dev/loop0 rw\n\
31 1 7:0 / /pod/a\\040b ro,relatime shared:9 - ext4 /dev/loop0 rw\n\
32 1 0:5 /loop1 /pod/block rw - devtmpfs udev rw\n\
33 30 7:2 / /stage rw - xfs /dev/loop2 rw\n\
nonsense\n";

    #[test]
    fn mounts_are_found_by_place_and_by_device() {
        let mounts = Mounts::parse(TABLE.as_bytes());
        let seen = mounts.at(Path::new("/stage")).unwrap();
        assert_eq!((seen.device, &*seen.kind), ((7, 2), "xfs"), "the latest is on top");
        let of = |name: &str, minor| {
            let device = Device { path: Path::new("/dev").join(name), number: (7, minor) };
            mounts.of(&device).into_iter().map(Path::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of("loop0", 0), ["/stage", "/pod/a b"].map(PathBuf::from));
        assert_eq!(of("loop1", 1), [PathBuf::from("/pod/block")]);
        assert!(mounts.at(Path::new("/pod/a b")).unwrap().is_read_only);
        assert!(mounts.at(Path::new("/pod")).is_none());
    }

    #[test]
    fn this_machine_has_mounts() {
        assert!(Mounts::read().unwrap().at(Path::new("/proc")).is_some());
        assert!(Device::open(Path::new("/proc")).is_err());
    }
}
