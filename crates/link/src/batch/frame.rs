//! A received frame, and why one does not fit.

/// One received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxFrame<'a> {
    /// The first bytes: [as many](super::RxBatch::head_len) as the protocol's headers have.
    pub head: &'a [u8],
    /// The rest, page-aligned.
    pub payload: &'a [u8],
}

impl RxFrame<'_> {
    /// Length of the frame in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty: it has a head")]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}

/// Reasons why a frame does not fit an [`RxBatch`](super::RxBatch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The frame is shorter than a head.
    Short,
    /// The payload is longer than the batch's payload area.
    Long,
    /// The batch has no room left.
    Full,
}
