//! Attaches a disk as the kind that was asked for, or as the best that this kernel has.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tyche_attach::fuse::FuseMount;
use tyche_attach::growable::GrowableUblk;
use tyche_attach::nbd::{NbdDevice, NbdDeviceOptions, NbdServer};
use tyche_attach::ublk::{Orphan, UblkDevice, UblkOptions};
use tyche_attach::vhost_user::VhostUserBlk;
use tyche_attach::{Attachment, LoopAttachment, Stopped};
use tyche_block::Disk;
use tyche_remote::Remote;
use uuid::Uuid;

use crate::shared::error::{Code, CodedResult, Error, Result};
use crate::{shared::block_device, shared::runtime};

/// Minimum number of queues of a virtual machine's disk. The machine takes one per processor;
/// unused queues cost nothing.
const MACHINE_QUEUES: NonZeroU16 = NonZeroU16::new(64).expect("it is not zero");

/// The kind of attachment that an export becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
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

    /// Whether this machine's kernel makes the requests, and may cache writes.
    pub(crate) fn is_of_this_kernel(self) -> bool {
        !matches!(self, Self::NbdSocket | Self::VhostUser)
    }

    /// Whether it is a block device.
    pub(crate) fn is_block_device(self) -> bool {
        matches!(self, Self::Ublk | Self::Nbd | Self::Loop)
    }

    /// Resolves `auto` to the best kind that this kernel has. The text explains why there is no
    /// better one.
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

/// The requested attachment of a disk.
pub(crate) struct AttachOptions<'a> {
    /// Not `Auto`.
    pub(crate) kind: Kind,
    /// The export's name.
    pub(crate) export: &'a str,
    /// Directory for files of the attachment.
    pub(crate) dir: &'a Path,
    /// Path of the socket, if the user chose one.
    pub(crate) socket: Option<&'a Path>,
    /// Identifies the device to the kernel and to the target.
    pub(crate) identity: Uuid,
    /// Queues of a block device.
    pub(crate) queues: NonZeroU16,
    /// Requests in flight on each.
    pub(crate) depth: u16,
    /// Whether the device must be able to grow in use.
    pub(crate) growable: bool,
    /// Time limit for the answer to every request; `None`: no limit.
    pub(crate) answer_within: Option<Duration>,
}

impl AttachOptions<'_> {
    /// A ublk device; below a growable device if it must grow and ublk itself can't.
    fn ublk(&self, disk: Arc<dyn Disk>, remote: &Remote) -> Result<Box<dyn Attachment>> {
        let &AttachOptions { queues, depth, export, identity, .. } = self;
        let options =
            UblkOptions { queues: queues.get(), depth, mark: mark(identity), partitions: true };
        let adopt = |queue, make| remote.control().adopt(queue, make);
        if !self.growable || UblkDevice::grows().coded()? {
            return Ok(Box::new(UblkDevice::start(disk, options, &adopt).coded()?));
        }
        let identity = identity.to_string();
        Ok(Box::new(GrowableUblk::start(disk, options, export, &identity, &adopt).coded()?))
    }

    /// The vhost-user socket of a virtual machine's disk. The machine is configured with its path,
    /// so the path is the same for every session of the export.
    fn vhost_user(&self, disk: Arc<dyn Disk>, socket: &Path) -> Result<Box<dyn Attachment>> {
        let queues = self.queues.max(MACHINE_QUEUES);
        Ok(Box::new(VhostUserBlk::start(socket, self.export, disk, queues).coded()?))
    }

    fn nbd_options(&self) -> NbdDeviceOptions {
        NbdDeviceOptions {
            sockets: self.queues,
            answer_within: self.answer_within,
            ..NbdDeviceOptions::new(backend(self.identity))
        }
    }
}

/// Identifies a ublk device as ours: the kernel keeps 64 bits.
fn mark(identity: Uuid) -> u64 {
    identity.as_u64_pair().0
}

/// Identifies an nbd device as ours. The udev rule recognizes the prefix.
fn backend(identity: Uuid) -> String {
    format!("tyche-{identity}")
}

/// Attaches the disk of a session.
pub(crate) fn attach(options: &AttachOptions<'_>, remote: &Remote) -> Result<Box<dyn Attachment>> {
    let &AttachOptions { kind, export, identity, dir, .. } = options;
    let disk = Arc::clone(remote.disk());
    Ok(match kind {
        Kind::Auto => unreachable!("it was resolved to another kind"),
        Kind::Ublk => options.ublk(disk, remote)?,
        Kind::Nbd => Box::new(NbdDevice::start(disk, &options.nbd_options()).coded()?),
        Kind::Loop => Box::new(LoopAttachment::start(disk, &file_name(export, identity)).coded()?),
        Kind::Fuse => Box::new(FuseMount::start(&dir.join("fuse"), disk).coded()?),
        Kind::NbdSocket => {
            let socket = options.socket.map_or_else(|| dir.join("nbd.sock"), Path::to_owned);
            Box::new(NbdServer::start(&socket, export, &disk).coded()?)
        }
        Kind::VhostUser => {
            let socket = options.socket.map_or_else(|| default_socket(export), Path::to_owned);
            // Absolute: once the daemon is dead, other commands look for the socket from any
            // directory.
            let socket = std::path::absolute(socket)?;
            if let Some(parent) = socket.parent().filter(|_| options.socket.is_none()) {
                runtime::create(parent)?;
            }
            options.vhost_user(disk, &socket)?
        }
    })
}

/// The file name that lists of loop devices show for an export. No two devices have the same: tools
/// such as mkfs.btrfs take loop devices with files of one name for one device.
fn file_name(export: &str, identity: Uuid) -> String {
    format!("tyche-{}-{identity}", export.replace('/', "_"))
}

/// Default path of the socket of a virtual machine's disk.
fn default_socket(export: &str) -> PathBuf {
    runtime::sockets().join(format!("{}.sock", runtime::plain(export)))
}

fn remove_ublk(identity: Uuid, force: bool) -> std::result::Result<Stopped, tyche_attach::Error> {
    GrowableUblk::remove_orphan(&identity.to_string(), mark(identity), force)
}

/// Removes the attachment that a killed daemon has left below `dir`, and the device with that
/// identity, which cannot be taken over or was never announced. Returns whether all of it is
/// removed.
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

/// A device that outlives its daemon, as the daemon recorded it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Lasting {
    /// The kind of device.
    pub(crate) kind: Kind,
    /// Path of the device, or of the socket of a virtual machine's disk.
    pub(crate) device: PathBuf,
    /// UUID that identifies the device to the kernel and to the target.
    pub(crate) identity: Uuid,
}

impl Lasting {
    /// Records `device`, if its kind outlives the daemon.
    pub(crate) fn new(options: &AttachOptions<'_>, device: PathBuf) -> Option<Self> {
        let &AttachOptions { kind, identity, .. } = options;
        let lasts = matches!(kind, Kind::Ublk | Kind::Nbd | Kind::VhostUser);
        lasts.then_some(Self { kind, device, identity })
    }

    /// The device's number, at the end of its name.
    fn number(&self) -> Option<u32> {
        let name = self.device.file_name()?.to_str()?;
        name.trim_start_matches(|it: char| !it.is_ascii_digit()).parse().ok()
    }

    /// Whether it is a device over a ublk device, which can grow.
    fn is_growable(&self) -> bool {
        let name = self.device.file_name().and_then(|name| name.to_str());
        self.kind == Kind::Ublk && name.is_some_and(|name| name.starts_with("dm-"))
    }

    /// Explains why the device cannot grow in use; `None` if it can.
    pub(crate) fn why_not_growable(&self) -> Option<String> {
        let grows = self.kind != Kind::Ublk || self.is_growable();
        let can_grow = grows || UblkDevice::grows().unwrap_or(true);
        let device = self.device.display();
        (!can_grow).then(|| {
            format!(
                "{device} was made without --growable, and can't grow in use: disconnect it first"
            )
        })
    }

    /// Whether the device still has a user: the kernel, or perhaps a virtual machine.
    pub(crate) fn is_there(&self) -> Result<bool> {
        Ok(match (self.kind, self.number()) {
            // Without the growable device above it, the ublk device is of no use.
            (Kind::Ublk, _)
                if self.is_growable() && !GrowableUblk::exists(&self.identity.to_string()) =>
            {
                false
            }
            (Kind::Ublk, _) => {
                Orphan::find(mark(self.identity)).coded()?.is_some_and(|it| it.waits())
            }
            (Kind::Nbd, number) => NbdDevice::find(&backend(self.identity)) == number,
            (Kind::VhostUser, _) => self.device.exists(),
            _ => false,
        })
    }

    /// Serves the device from now on, with these options.
    pub(crate) fn take_over(
        &self,
        options: &AttachOptions<'_>,
        remote: &Remote,
    ) -> Result<Box<dyn Attachment>> {
        let disk = Arc::clone(remote.disk());
        match (self.kind, self.number()) {
            (Kind::Ublk, _) => {
                let adopt = |queue, make| remote.control().adopt(queue, make);
                let mark = mark(self.identity);
                Ok(if self.is_growable() {
                    let identity = self.identity.to_string();
                    Box::new(GrowableUblk::recover(disk, &identity, mark, &adopt).coded()?)
                } else {
                    Box::new(UblkDevice::recover(disk, mark, &adopt).coded()?)
                })
            }
            (Kind::Nbd, Some(number)) => {
                Ok(Box::new(NbdDevice::recover(number, disk, &options.nbd_options()).coded()?))
            }
            (Kind::VhostUser, _) => options.vhost_user(disk, &self.device),
            _ => Err(self.is_none()),
        }
    }

    /// Removes the device, with `force` even if it is in use.
    pub(crate) fn remove(&self, force: bool) -> Result<()> {
        let stopped = match (self.kind, self.number()) {
            (Kind::Ublk, _) => remove_ublk(self.identity, force).coded()?,
            (Kind::Nbd, _) => NbdDevice::remove_orphan(&backend(self.identity), force).coded()?,
            // A virtual machine may be waiting: there is no way to know.
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

/// The error for a device that is in use.
pub(crate) fn in_use(device: &Path) -> Error {
    let (unmounts, users) = (block_device::unmounts(device), block_device::users(device));
    let (device, how) = (device.display(), unmounts.join("`, `"));
    let message = match (unmounts.len(), users.as_slice()) {
        (0, []) => format!("{device} is in use: close it first, or use --force"),
        (0, users) => {
            let users = users.join(", ");
            format!("{device} is in use by {users}: end that first, or use --force")
        }
        _ => format!("{device} is in use: unmount it first (`{how}`), or use --force"),
    };
    Error::new(Code::Device, message)
}
