//! Which bytes of a request's data have come, so that each is taken once and none is missing.
//!
//! Data lie in pages of the `damq`, and come in parts whose offsets and lengths are multiples of
//! 64 bytes: a page is 64 such units, and what has come of it is one word.

use arrayvec::ArrayVec;
use tyche_wire::{ENTRIES_MAX, PAGE_LEN, PART_UNIT, Reject};

/// See the module.
pub(crate) struct Received(Box<[u64]>);

const UNITS: u32 = PAGE_LEN as u32 / PART_UNIT;
const _: () = assert!(UNITS == u64::BITS, "a word has a bit for each unit of a page");

/// The words of `len` bytes at `offset` of data that begin at page `first`, and the bits in each.
fn words(first: u32, offset: u32, len: u32) -> impl Iterator<Item = (usize, u64)> {
    let (begin, end) = (offset / PART_UNIT, (offset + len) / PART_UNIT);
    (begin / UNITS..end.div_ceil(UNITS)).map(move |page| {
        let low = begin.saturating_sub(page * UNITS);
        let high = (end - page * UNITS).min(UNITS);
        ((first + page) as usize, u64::MAX << low & u64::MAX >> (UNITS - high))
    })
}

impl Received {
    pub(crate) fn new(pages: u32) -> Self {
        Self(vec![0; pages as usize].into())
    }

    /// Nothing has come of the `len` bytes that begin at page `first`.
    pub(crate) fn clear(&mut self, first: u32, len: u32) {
        let pages = (len as usize).div_ceil(PAGE_LEN);
        self.0[first as usize..first as usize + pages].fill(0);
    }

    /// Whether any of that part has come.
    pub(crate) fn overlaps(&self, first: u32, offset: u32, len: u32) -> bool {
        words(first, offset, len).any(|(word, bits)| self.0[word] & bits != 0)
    }

    /// That part has come.
    pub(crate) fn mark(&mut self, first: u32, offset: u32, len: u32) {
        for (word, bits) in words(first, offset, len) {
            self.0[word] |= bits;
        }
    }
}

/// The parts of a frame that is being checked: no two of a request may overlap.
#[derive(Default)]
pub(crate) struct Parts(ArrayVec<(u16, u32, u32), ENTRIES_MAX>);

impl Parts {
    /// Adds `len` bytes at `offset` of the request in that slot.
    ///
    /// # Errors
    /// `Mismatch` if some of them are there already.
    pub(crate) fn add(&mut self, slot: u16, offset: u32, len: u32) -> Result<(), Reject> {
        let end = offset + len;
        let overlaps =
            |&(other, from, until): &(u16, u32, u32)| other == slot && from < end && offset < until;
        if self.0.iter().any(overlaps) {
            return Err(Reject::Mismatch);
        }
        self.0.push((slot, offset, end));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_comes_once() {
        let mut received = Received::new(260);
        // Against a map of bytes, over the edges of pages.
        let mut map = vec![false; 1 << 20];
        let mut random = 1_u64;
        for _ in 0..4000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let units = 1 << 14;
            let offset = (random >> 33) as u32 % units;
            let len = 1 + (random >> 50) as u32 % 200.min(units - offset);
            let (offset, len) = (offset * PART_UNIT, len * PART_UNIT);
            let bytes = &mut map[offset as usize..(offset + len) as usize];
            let overlaps = bytes.iter().any(|&byte| byte);
            assert_eq!(received.overlaps(3, offset, len), overlaps, "{offset}+{len}");
            if !overlaps {
                bytes.fill(true);
                received.mark(3, offset, len);
            }
        }
        received.clear(3, 1 << 20);
        assert!(!received.overlaps(3, 0, 1 << 20));
    }

    #[test]
    fn neighbours_are_left_alone() {
        let mut received = Received::new(4);
        received.mark(1, 0, 8192);
        assert_eq!(*received.0, [0, u64::MAX, u64::MAX, 0]);
        received.clear(2, 512);
        assert_eq!(*received.0, [0, u64::MAX, 0, 0]);
        received.mark(2, 64, 64);
        assert_eq!(received.0[2], 0b10);
    }

    #[test]
    fn parts_of_a_frame_are_apart() {
        let mut parts = Parts::default();
        assert_eq!(parts.add(1, 0, 512), Ok(()));
        assert_eq!(parts.add(2, 0, 512), Ok(()), "another request's");
        assert_eq!(parts.add(1, 512, 512), Ok(()));
        assert_eq!(parts.add(1, 960, 128), Err(Reject::Mismatch));
        assert_eq!(parts.add(1, 64, 64), Err(Reject::Mismatch));
    }
}
