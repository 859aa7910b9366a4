//! Creation and abort of FUSE connections, by the system calls for mounts without a path. None of
//! them waits for the server.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

/// Mounts the FUSE connection `device`, without a path so far. Reads have at most `read_max` bytes.
pub(super) fn mount(device: &File, read_max: u32) -> io::Result<OwnedFd> {
    let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let settings = [
        ("source", "tyche".to_owned()),
        ("subtype", super::SUBTYPE.to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", "0".to_owned()),
        ("group_id", "0".to_owned()),
        ("max_read", read_max.to_string()),
    ];
    for (key, value) in settings {
        fsconfig_set_string(&fs, key, value)?;
    }
    fsconfig_set_flag(&fs, "default_permissions")?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Gives a mount a path.
pub(super) fn attach(mount: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// The file of fusectl that aborts one connection.
///
/// It is opened while the connection is known to exist: its name is a number that another
/// connection may get later, but the open file stays with this one.
#[derive(Debug)]
pub(super) struct Abort(File);

impl Abort {
    /// The abort file of a mounted connection.
    pub(super) fn of(mount: &OwnedFd) -> io::Result<Self> {
        // The device's number is known without asking the server.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let number = statx(mount, "", flags, StatxFlags::empty())?.stx_dev_minor;
        // It need not be mounted at a path.
        let control = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&control)?;
        let none = MountAttrFlags::empty();
        let control = fsmount(&control, FsMountFlags::FSMOUNT_CLOEXEC, none)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(Self(openat(&control, format!("{number}/abort"), flags, Mode::empty())?.into()))
    }

    /// Aborts the connection: all its users get errors. Has no effect if it has ended already.
    pub(super) fn abort(&self) -> io::Result<()> {
        (&self.0).write_all(b"1")
    }
}
