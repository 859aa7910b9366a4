//! The two batches at the interface of a link: received frames and frames to send.
//!
//! ```text
//!  received   [head][payload ............]     in the ring of a socket, or copied;
//!                                              the payload page-aligned
//!  to send    [front][slice][slice]..[tail]    front and tail copied, slices where they lie;
//!             [front][...............]         or the rest written in place
//! ```

mod frame;
mod lending;
mod own;
mod rx;
mod tx;

pub use frame::{Refused, RxFrame};
pub(crate) use lending::LendingMemory;
pub(crate) use rx::Lender;
pub use rx::{Malformed, RxBatch};
pub use tx::{COPIED_MAX, TxBatch, TxFrame, TxVectors};

/// The most frames in a batch: the kernel silently cuts longer arrays (`UIO_MAXIOV`).
pub const FRAMES_MAX: usize = 1024;
