//! Unmounting, and the contents of `/proc/self/mountinfo`. Nothing here waits for a FUSE server,
//! except for the bounded probe of one that may be dead.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};

use crate::descriptors;

/// The time that a server has to show that it is alive.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The mount at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No mount.
    Nothing,
    /// A mount of this program whose server is dead.
    Stale,
    /// A mount of this program whose server lives, or at least is not known to be dead.
    Alive,
    /// A mount of something else.
    Foreign,
}

/// Unmounts an idle mount; `ResourceBusy` if it is in use.
pub(super) fn unmount_idle(path: &Path) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::NOFOLLOW)?)
}

/// Removes the mount, even in use, and aborts the FUSE connection: all its users get errors.
pub(super) fn detach(path: &Path) -> io::Result<()> {
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
    Ok(unmount(path, flags)?)
}

/// Whether a mount of this program is at the absolute `path`.
pub(super) fn is_ours(path: &Path) -> io::Result<bool> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    Ok(fs_type_at(&mounts, path).is_some_and(is_our_type))
}

/// The absolute path of a mountpoint. Its last component is not accessed, because that fails on a
/// stale mount.
pub(super) fn absolute(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(parent.canonicalize()?.join(name))
}

/// The mount at the absolute `path`.
pub(super) fn find(path: &Path) -> io::Result<Found> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    Ok(match fs_type_at(&mounts, path) {
        None => Found::Nothing,
        Some(fs_type) if !is_our_type(fs_type) => Found::Foreign,
        Some(_) if is_dead(path)? => Found::Stale,
        Some(_) => Found::Alive,
    })
}

fn is_our_type(fs_type: &[u8]) -> bool {
    fs_type.strip_prefix(b"fuse.") == Some(super::SUBTYPE.as_bytes())
}

/// The type of the topmost mount at `path`, from the text of a mountinfo file.
fn fs_type_at<'a>(mounts: &'a [u8], path: &Path) -> Option<&'a [u8]> {
    let mounts = mounts.split(|&byte| byte == b'\n');
    mounts.rev().find_map(|mount| {
        let mut fields = mount.split(|&byte| byte == b' ');
        let mountpoint = unescape(fields.nth(4)?);
        // Optional fields follow, up to a dash.
        let fs_type = fields.skip_while(|&field| field != b"-").nth(1)?;
        (Path::new(&mountpoint) == path).then_some(fs_type)
    })
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(escaped: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| tail.get(..3)).flatten();
        let code = octal
            .and_then(|digits| OsStr::from_bytes(digits).to_str())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                rest = &tail[3..];
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Asks the server for the attributes of its directory; the kernel answers if the server is dead.
/// If the server is alive but stuck, the asking thread is left behind.
fn is_dead(path: &Path) -> io::Result<bool> {
    let (sender, answer) = mpsc::sync_channel(1);
    let path = path.to_owned();
    thread::Builder::new().name("fuse-probe".into()).spawn(move || {
        // SAFETY: this thread has a channel and a path, and uses no descriptor at all.
        let private = unsafe { descriptors::make_private() };
        let found = private.and_then(|()| fs::metadata(path));
        // The receiver is gone after the timeout.
        let _ = sender.send(found.err().and_then(|error| error.raw_os_error()));
    })?;
    Ok(answer.recv_timeout(PROBE_TIMEOUT) == Ok(Some(libc::ENOTCONN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_a_path_counts() {
        let mounts = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            30 22 0:40 / /run/a\\040b rw,nosuid - fuse.tyche tyche rw\n\
            31 22 0:41 / /mnt rw shared:3 master:1 - fuse.tyche tyche rw\n\
            32 31 0:42 / /mnt rw - tmpfs tmpfs rw\n\
            truncated line\n";
        let at = |path: &str| fs_type_at(mounts, Path::new(path));
        assert_eq!(at("/"), Some(&b"ext4"[..]));
        assert_eq!(at("/run/a b"), Some(&b"fuse.tyche"[..]));
        assert_eq!(at("/mnt"), Some(&b"tmpfs"[..]));
        assert_eq!(at("/run"), None);
    }

    #[test]
    fn only_whole_escapes_are_undone() {
        assert_eq!(unescape(b"a\\040b\\134"), "a b\\");
        assert_eq!(unescape(b"\\04"), "\\04");
        assert_eq!(unescape(b"\\9990"), "\\9990");
    }
}
