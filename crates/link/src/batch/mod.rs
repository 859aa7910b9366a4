//! The two batches that cross the seam of a link: frames that came and frames to go.
//!
//! ```text
//!  received   [head 64][payload ........]     in the ring of a socket, or copied;
//!                                             the payload page-aligned
//!  to send    [head 64][slice][slice]..[tail] head and tail copied, slices where they lie
//! ```
//!
//! What is to be sent is laid out the way `sendmmsg` wants it, once, when the storage is created;
//! afterwards a frame costs a few stores. The kernel sees the batch's own arrays, so there is no
//! second representation to translate to.
//!
//! Links without a kernel (and wrappers) use the safe side of the same types:
//! [`RxBatch::push`], [`RxBatch::retain`] and [`TxBatch::frames`].

mod rx;
mod tx;

pub(crate) use rx::Lender;
pub use rx::{Refused, RxBatch, RxFrame};
pub use tx::{TAIL_MAX, TxBatch, TxFrame, TxVectors};

/// The most frames in a batch: the kernel silently cuts longer vectors (`UIO_MAXIOV`).
pub const FRAMES_MAX: usize = 1024;
