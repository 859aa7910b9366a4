//! The two batches that cross the seam of a link: frames that came and frames to go.
//!
//! Both are laid out the way `recvmmsg` and `sendmmsg` want them, once, when they are created;
//! afterwards a frame costs a few stores. The kernel sees the batch's own arrays, so there is no
//! second representation to translate to.
//!
//! ```text
//!  received   [head 64][payload ........]     both own memory; the payload page-aligned
//!  to send    [head 64][slice][slice]..[tail] head and tail copied, slices where they lie
//! ```
//!
//! Links without a kernel (and wrappers) use the safe side of the same types:
//! [`RxBatch::push`], [`RxBatch::retain`] and [`TxBatch::frames`].

mod arrivals;
mod rx;
mod tx;

pub use rx::{Refused, RxBatch, RxFrame};
pub use tx::{TAIL_MAX, TxBatch, TxFrame, TxVectors};

/// The most frames in a batch: the kernel silently cuts longer vectors (`UIO_MAXIOV`).
pub const FRAMES_MAX: usize = 1024;
