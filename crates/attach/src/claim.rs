//! Whether anybody uses a block device, and keeping it from being used.
//!
//! Mounted file systems, swap and device mappers *claim* a device: nobody else can open it with
//! `O_EXCL` then. Programs that just have it open do not, and are found among the open files of all
//! processes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// How long a device that is not mounted must stay open to count as in use. `udev`
/// looks at devices when they change, for some milliseconds; a program that was started in a mount
/// namespace of its own (`ip netns exec`) keeps a copy of an unmounted file system until it ends.
pub(crate) const BUSY_GRACE: Duration = Duration::from_secs(3);

/// Between two looks.
pub(crate) const BUSY_RETRY: Duration = Duration::from_millis(20);

/// A block device that nobody else uses, and nobody can mount.
pub(crate) struct Claim {
    device: File,
}

impl Claim {
    /// Claims the device at `path`; `None` if it is in use, which is looked at for
    /// [`BUSY_GRACE`] unless it is mounted.
    pub(crate) fn take(path: &Path) -> Result<Option<Self>, Error> {
        let explain = |error| Error::new(format!("claim {}", path.display()), error);
        let device = File::open(path).map_err(explain)?;
        let patience = if is_mounted(&device) { Duration::ZERO } else { BUSY_GRACE };
        drop(device);
        let deadline = Instant::now() + patience;
        loop {
            match open_exclusive(path) {
                Ok(device) if !is_open_elsewhere(&device).map_err(explain)? => {
                    return Ok(Some(Self { device }));
                }
                Err(error) if error.kind() != ErrorKind::ResourceBusy => {
                    return Err(explain(error));
                }
                _ if Instant::now() >= deadline => return Ok(None),
                _ => thread::sleep(BUSY_RETRY),
            }
        }
    }

    /// Writes out what the kernel has cached of it.
    pub(crate) fn write_cache(&self) -> Result<(), Error> {
        self.device.sync_all().map_err(|error| Error::new("write the device's cache", error))
    }
}

/// Whether somebody mounted, claimed or opened the device at `path`.
pub(crate) fn is_in_use(path: &Path) -> io::Result<bool> {
    match open_exclusive(path) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(true),
        Err(error) => Err(error),
        Ok(device) => is_open_elsewhere(&device),
    }
}

/// Without waiting: what is lost must not hold up who looks at it.
fn open_exclusive(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path)
}

/// Whether a file system on the device is mounted here: then nobody is about to let go of it. Not
/// all file systems say which device they are on.
pub(crate) fn is_mounted(device: &File) -> bool {
    let Ok(number) = device.metadata().map(|it| it.rdev()) else { return false };
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|mount| mount.split(' ').nth(2) == Some(&number))
}

/// Whether another process has the device open. Those that end or close it meanwhile do not count.
fn is_open_elsewhere(device: &File) -> io::Result<bool> {
    let device = device.metadata()?.rdev();
    let own = std::process::id().to_string();
    for process in fs::read_dir("/proc")?.flatten() {
        let name = process.file_name();
        let is_process = name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        if !is_process || name.to_string_lossy() == own {
            continue;
        }
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            let found = fs::metadata(file.path());
            if found.is_ok_and(|it| it.file_type().is_block_device() && it.rdev() == device) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_is_not_in_use() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_in_use(file.path()).unwrap());
        assert!(is_in_use(Path::new("/no/such/device")).is_err());
    }
}
