//! Tracks which bytes of a request's data have arrived, so that each is taken once and none is
//! missing.
//!
//! Data lie in pages of the `damq`, and arrive in parts whose offsets and lengths are multiples of
//! 64 bytes. A page has 64 such units, so a word of 64 bits describes it.

use std::ops::Range;

use tyche_wire::{PAGE_LEN, PART_UNIT};

/// A bitmap of the pages of a `damq`, a bit for each 64 bytes: set once these bytes have arrived.
/// Data that would set a bit twice are refused as a whole.
pub(crate) struct Received(Box<[u64]>);

/// Pages in a row that have arrived between two that have not, for a request to go on without them.
/// Lower: more and shorter requests for the same bytes.
const KEPT_PAGES_MIN: usize = 16;
const UNITS: u32 = PAGE_LEN as u32 / PART_UNIT;
const _: () = assert!(UNITS == u64::BITS, "a word has a bit for each unit of a page");

impl Received {
    pub(crate) fn new(pages: u32) -> Self {
        Self(vec![0; pages as usize].into())
    }

    /// Marks the `len` bytes from page `first` on as not arrived.
    pub(crate) fn clear(&mut self, first: u32, len: u32) {
        let pages = (len as usize).div_ceil(PAGE_LEN);
        match &mut self.0[first as usize..first as usize + pages] {
            [word] => *word = 0,
            words => words.fill(0),
        }
    }

    /// Marks a part as arrived; false, with nothing changed, if any of it had arrived before.
    pub(crate) fn mark(&mut self, first: u32, offset: u32, len: u32) -> bool {
        match self.part(first, offset, len) {
            ([word], low, high) => {
                let fresh = *word & low & high == 0;
                *word |= if fresh { low & high } else { 0 };
                fresh
            }
            ([head, middle @ .., tail], low, high) => {
                let fresh = *head & low == 0 && *tail & high == 0;
                let fresh = fresh && middle.iter().all(|&word| word == 0);
                if fresh {
                    *head |= low;
                    middle.fill(u64::MAX);
                    *tail |= high;
                }
                fresh
            }
            ([], ..) => true,
        }
    }

    /// Takes back [`mark`](Self::mark).
    pub(crate) fn unmark(&mut self, first: u32, offset: u32, len: u32) {
        match self.part(first, offset, len) {
            ([head, middle @ .., tail], low, high) => {
                *head &= !low;
                middle.fill(0);
                *tail &= !high;
            }
            ([word], low, high) => *word &= !(low & high),
            ([], ..) => {}
        }
    }

    /// The bytes to ask for again of the `len` bytes from page `first` on: whole pages that lack
    /// something, with those between that are too few to be left out. If all have arrived, the last
    /// page is one of them: what is missing is the end of the request.
    pub(crate) fn missing(&self, first: u32, len: u32) -> Vec<Range<u32>> {
        let (first, count) = (first as usize, (len as usize).div_ceil(PAGE_LEN));
        let units = (len - 1) / PART_UNIT % UNITS + 1;
        let last = u64::MAX >> (UNITS - units);
        let is_whole = |page: usize| {
            let wanted = if page + 1 == count { last } else { u64::MAX };
            self.0[first + page] & wanted == wanted
        };
        let mut runs: Vec<Range<usize>> = Vec::new();
        for page in (0..count).filter(|&page| !is_whole(page)) {
            match runs.last_mut() {
                Some(run) if page < run.end + KEPT_PAGES_MIN => run.end = page + 1,
                _ => runs.push(page..page + 1),
            }
        }
        if runs.is_empty() {
            runs.push(count - 1..count);
        }
        let bytes = |page: usize| ((page * PAGE_LEN) as u32).min(len);
        runs.into_iter().map(|run| bytes(run.start)..bytes(run.end)).collect()
    }

    /// The words of `len` bytes at `offset` of data that begin at page `first`, with the bits of
    /// the first word and those of the last. All bits of the words between belong to the part. Of a
    /// single word, the bits that both have in common do: that is the usual case, and costs a few
    /// instructions.
    fn part(&mut self, first: u32, offset: u32, len: u32) -> (&mut [u64], u64, u64) {
        let (begin, end) = (offset / PART_UNIT, (offset + len) / PART_UNIT);
        let words = (first + begin / UNITS) as usize..(first + end.div_ceil(UNITS)) as usize;
        let (low, high) = (u64::MAX << (begin % UNITS), u64::MAX >> (end.wrapping_neg() % UNITS));
        (&mut self.0[words], low, high)
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
            assert_eq!(received.mark(3, offset, len), !overlaps, "{offset}+{len}");
            if !overlaps {
                bytes.fill(true);
            }
            if random.is_multiple_of(7) && !overlaps {
                bytes.fill(false);
                received.unmark(3, offset, len);
            }
        }
        received.clear(3, 1 << 20);
        assert!(received.mark(3, 0, 1 << 20));
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn what_has_arrived_is_not_asked_for_again() {
        let mut received = Received::new(260);
        let (mib, page) = (1 << 20, PAGE_LEN as u32);
        assert_eq!(received.missing(2, mib), [0..mib]);
        received.mark(2, 0, 5 * page + 64);
        assert_eq!(received.missing(2, mib), [5 * page..mib], "whole pages");
        received.mark(2, 10 * page, 15 * page);
        assert_eq!(received.missing(2, mib), [5 * page..mib], "too few to be left out");
        received.mark(2, 25 * page, page);
        assert_eq!(received.missing(2, mib), [5 * page..10 * page, 26 * page..mib]);
        received.mark(2, 26 * page, mib - 26 * page);
        received.mark(2, 5 * page + 64, 5 * page - 64);
        assert_eq!(received.missing(2, mib), [mib - page..mib], "the completion");
        assert_eq!(received.missing(259, 512), [0..512]);
        received.mark(259, 0, 512);
        assert_eq!(received.missing(259, 512), [0..512]);
        assert_eq!(received.missing(258, 4608), [0..4096], "its end has arrived");
    }

    #[test]
    fn neighbours_are_left_alone() {
        let mut received = Received::new(4);
        assert!(received.mark(1, 0, 8192));
        assert_eq!(*received.0, [0, u64::MAX, u64::MAX, 0]);
        received.clear(2, 512);
        assert_eq!(*received.0, [0, u64::MAX, 0, 0]);
        assert!(received.mark(2, 64, 64));
        assert_eq!(received.0[2], 0b10);
    }
}
