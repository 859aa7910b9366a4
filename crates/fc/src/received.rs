//! The bytes of a transfer that have come.
//!
//! Frames of data are of no fixed length, and may be lost, overtake each other, or come twice. So
//! the bytes are kept as ranges. In order there is one; each hole adds another, up to
//! [`RANGES_MAX`]. A frame that would need one more is to be dropped, as if it had been lost: the
//! memory of a transfer is bounded, and a network that does this has lost data anyway.

use std::ops::Range;

use arrayvec::ArrayVec;

/// The most ranges of a transfer that are apart from each other.
pub(crate) const RANGES_MAX: usize = 16;

/// The set of bytes of one transfer that have come, as up to [`RANGES_MAX`] ranges. It counts each
/// byte once, also if frames overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// Not empty, in order, with holes between them.
    ranges: ArrayVec<Range<u32>, RANGES_MAX>,
    /// Bytes of all ranges.
    count: u32,
}

/// A range that there is no room for: nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl Received {
    /// Marks the bytes of a frame; returns how many of them had not come before. It is none of a
    /// frame that comes twice, and some of one that overlaps with others.
    ///
    /// # Errors
    /// If the frame is apart from too many others.
    ///
    /// # Panics
    /// If the frame ends behind all bytes that there can be.
    pub(crate) fn mark(&mut self, offset: u32, len: u32) -> Result<u32, NoRoom> {
        let end = offset.checked_add(len).expect("the place of a frame is checked");
        if len == 0 {
            return Ok(0);
        }
        if let Some(last) = self.ranges.last_mut().filter(|last| last.end == offset) {
            last.end = end;
            self.count += len;
            return Ok(len);
        }
        self.insert(offset..end)
    }

    /// Counts the bytes of a frame without a look at where they belong: not to be done, unless a
    /// [rule](crate::Rule::CountOnce) is broken on purpose.
    pub(crate) fn add(&mut self, len: u32) -> u32 {
        self.count += len;
        len
    }

    /// Joins a range with those that it touches.
    fn insert(&mut self, range: Range<u32>) -> Result<u32, NoRoom> {
        let begin = self.ranges.partition_point(|it| it.end < range.start);
        let end = self.ranges.partition_point(|it| it.start <= range.end);
        let Some(touched) = self.ranges.get_mut(begin..end).filter(|it| !it.is_empty()) else {
            let len = range.end - range.start;
            self.ranges.try_insert(begin, range).map_err(|_| NoRoom)?;
            self.count += len;
            return Ok(len);
        };
        let before: u32 = touched.iter().map(|it| it.end - it.start).sum();
        let joined =
            touched[0].start.min(range.start)..touched[touched.len() - 1].end.max(range.end);
        let fresh = joined.end - joined.start - before;
        touched[0] = joined;
        self.ranges.drain(begin + 1..end);
        self.count += fresh;
        Ok(fresh)
    }

    /// The number of bytes that have come.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether all bytes of a range have come.
    pub(crate) fn has(&self, range: Range<u32>) -> bool {
        let begin = self.ranges.partition_point(|it| it.end <= range.start);
        let holder = self.ranges.get(begin);
        range.is_empty() || holder.is_some_and(|it| it.start <= range.start && range.end <= it.end)
    }
}

#[cfg(test)]
mod tests {
    use tyche_testkit::random::Random;

    use super::*;

    /// The same as a map of bytes, to compare with.
    struct Map(Vec<bool>);

    impl Map {
        fn mark(&mut self, range: Range<usize>) -> u32 {
            let bytes = &mut self.0[range];
            let fresh = bytes.iter().filter(|it| !**it).count();
            bytes.fill(true);
            fresh as u32
        }

        fn ranges(&self) -> usize {
            self.0.chunk_by(|a, b| a == b).filter(|it| it[0]).count()
        }
    }

    #[test]
    fn every_byte_counts_once_whatever_comes_how_often() {
        let mut random = Random(1);
        for _ in 0..300 {
            let (mut received, mut map) = (Received::default(), Map(vec![false; 400]));
            for _ in 0..60 {
                let offset = random.below(400) as u32;
                let len = random.below(u64::from(400 - offset).min(20) + 1) as u32;
                let (from, to) = (offset as usize, (offset + len) as usize);
                let before = map.0.clone();
                let fresh = map.mark(from..to);
                let marked = received.mark(offset, len);
                if map.ranges() > RANGES_MAX {
                    assert_eq!(marked, Err(NoRoom));
                    map.0 = before;
                } else {
                    assert_eq!(marked, Ok(fresh), "{offset}+{len}");
                }
                assert_eq!(received.ranges.len(), map.ranges());
                let count = map.0.iter().filter(|it| **it).count();
                assert_eq!(received.count() as usize, count);
                let (from, len) = (random.below(400) as usize, random.below(30) as usize);
                let to = (from + len).min(400);
                let has = map.0[from..to].iter().all(|it| *it);
                assert_eq!(received.has(from as u32..to as u32), has, "{from}..{to}");
            }
        }
    }

    #[test]
    fn frames_in_order_are_one_range() {
        let mut received = Received::default();
        for (offset, len) in [(0, 2112), (2112, 1984), (4096, 2048), (6144, 2048)] {
            assert_eq!(received.mark(offset, len), Ok(len));
        }
        assert_eq!((received.ranges.len(), received.count()), (1, 8192));
        assert!(received.has(0..8192) && !received.has(0..8193));
        assert_eq!(received.mark(u32::MAX - 4, 4), Ok(4));
    }

    #[test]
    fn a_range_too_many_changes_nothing_and_one_that_joins_others_is_taken() {
        let mut received = Received::default();
        for index in 0..RANGES_MAX as u32 {
            assert_eq!(received.mark(index * 8, 4), Ok(4));
        }
        assert_eq!(received.mark(RANGES_MAX as u32 * 8, 4), Err(NoRoom));
        assert_eq!(received.count(), 4 * RANGES_MAX as u32);
        assert_eq!(received.mark(4, 4), Ok(4));
        assert_eq!(received.mark(RANGES_MAX as u32 * 8, 4), Ok(4));
        assert!(received.has(0..12) && !received.has(0..13));
    }
}
