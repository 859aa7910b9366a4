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
///
/// # Example
///
/// An attachment that is a file with the content of the disk, for a disk that is small and does not
/// change.
///
/// ```
/// use std::path::{Path, PathBuf};
/// use std::sync::Arc;
/// use std::sync::mpsc::{Sender, channel};
///
/// use tyche_attach::{Attachment, Error, Stopped};
/// use tyche_block::{Completion, Disk, Operation, Request, Sink};
///
/// struct CopyAttachment {
///     path: PathBuf,
/// }
///
/// /// Passes completions on to the thread that waits for them.
/// struct Answers(Sender<Completion>);
///
/// impl Sink for Answers {
///     fn complete(&self, completion: Completion) {
///         // Nobody waits any more.
///         let _ = self.0.send(completion);
///     }
/// }
///
/// impl CopyAttachment {
///     fn start(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
///         let (sender, answers) = channel();
///         let sink: Arc<dyn Sink> = Arc::new(Answers(sender));
///         let len = disk.geometry().size as u32;
///         let buffer = disk.arena().alloc(len as usize);
///         let request = Request { operation: Operation::Read, offset: 0, len, buffer };
///         disk.submit(request, 0, &sink);
///         let answer = answers.recv().expect("each request is answered");
///         let Completion { result, buffer, .. } = answer;
///         result.map_err(|errno| Error::new("read the disk", errno))?;
///         let buffer = buffer.expect("a read gives its buffer back");
///         let written = std::fs::write(path, &buffer[..len as usize]);
///         written.map_err(|error| Error::new("write the copy", error))?;
///         Ok(Self { path: path.to_owned() })
///     }
/// }
///
/// impl Attachment for CopyAttachment {
///     fn device_path(&self) -> &Path {
///         &self.path
///     }
///     fn resized(&mut self) -> Result<(), Error> {
///         Err(Error::new("grow the copy", std::io::ErrorKind::Unsupported))
///     }
///     fn stop(&mut self, _force: bool) -> Result<Stopped, Error> {
///         let removed = std::fs::remove_file(&self.path);
///         removed.map_err(|error| Error::new("remove the copy", error))?;
///         Ok(Stopped::Gone)
///     }
/// }
/// ```
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
