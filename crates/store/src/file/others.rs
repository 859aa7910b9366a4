//! Others that have an image open without our lock: QEMU and its tools, which have locks of their
//! own, and loop devices, which have none.
//!
//! QEMU locks single bytes of an image: one at 100 for each thing that it does with it, and one at
//! 200 for each that it forbids others (`block/file-posix.c`). We take those of a writer, or of a
//! reader, so that QEMU refuses an image that is exported as well.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Stat, stat};
use rustix::io::Errno;

/// The first bytes that stand for what is done, and for what others may not do.
const DOES: i64 = 100;
const FORBIDS: i64 = 200;
/// QEMU's numbers of what can be done: to rely on the content, to write, to resize.
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Takes QEMU's locks of an image for a writer or a reader; both forbid others to write.
///
/// # Errors
/// `WOULDBLOCK` if somebody has the image open in a way that excludes that. A file system without
/// such locks is no error.
pub(super) fn lock_as_qemu(file: BorrowedFd<'_>, read_only: bool) -> Result<(), Errno> {
    let does: &[i64] = if read_only { &[READ] } else { &[READ, WRITE, RESIZE] };
    let forbidden = [WRITE, RESIZE];
    let own = does.iter().map(|it| DOES + it).chain(forbidden.map(|it| FORBIDS + it));
    for byte in own {
        match lock(file, libc::F_OFD_SETLK, libc::F_RDLCK, byte) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(Errno::WOULDBLOCK),
            Err(_) => return Ok(()),
        }
    }
    let excluded = does.iter().map(|it| FORBIDS + it).chain(forbidden.map(|it| DOES + it));
    for byte in excluded {
        // Whether another has that byte: ours are no obstacle to ourselves.
        if lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte) == Ok(true) {
            return Err(Errno::WOULDBLOCK);
        }
    }
    Ok(())
}

/// Takes a lock of one byte, or asks for one; returns whether another is in the way.
fn lock(file: BorrowedFd<'_>, command: i32, kind: i32, byte: i64) -> Result<bool, Errno> {
    // SAFETY: all-zero is a valid `flock`: integers.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (byte, 1);
    // SAFETY: both commands read and write one `flock`, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(i32::from(range.l_type) != libc::F_UNLCK && command == libc::F_OFD_GETLK),
    }
}

/// The loop device that has a file as its own, if there is one.
pub(super) fn loop_device(file: &Stat) -> Option<String> {
    let devices = fs::read_dir("/sys/block").ok()?.flatten().map(|it| it.path());
    devices
        .filter(|device| backing_file(device).is_some_and(|it| is_same(&it, file)))
        .find_map(|device| Some(format!("/dev/{}", device.file_name()?.to_str()?)))
}

/// The file behind a loop device, by its directory in sysfs.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let path = fs::read_to_string(device.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(path.trim_end_matches('\n')))
}

fn is_same(path: &Path, file: &Stat) -> bool {
    stat(path).is_ok_and(|it| (it.st_dev, it.st_ino) == (file.st_dev, file.st_ino))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_writer_excludes_all_and_readers_exclude_a_writer() {
        let path = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let open = || File::options().read(true).write(true).open(path.path()).unwrap();
        let lock = |file: &File, read_only| lock_as_qemu(file.as_fd(), read_only);
        let writer = open();
        lock(&writer, false).unwrap();
        assert_eq!(lock(&writer, false), Ok(()), "its own locks");
        for read_only in [false, true] {
            assert_eq!(lock(&open(), read_only), Err(Errno::WOULDBLOCK));
        }
        drop(writer);
        let reader = open();
        lock(&reader, true).unwrap();
        assert_eq!(lock(&open(), true), Ok(()));
        assert_eq!(lock(&open(), false), Err(Errno::WOULDBLOCK));
    }

    #[test]
    fn an_image_that_qemu_has_open_for_writing_is_known_by_its_locks() {
        let path = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let open = || File::options().read(true).write(true).open(path.path()).unwrap();
        // As `qemu-system -drive file=..,format=raw` takes them: it reads, writes and may resize,
        // and lets nobody else write or resize.
        let qemu = open();
        for byte in [DOES + READ, DOES + WRITE, DOES + RESIZE, FORBIDS + WRITE, FORBIDS + RESIZE] {
            lock(qemu.as_fd(), libc::F_OFD_SETLK, libc::F_RDLCK, byte).unwrap();
        }
        for read_only in [false, true] {
            assert_eq!(lock_as_qemu(open().as_fd(), read_only), Err(Errno::WOULDBLOCK));
        }
        drop(qemu);
        assert_eq!(lock_as_qemu(open().as_fd(), false), Ok(()));
    }
}
