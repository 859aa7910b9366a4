//! The output buffer of a connection whose peer reads too slowly.

use std::collections::VecDeque;
use std::io;

use super::{OUTPUT_BYTES, PREFIX};
use crate::TxFrame;

/// The bytes that a connection has accepted and its socket has not: [`OUTPUT_BYTES`] at most, in
/// memory that is taken once the peer reads too slowly. A frame that finds no room is not accepted.
#[derive(Default)]
pub(super) struct Output {
    /// Allocated when output waits for the first time.
    bytes: VecDeque<u8>,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a frame without its first `sent` bytes, length included; false if there is no room.
    ///
    /// # Errors
    /// If there is no memory: the connection is not of use any more.
    pub(super) fn push(&mut self, frame: &TxFrame<'_>, sent: usize) -> io::Result<bool> {
        let rest = PREFIX + frame.len() - sent;
        if rest > OUTPUT_BYTES - self.bytes.len() {
            return Ok(false);
        }
        self.bytes.try_reserve_exact(OUTPUT_BYTES - self.bytes.len())?;
        let prefix = prefix(frame);
        let mut skip = sent;
        for part in [prefix.as_slice()].into_iter().chain(frame.parts()) {
            let skipped = skip.min(part.len());
            self.bytes.extend(&part[skipped..]);
            skip -= skipped;
        }
        Ok(true)
    }

    /// The waiting bytes, in order.
    pub(super) fn slices(&self) -> (&[u8], &[u8]) {
        self.bytes.as_slices()
    }

    /// Removes the first `count` bytes, which were sent.
    pub(super) fn sent(&mut self, count: usize) {
        self.bytes.drain(..count);
    }
}

/// The length prefix of a frame.
pub(super) fn prefix(frame: &TxFrame<'_>) -> [u8; PREFIX] {
    u32::try_from(frame.len()).expect("links refuse longer frames").to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEAD, TxVectors};

    #[test]
    fn the_rest_of_a_frame_is_what_was_not_sent() {
        let mut vectors = TxVectors::new(1, 2);
        let mut batch = vectors.batch();
        batch.push(&[1; HEAD], [&[2; 10][..], &[3; 20]], &[4; 5]);
        let frame = batch.frame(0);
        let whole = [&[99, 0, 0, 0][..], &[1; HEAD], &[2; 10], &[3; 20], &[4; 5]].concat();
        for sent in 0..=whole.len() {
            let mut output = Output::default();
            assert!(output.push(&frame, sent).unwrap());
            output.bytes.make_contiguous();
            assert_eq!(output.slices().0, &whole[sent..]);
        }
    }

    #[test]
    fn a_full_buffer_takes_no_frame_and_no_more_memory() {
        let mut vectors = TxVectors::new(1, 1);
        let data = vec![7; 60_000];
        let mut batch = vectors.batch();
        batch.push(&[1; HEAD], [&data[..]], &[]);
        let frame = batch.frame(0);
        let len = PREFIX + frame.len();
        let mut output = Output::default();
        for _ in 0..OUTPUT_BYTES / len {
            assert!(output.push(&frame, 0).unwrap());
        }
        assert!(!output.push(&frame, 0).unwrap());
        assert!(output.bytes.capacity() <= OUTPUT_BYTES + OUTPUT_BYTES / 8);
        output.sent(len);
        assert!(output.push(&frame, 0).unwrap());
    }
}
