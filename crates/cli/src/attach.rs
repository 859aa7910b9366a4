//! Making a disk appear in the way that was asked for, or the best that this kernel has.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tyche_attach::fuse::FuseMount;
use tyche_attach::nbd::NbdServer;
use tyche_attach::ublk::{UblkDevice, UblkOptions};
use tyche_attach::{Attachment, LoopAttachment, Stopped};
use tyche_block::Disk;

use crate::error::{Code, Error, Result};

/// Queues of a block device unless the user says how many.
const QUEUES: usize = 4;

/// What the export becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The best block device that this kernel has: ublk, or else loop.
    Auto,
    /// A block device of the kernel's ublk driver (Linux 6.5). It outlives its daemon: another
    /// `tyche connect` takes it over.
    Ublk,
    /// A loop device over a FUSE file: a block device on any kernel.
    Loop,
    /// A file in a FUSE file system.
    Fuse,
    /// An NBD server on a Unix socket, for QEMU, nbdcopy, fio and others.
    NbdSocket,
}

impl Kind {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
    }

    /// What `auto` means here, and why, if it is not the best.
    pub(crate) fn resolve(self) -> (Self, Option<String>) {
        if self != Self::Auto {
            return (self, None);
        }
        match UblkDevice::probe() {
            Ok(()) => (Self::Ublk, None),
            Err(error) => {
                let why = format!(
                    "a loop device over FUSE is used, which works everywhere and is slow; \
                     better is ublk: {error}"
                );
                (Self::Loop, Some(why))
            }
        }
    }
}

/// What is to be made of a disk.
pub(crate) struct Wish<'a> {
    /// Not `Auto`.
    pub(crate) kind: Kind,
    /// The export's name.
    pub(crate) export: &'a str,
    /// Where the attachment may keep what it needs in the file system.
    pub(crate) dir: &'a Path,
    /// What the device is known by in the kernel.
    pub(crate) mark: u64,
    /// Queues of a block device.
    pub(crate) queues: Option<u16>,
    /// Requests in flight on each.
    pub(crate) depth: u16,
}

/// Attaches `disk`.
pub(crate) fn attach(wish: &Wish<'_>, disk: Arc<dyn Disk>) -> Result<Box<dyn Attachment>> {
    let &Wish { kind, export, dir, mark, depth, .. } = wish;
    Ok(match kind {
        Kind::Auto => unreachable!("it was resolved to another kind"),
        Kind::Ublk => {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            let queues = wish.queues.unwrap_or(cpus.min(QUEUES) as u16);
            Box::new(UblkDevice::start(disk, UblkOptions { queues, depth, mark })?)
        }
        Kind::Loop => Box::new(LoopAttachment::start(disk, &dir.join("loop"))?),
        Kind::Fuse => Box::new(FuseMount::start(&dir.join("fuse"), disk)?),
        Kind::NbdSocket => Box::new(NbdServer::start(&dir.join("nbd.sock"), export, disk)?),
    })
}

/// Takes away what the attachment of a daemon that was killed has left below `dir`.
pub(crate) fn clean_stale(dir: &Path) {
    let cleaned = LoopAttachment::clean_stale(&dir.join("loop"))
        .and_then(|_| FuseMount::clean_stale(&dir.join("fuse")));
    if let Err(error) = cleaned {
        tracing::warn!(dir = %dir.display(), %error, "left behind by a daemon that died");
    }
}

/// A device that outlives its daemon, as the daemon has written it down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lasting {
    pub(crate) kind: Kind,
    pub(crate) device: PathBuf,
    pub(crate) mark: u64,
}

impl Lasting {
    /// `device` as it was wished, if it is of a kind that stays.
    pub(crate) fn new(wish: &Wish<'_>, device: PathBuf) -> Option<Self> {
        let &Wish { kind, mark, .. } = wish;
        matches!(kind, Kind::Ublk).then_some(Self { kind, device, mark })
    }

    /// The device's number, which its name ends with.
    fn number(&self) -> Option<u32> {
        let name = self.device.file_name()?.to_str()?;
        name.trim_start_matches(|it: char| !it.is_ascii_digit()).parse().ok()
    }

    /// Whether the kernel still has it.
    pub(crate) fn is_there(&self) -> bool {
        self.number().is_some_and(|number| match self.kind {
            Kind::Ublk => UblkDevice::is_left(number, self.mark),
            _ => false,
        })
    }

    /// Serves it from now on.
    pub(crate) fn take_over(&self, disk: Arc<dyn Disk>) -> Result<Box<dyn Attachment>> {
        match (self.kind, self.number()) {
            (Kind::Ublk, Some(number)) => {
                Ok(Box::new(UblkDevice::recover(disk, number, self.mark)?))
            }
            _ => Err(self.is_none()),
        }
    }

    /// Removes it, with `force` even if it is in use.
    pub(crate) fn remove(&self, force: bool) -> Result<()> {
        let stopped = match (self.kind, self.number()) {
            (Kind::Ublk, Some(number)) => UblkDevice::remove_left(number, self.mark, force)?,
            _ => return Err(self.is_none()),
        };
        if stopped == Stopped::InUse && !force {
            return Err(in_use(&self.device));
        }
        Ok(())
    }

    fn is_none(&self) -> Error {
        let message = format!("{} is no device of ours", self.device.display());
        Error::new(Code::Device, message)
    }
}

/// Somebody uses the device.
pub(crate) fn in_use(device: &Path) -> Error {
    let message = format!("{} is in use: unmount it first, or use --force", device.display());
    Error::new(Code::Device, message)
}
