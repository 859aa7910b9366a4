//! The received bytes of a connection, split into frames, which are read where they lie.
//!
//! Independent of sockets: the caller fills [`room`](Input::room) and reports the number of bytes.

use std::io;

use super::{INPUT_BYTES, PREFIX, is_possible};
use crate::batch::LendingMemory;
use crate::{Mac, RxBatch};

/// Bytes of an Ethernet address; the source comes after the destination.
const ADDRESS: usize = 6;

/// The length from which a frame is not to be cut by the end of a call. Lower: more calls, for
/// beginnings of frames that are moved as fast.
const WHOLE_MIN: usize = 16 << 10;

/// The stream holds an impossible length; the start of the next frame is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The receive buffer of one connection. It has room for several of the longest frames, and its
/// pages take no memory before bytes are received into them.
pub(super) struct Input {
    memory: LendingMemory,
    /// Bytes from `start` to `end` are not yet taken out.
    start: usize,
    end: usize,
    /// Length of the last frame, with its prefix.
    last: usize,
}

impl Input {
    /// # Errors
    /// If there is no memory for it.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { memory: LendingMemory::new(INPUT_BYTES)?, start: 0, end: 0, last: 0 })
    }

    /// Whether a batch has frames of it.
    pub(super) fn is_lent(&self) -> bool {
        self.memory.is_lent()
    }

    /// The room for the next bytes: for one of the longest frames at least, once
    /// [`pop`](Self::pop) has no frame left and none is lent.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let (first, own) = self.memory.own();
        let waiting = self.end - self.start;
        own.copy_within(self.start - first..self.end - first, 0);
        let room = own.len() - waiting;
        (self.start, self.end) = (first, first + waiting);
        let len = self.uncut(room);
        &mut self.memory.own().1[waiting..][..len]
    }

    /// The length to read, in so much room, that cuts no frame if those to come are as long as the
    /// last one: its beginning would have to be moved.
    fn uncut(&self, room: usize) -> usize {
        let first = self.frame_len().map_or(self.last, |len| PREFIX + len);
        let rest = first.saturating_sub(self.end - self.start);
        match room.checked_sub(rest) {
            Some(left) if self.last >= WHOLE_MIN => rest + left / self.last * self.last,
            _ => room,
        }
    }

    /// Records that `count` bytes were put into the room.
    pub(super) fn filled(&mut self, count: usize) {
        assert!(count <= self.memory.len() - self.end, "{count} bytes do not fit");
        self.end += count;
    }

    /// Length of the first frame; `None` if not known yet.
    fn frame_len(&self) -> Option<usize> {
        let prefix = self.memory.bytes()[self.start..self.end].first_chunk::<PREFIX>()?;
        Some(u32::from_le_bytes(*prefix) as usize)
    }

    /// Whether [`pop`](Self::pop) would return something other than false.
    pub(super) fn is_ready(&self) -> bool {
        self.frame_len()
            .is_some_and(|len| !is_possible(len) || self.end - self.start >= PREFIX + len)
    }

    /// Takes the first frame out, if all of it has come, and lends it with that source to a batch
    /// with room; false if it has not. One that is too long for the batch is lost, as on an
    /// interface.
    pub(super) fn pop(&mut self, source: &Mac, batch: &mut RxBatch) -> Result<bool, Malformed> {
        let Some(len) = self.frame_len() else { return Ok(false) };
        if !is_possible(len) {
            return Err(Malformed);
        }
        if self.end - self.start < PREFIX + len {
            return Ok(false);
        }
        let first = self.start + PREFIX;
        (self.start, self.last) = (first + len, PREFIX + len);
        let (own_start, own) = self.memory.own();
        own[first - own_start..][ADDRESS..2 * ADDRESS].copy_from_slice(source);
        let _ = self.memory.lend(batch, first..first + len);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::FRAME_LEN_MAX;
    use super::*;
    use crate::HEAD;

    const SOURCE: Mac = [9; 6];

    fn feed(input: &mut Input, bytes: &[u8]) -> usize {
        let room = input.room();
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        input.filled(count);
        count
    }

    fn stream(lens: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let frame = |(index, &len): (usize, &usize)| -> Vec<u8> {
            let mut bytes: Vec<_> = (0..len).map(|at| (at * 7 + index) as u8).collect();
            bytes[ADDRESS..2 * ADDRESS].copy_from_slice(&SOURCE);
            bytes
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
            let mut batch = RxBatch::new(8, FRAME_LEN_MAX - HEAD);
            while !rest.is_empty() {
                assert!(!input.is_ready());
                let fed = feed(&mut input, &rest[..step.min(rest.len())]);
                rest = &rest[fed..];
                while input.pop(&SOURCE, &mut batch).unwrap() {}
                got.extend(batch.iter().map(|frame| [frame.head, frame.payload].concat()));
                batch.clear();
            }
            assert!(got == frames, "step {step}");
        }
    }

    #[test]
    fn impossible_lengths_are_malformed_as_soon_as_they_are_known() {
        for len in [0, 1, HEAD - 1, FRAME_LEN_MAX + 1, 1 << 24, u32::MAX as usize] {
            let mut input = Input::new().unwrap();
            let mut batch = RxBatch::new(1, 0);
            feed(&mut input, &(len as u32).to_le_bytes()[..3]);
            assert_eq!((input.is_ready(), input.pop(&SOURCE, &mut batch)), (false, Ok(false)));
            feed(&mut input, &(len as u32).to_le_bytes()[3..]);
            assert!(input.is_ready());
            assert_eq!(input.pop(&SOURCE, &mut batch), Err(Malformed), "{len}");
        }
    }
}
