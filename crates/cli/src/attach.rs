//! Making a disk appear in the way that was asked for, or the best that this kernel has.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tyche_attach::fuse::FuseMount;
use tyche_attach::growable::GrowableUblk;
use tyche_attach::nbd::{NbdDevice, NbdDeviceOptions, NbdServer};
use tyche_attach::ublk::{Orphan, UblkDevice, UblkOptions};
use tyche_attach::vhost_user::VhostUserBlk;
use tyche_attach::{Attachment, LoopAttachment, Stopped};
use tyche_block::Disk;
use tyche_engine::Host;
use uuid::Uuid;

use crate::error::{Code, Error, Result};
use crate::{presence, runtime};

/// Queues that a virtual machine may have at least. It takes as many as it has processors, and
/// those that it does not use cost nothing.
const MACHINE_QUEUES: NonZeroU16 = NonZeroU16::new(64).expect("it is not zero");

/// What the export becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The best block device that this kernel has: ublk, nbd or loop, in this order.
    Auto,
    /// A block device of the kernel's ublk driver (Linux 6.5). It outlives its daemon: another
    /// `tyche connect` takes it over.
    Ublk,
    /// A block device of the kernel's nbd driver. It outlives its daemon, too (Linux 5.14).
    Nbd,
    /// A loop device over a FUSE file: a block device on any kernel.
    Loop,
    /// A file in a FUSE file system.
    Fuse,
    /// An NBD server on a Unix socket, for QEMU, nbdcopy, fio and others.
    NbdSocket,
    /// A virtual machine's disk, on a Unix socket: for QEMU, Cloud Hypervisor, libblkio and others.
    VhostUser,
}

impl Kind {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether this machine's kernel is what makes requests, and may cache what it has to write.
    pub(crate) fn is_of_this_kernel(self) -> bool {
        !matches!(self, Self::NbdSocket | Self::VhostUser)
    }

    /// Whether it is a block device.
    pub(crate) fn is_block_device(self) -> bool {
        matches!(self, Self::Ublk | Self::Nbd | Self::Loop)
    }

    /// What `auto` means here, and why, if it is not the best.
    pub(crate) fn resolve(self) -> (Self, Option<String>) {
        if self != Self::Auto {
            return (self, None);
        }
        let Err(no_ublk) = UblkDevice::probe() else { return (Self::Ublk, None) };
        let Err(no_nbd) = NbdDevice::probe() else {
            let why = format!("an nbd device is used; ublk would be better: {no_ublk}");
            return (Self::Nbd, Some(why));
        };
        let why = format!(
            "a loop device over FUSE is used, which works everywhere and is slow. Better are ublk \
             ({no_ublk}) or nbd ({no_nbd})"
        );
        (Self::Loop, Some(why))
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
    /// Where its socket is to be, if it is one.
    pub(crate) socket: Option<&'a Path>,
    /// What the device is known by, to the kernel and to the target.
    pub(crate) identity: Uuid,
    /// Queues of a block device.
    pub(crate) queues: u16,
    /// Requests in flight on each.
    pub(crate) depth: u16,
    /// Whether it must be able to grow in use.
    pub(crate) growable: bool,
    /// By when every request is answered; `None`: it may take for ever.
    pub(crate) answer_within: Option<Duration>,
}

impl Wish<'_> {
    /// More queues than one, or else one.
    fn queues(&self) -> NonZeroU16 {
        NonZeroU16::new(self.queues).unwrap_or(NonZeroU16::MIN)
    }

    /// A ublk device, under a device that can grow if it is to and can't itself.
    fn ublk(&self, disk: Arc<dyn Disk>, host: &Host) -> Result<Box<dyn Attachment>> {
        let &Wish { queues, depth, export, identity, .. } = self;
        let options = UblkOptions { queues, depth, mark: mark(identity), partitions: true };
        let adopt = |make| host.control().adopt(make);
        if !self.growable || UblkDevice::grows()? {
            return Ok(Box::new(UblkDevice::start(disk, options, &adopt)?));
        }
        let identity = identity.to_string();
        Ok(Box::new(GrowableUblk::start(disk, options, export, &identity, &adopt)?))
    }

    /// The socket of a virtual machine's disk. The machine is told where that is, so it is the same
    /// for every session of the export.
    fn vhost_user(&self, disk: Arc<dyn Disk>, socket: &Path) -> Result<Box<dyn Attachment>> {
        let queues = self.queues().max(MACHINE_QUEUES);
        Ok(Box::new(VhostUserBlk::start(socket, self.export, disk, queues)?))
    }

    fn nbd_options(&self) -> NbdDeviceOptions {
        NbdDeviceOptions {
            sockets: self.queues(),
            answer_within: self.answer_within,
            ..NbdDeviceOptions::new(backend(self.identity))
        }
    }
}

/// What a ublk device of ours is known by: the kernel keeps 64 bits.
fn mark(identity: Uuid) -> u64 {
    identity.as_u64_pair().0
}

/// What an nbd device of ours is known by. The udev rule takes it for ours by how that begins.
fn backend(identity: Uuid) -> String {
    format!("tyche-{identity}")
}

/// Attaches the disk of a session.
pub(crate) fn attach(wish: &Wish<'_>, host: &Host) -> Result<Box<dyn Attachment>> {
    let &Wish { kind, export, dir, .. } = wish;
    let disk: Arc<dyn Disk> = host.volume().clone();
    Ok(match kind {
        Kind::Auto => unreachable!("it was resolved to another kind"),
        Kind::Ublk => wish.ublk(disk, host)?,
        Kind::Nbd => Box::new(NbdDevice::start(disk, &wish.nbd_options())?),
        Kind::Loop => Box::new(LoopAttachment::start(disk, &file_name(export))?),
        Kind::Fuse => Box::new(FuseMount::start(&dir.join("fuse"), disk)?),
        Kind::NbdSocket => {
            let socket = wish.socket.map_or_else(|| dir.join("nbd.sock"), Path::to_owned);
            Box::new(NbdServer::start(&socket, export, disk)?)
        }
        Kind::VhostUser => {
            let socket = wish.socket.map_or_else(|| default_socket(export), Path::to_owned);
            // It is looked for from anywhere, once its daemon is dead.
            let socket = std::path::absolute(socket)?;
            if let Some(parent) = socket.parent().filter(|_| wish.socket.is_none()) {
                runtime::create(parent)?;
            }
            wish.vhost_user(disk, &socket)?
        }
    })
}

/// What lists of loop devices show as the file of an export's.
fn file_name(export: &str) -> String {
    format!("tyche-{}", runtime::plain(export))
}

/// Where the socket of a virtual machine's disk is unless the user says.
fn default_socket(export: &str) -> PathBuf {
    runtime::sockets().join(format!("{}.sock", runtime::plain(export)))
}

fn remove_ublk(identity: Uuid, force: bool) -> std::result::Result<Stopped, tyche_attach::Error> {
    GrowableUblk::remove_orphan(&identity.to_string(), mark(identity), force)
}

/// Takes away what the attachment of a daemon that was killed has left below `dir`, and the device
/// of that identity, which nobody can take over or has ever been told of. Whether that is all gone.
pub(crate) fn clean_stale(dir: &Path, identity: Uuid) -> bool {
    let cleaned = [
        FuseMount::clean_stale(&dir.join("fuse")).map(drop),
        remove_ublk(identity, true).map(drop),
        NbdDevice::remove_orphan(&backend(identity), true).map(drop),
    ];
    let is_clean = cleaned.iter().all(std::result::Result::is_ok);
    for error in cleaned.into_iter().filter_map(std::result::Result::err) {
        tracing::warn!(dir = %dir.display(), %error, "left behind by a daemon that died");
    }
    is_clean
}

/// A device that outlives its daemon, as the daemon has written it down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lasting {
    pub(crate) kind: Kind,
    pub(crate) device: PathBuf,
    pub(crate) identity: Uuid,
}

impl Lasting {
    /// `device` as it was wished, if it is of a kind that stays.
    pub(crate) fn new(wish: &Wish<'_>, device: PathBuf) -> Option<Self> {
        let &Wish { kind, identity, .. } = wish;
        let lasts = matches!(kind, Kind::Ublk | Kind::Nbd | Kind::VhostUser);
        lasts.then_some(Self { kind, device, identity })
    }

    /// The device's number, which its name ends with.
    fn number(&self) -> Option<u32> {
        let name = self.device.file_name()?.to_str()?;
        name.trim_start_matches(|it: char| !it.is_ascii_digit()).parse().ok()
    }

    /// Whether it is a device over a ublk device, which can grow.
    fn is_growable(&self) -> bool {
        let name = self.device.file_name().and_then(|name| name.to_str());
        self.kind == Kind::Ublk && name.is_some_and(|name| name.starts_with("dm-"))
    }

    /// What to say to who wants it to be growable, if it was made otherwise.
    pub(crate) fn why_not_growable(&self) -> Option<String> {
        let grows = self.kind != Kind::Ublk || self.is_growable();
        let can_grow = grows || UblkDevice::grows().unwrap_or(true);
        let device = self.device.display();
        (!can_grow).then(|| {
            format!("{device} goes on as it was made, and can't grow in use: disconnect it first")
        })
    }

    /// Whether somebody still has it: the kernel, or perhaps a virtual machine.
    pub(crate) fn is_there(&self) -> Result<bool> {
        Ok(match (self.kind, self.number()) {
            // What was below a growable device that is gone is of no use to anybody.
            (Kind::Ublk, _)
                if self.is_growable() && !GrowableUblk::exists(&self.identity.to_string()) =>
            {
                false
            }
            (Kind::Ublk, _) => Orphan::find(mark(self.identity))?.is_some_and(|it| it.waits()),
            (Kind::Nbd, number) => NbdDevice::find(&backend(self.identity)) == number,
            (Kind::VhostUser, _) => self.device.exists(),
            _ => false,
        })
    }

    /// Serves it from now on, as `wish` has it.
    pub(crate) fn take_over(&self, wish: &Wish<'_>, host: &Host) -> Result<Box<dyn Attachment>> {
        let disk: Arc<dyn Disk> = host.volume().clone();
        match (self.kind, self.number()) {
            (Kind::Ublk, _) => {
                let adopt = |make| host.control().adopt(make);
                let mark = mark(self.identity);
                Ok(if self.is_growable() {
                    let identity = self.identity.to_string();
                    Box::new(GrowableUblk::recover(disk, &identity, mark, &adopt)?)
                } else {
                    Box::new(UblkDevice::recover(disk, mark, &adopt)?)
                })
            }
            (Kind::Nbd, Some(number)) => {
                Ok(Box::new(NbdDevice::recover(number, disk, &wish.nbd_options())?))
            }
            (Kind::VhostUser, _) => wish.vhost_user(disk, &self.device),
            _ => Err(self.is_none()),
        }
    }

    /// Removes it, with `force` even if it is in use.
    pub(crate) fn remove(&self, force: bool) -> Result<()> {
        let stopped = match (self.kind, self.number()) {
            (Kind::Ublk, _) => remove_ublk(self.identity, force)?,
            (Kind::Nbd, _) => NbdDevice::remove_orphan(&backend(self.identity), force)?,
            // Nobody knows whether a virtual machine waits.
            (Kind::VhostUser, _) if !force => Stopped::InUse,
            (Kind::VhostUser, _) => {
                std::fs::remove_file(&self.device)?;
                Stopped::Gone
            }
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
    let unmounts = presence::unmounts(device);
    let (device, how) = (device.display(), unmounts.join("`, `"));
    let message = match unmounts.len() {
        0 => format!("{device} is in use: close it first, or use --force"),
        _ => format!("{device} is in use: unmount it first (`{how}`), or use --force"),
    };
    Error::new(Code::Device, message)
}
