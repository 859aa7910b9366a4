//! Attachments: the host's side of the block device.
//!
//! An attachment presents a [`tyche_block::Disk`] to programs of this machine: it turns their I/O
//! into requests with buffers of the disk's arena, and the disk's answers into theirs.
//!
//! | attachment | what programs see | needs |
//! |---|---|---|
//! | [`nbd::NbdServer`] | an NBD export on a Unix socket | nothing |
//! | [`nbd::NbdDevice`] | `/dev/nbdN` | root, the kernel's nbd driver |
//! | [`vhost_user::VhostUserBlk`] | a virtio disk of a virtual machine | memory that it shares |
//! | [`fuse::FuseMount`] | a file `disk` | root, FUSE |
//! | [`LoopAttachment`] | `/dev/loopN` over such a file | root, FUSE, loop devices |
//! | [`ublk::UblkDevice`] | `/dev/ublkbN` | root, the ublk driver of Linux 6.5 |
//! | [`growable::GrowableUblk`] | `/dev/dm-N` over that | the device mapper as well |
//!
//! Requests are never refused for want of memory: an attachment stops reading requests while its
//! table or the arena is full, and continues when the disk has answered some.

mod claim;
mod descriptors;
mod error;
mod listener;
mod loop_attachment;
mod mapper;
mod module;
mod slots;

pub mod fuse;
pub mod growable;
pub mod loopdev;
pub mod nbd;
pub mod ublk;
pub mod vhost_user;

use std::path::Path;

pub use claim::serve_claims;
pub use descriptors::keep_from_children;
pub use error::Error;
pub use loop_attachment::LoopAttachment;

/// The unit of the block layer, ublk and virtio, in bytes.
const SECTOR: u64 = 512;

/// An attachment, as the rest of the program sees it.
pub trait Attachment: Send {
    /// The path at which programs find the disk.
    fn device_path(&self) -> &Path;

    /// Must be called after the disk has grown; programs see the new size where possible.
    ///
    /// # Errors
    /// The system's error when it refuses. The attachment keeps the old size.
    fn resized(&mut self) -> Result<(), Error>;

    /// Leaves the device for another process to take over: this one is about to end. For devices
    /// that outlive their process; others end with it in any case.
    fn leave(&mut self) {}

    /// Must be called when the disk has failed for good. What the kernel has in its cache can't be
    /// written any more: from then on it does not keep the device from being stopped.
    fn give_up_cache(&mut self) {}

    /// Takes the disk away from programs. Without `force` an attachment in use stays as it is, and
    /// the result says so. With `force` it ends in any case, and its remaining users get errors.
    /// Stopping again, after either, is fine.
    ///
    /// # Errors
    /// The system's error when it refuses.
    fn stop(&mut self, force: bool) -> Result<Stopped, Error>;
}

/// The outcome of [`Attachment::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// Nothing is left of the attachment.
    Gone,
    /// Programs hold it open (a mounted file system, most often). Without force, nothing has
    /// changed. With force, the device fails all I/O and vanishes when the last one closes it.
    InUse,
}
