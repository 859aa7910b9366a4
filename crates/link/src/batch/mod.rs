//! The two batches at the interface of a link: received frames and frames to send.
//!
//! ```text
//!  received   [head 64][payload ........]     in the ring of a socket, or copied;
//!                                             the payload page-aligned
//!  to send    [head 64][slice][slice]..[tail] head and tail copied, slices where they lie
//! ```
//!
//! Frames to send are laid out in the form of `sendmmsg`, once, when the storage is created;
//! afterwards a frame costs a few stores. The kernel reads the batch's own arrays, so nothing is
//! translated.
//!
//! Links without a kernel (and wrappers) use the safe side of the same types:
//! [`RxBatch::push`], [`RxBatch::retain`] and [`TxBatch::frames`].

mod rx;
mod tx;

pub(crate) use rx::Lender;
pub use rx::{Refused, RxBatch, RxFrame};
pub use tx::{COPIED_MAX, TxBatch, TxFrame, TxVectors};

/// The most frames in a batch: the kernel silently cuts longer vectors (`UIO_MAXIOV`).
pub const FRAMES_MAX: usize = 1024;
