//! The received bytes of a connection, split into frames.
//!
//! Independent of sockets: the caller fills [`room`](Input::room) and reports the number of bytes.

use std::io;

use tyche_block::{Arena, Extent, PAGE};

use super::{INPUT_BYTES, PREFIX, is_possible};

/// The stream holds an impossible length; the start of the next frame is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The receive buffer of one connection. It has room for several of the longest frames, and its
/// pages take no memory before bytes are received into them.
pub(super) struct Input {
    bytes: Extent,
    /// Bytes from `start` to `end` are not yet taken out.
    start: usize,
    end: usize,
}

impl Input {
    /// # Errors
    /// If there is no memory for it.
    pub(super) fn new() -> io::Result<Self> {
        // It stays unbacked until something is received into it.
        let bytes = Arena::untouched(INPUT_BYTES.div_ceil(PAGE))?.alloc(INPUT_BYTES);
        Ok(Self { bytes: bytes.expect("the arena is this long"), start: 0, end: 0 })
    }

    /// The room for the next bytes; never empty once [`pop`](Self::pop) has no frame left.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        &mut self.bytes[self.end..]
    }

    /// Records that `count` bytes were put into the room.
    pub(super) fn filled(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "{count} bytes do not fit");
        self.end += count;
    }

    /// Length of the first frame; `None` if not known yet.
    fn frame_len(&self) -> Option<usize> {
        let prefix = self.bytes[self.start..self.end].first_chunk::<PREFIX>()?;
        Some(u32::from_le_bytes(*prefix) as usize)
    }

    /// Whether [`pop`](Self::pop) would return something other than `None`.
    pub(super) fn is_ready(&self) -> bool {
        self.frame_len()
            .is_some_and(|len| !is_possible(len) || self.end - self.start >= PREFIX + len)
    }

    /// Takes the first frame out, if all of it has come.
    pub(super) fn pop(&mut self) -> Result<Option<&mut [u8]>, Malformed> {
        let Some(len) = self.frame_len() else { return Ok(None) };
        if !is_possible(len) {
            return Err(Malformed);
        }
        if self.end - self.start < PREFIX + len {
            return Ok(None);
        }
        let first = self.start + PREFIX;
        self.start = first + len;
        Ok(Some(&mut self.bytes[first..first + len]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::FRAME_LEN_MAX;
    use super::*;
    use crate::HEAD;

    fn feed(input: &mut Input, bytes: &[u8]) -> usize {
        let room = input.room();
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        input.filled(count);
        count
    }

    fn stream(lens: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let frame = |(index, &len): (usize, &usize)| -> Vec<u8> {
            (0..len).map(|at| (at * 7 + index) as u8).collect()
        };
        let frames: Vec<_> = lens.iter().enumerate().map(frame).collect();
        let prefixed = frames.iter().flat_map(|frame| {
            (frame.len() as u32).to_le_bytes().into_iter().chain(frame.iter().copied())
        });
        (prefixed.collect(), frames)
    }

    #[test]
    fn frames_are_whole_however_the_stream_is_cut() {
        let (bytes, frames) = stream(&[HEAD, 65, 1514, HEAD, FRAME_LEN_MAX, 300, FRAME_LEN_MAX]);
        for step in [1, 3, 67, 68, 69, 1000, 65536, INPUT_BYTES] {
            let (mut input, mut got, mut rest) = (Input::new().unwrap(), Vec::new(), &bytes[..]);
            while !rest.is_empty() {
                assert!(!input.is_ready());
                let fed = feed(&mut input, &rest[..step.min(rest.len())]);
                rest = &rest[fed..];
                while let Some(frame) = input.pop().unwrap() {
                    got.push(frame.to_vec());
                }
            }
            assert!(got == frames, "step {step}");
        }
    }

    #[test]
    fn impossible_lengths_are_malformed_as_soon_as_they_are_known() {
        for len in [0, 1, HEAD - 1, FRAME_LEN_MAX + 1, 1 << 24, u32::MAX as usize] {
            let mut input = Input::new().unwrap();
            feed(&mut input, &(len as u32).to_le_bytes()[..3]);
            assert_eq!((input.is_ready(), input.pop()), (false, Ok(None)));
            feed(&mut input, &(len as u32).to_le_bytes()[3..]);
            assert!(input.is_ready());
            assert_eq!(input.pop(), Err(Malformed), "{len}");
        }
    }
}
