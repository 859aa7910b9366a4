//! The file systems that the demo puts on the disk: made, mounted, unmounted and checked by their
//! own programs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use rustix::mount::{UnmountFlags, unmount};

use super::command::{Doing, Failure, run, undo};
use super::stage::{Stage, mounts_below};

/// Time limit for a program that moves data over the link, however lossy it is.
const LIMIT: Duration = Duration::from_secs(180);
/// Time limit for an unmount in the clean-up.
const UNDO_LIMIT: Duration = Duration::from_secs(5);

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Filesystem {
    /// The usual one.
    Ext4,
    /// Large parallel I/O.
    Xfs,
    /// Copy on write, with checksums of its own.
    Btrfs,
}

impl Filesystem {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Makes an empty file system on a device.
    pub(super) fn make(self, stage: &Stage, device: &Path) -> Result<(), Failure> {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        // mkfs asks or refuses before it overwrites an old file system, unless told otherwise.
        command.args(match self {
            Self::Ext4 => ["-q", "-F"],
            Self::Xfs | Self::Btrfs => ["-q", "-f"],
        });
        run(command.arg(device), LIMIT, &stage.stop).map(|_| ())
    }

    /// Mounts a device.
    pub(super) fn mount(self, stage: &Stage, device: &Path, mode: Mode) -> Result<(), Failure> {
        let point = stage.mount_point();
        let mut command = Command::new("mount");
        command.args(["-t", self.name(), "-o", mode.option()]).arg(device).arg(point);
        run(&mut command, LIMIT, &stage.stop).map(|_| ())
    }

    /// Looks for damage; repairs nothing.
    pub(super) fn check(self, stage: &Stage, device: &Path) -> Result<(), Failure> {
        let (program, args): (_, &[&str]) = match self {
            Self::Ext4 => ("e2fsck", &["-f", "-n"]),
            Self::Xfs => ("xfs_repair", &["-n"]),
            Self::Btrfs => ("btrfs", &["check", "--readonly"]),
        };
        run(Command::new(program).args(args).arg(device), LIMIT, &stage.stop).map(|_| ())
    }
}

/// The mount options.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    ReadWrite,
    ReadOnly,
}

impl Mode {
    fn option(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
        }
    }
}

/// Creates the mount point; the clean-up unmounts any file system there.
pub(super) fn create_mount_point(stage: &Stage) -> Result<(), Failure> {
    let dir = stage.dir.clone();
    let point = stage.mount_point();
    let what = format!("mounts; umount {}", point.display());
    stage.undo.push(what, move || unmount_below(&dir))?;
    std::fs::create_dir(&point).doing(format_args!("create {}", point.display()))
}

/// Unmounts the demo's file system.
pub(super) fn unmount_now(stage: &Stage) -> Result<(), Failure> {
    run(Command::new("umount").arg(stage.mount_point()), LIMIT, &stage.stop).map(|_| ())
}

/// Unmounts everything below a directory, lazily if it must.
fn unmount_below(dir: &Path) -> Result<(), String> {
    for path in mounts_below(dir) {
        if undo(Command::new("umount").arg(&path), UNDO_LIMIT).is_err() {
            // In use, or its device hangs: a lazy unmount hides it now; its last user frees it.
            let _ = unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
    match mounts_below(dir).first() {
        Some(path) => Err(format!("{} is still mounted", path.display())),
        None => Ok(()),
    }
}
