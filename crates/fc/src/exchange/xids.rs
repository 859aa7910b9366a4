//! The numbers of a lane's exchanges.

use tyche_fc_wire::Xid;

/// The XIDs of a lane within a range: `index << lane_bits | lane`, with indices from 0 on for those
/// of the lane. The lowest bits name the lane, so that a filter can sort frames for lanes, and
/// other ports that spread their work by the lowest bits do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xids {
    lane: u16,
    lane_bits: u32,
    /// The upper bits of the first XID.
    base: u16,
    count: u16,
}

impl Xids {
    /// The XIDs of a lane from `first` to `last`. Lanes that differ, and ranges that don't overlap,
    /// have no XID in common.
    ///
    /// # Panics
    /// If there is none; if `lane` has more bits than that; or if [`Xid::NONE`] is in the range.
    pub fn new((first, last): (u16, u16), lane: u16, lane_bits: u32) -> Self {
        assert!(lane_bits < u16::BITS && lane >> lane_bits == 0, "lane {lane} of {lane_bits} bits");
        assert!(last < Xid::NONE.0, "XIDs up to {last}");
        let mask = (1 << lane_bits) - 1;
        let above = |xid: u16| xid >> lane_bits;
        // Of the blocks at both ends, the lane's XID may lie outside.
        let base = above(first) + u16::from(first & mask > lane);
        let end = above(last) + u16::from(last & mask >= lane);
        assert!(base < end, "no XID of lane {lane} from {first} to {last}");
        Self { lane, lane_bits, base, count: end - base }
    }

    /// Number of XIDs.
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// The XID with this index.
    pub(crate) fn at(&self, index: u16) -> Xid {
        debug_assert!(index < self.count, "an index of the lane");
        Xid((self.base + index) << self.lane_bits | self.lane)
    }

    /// The index of an XID; `None` if it is none of these.
    pub(crate) fn find(&self, xid: Xid) -> Option<u16> {
        let index = (xid.0 >> self.lane_bits).checked_sub(self.base)?;
        (index < self.count && self.at(index) == xid).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lanes_share_out_a_range() {
        let (first, last) = (5, 0xfffe);
        let lanes = [0, 1, 2, 3].map(|lane| Xids::new((first, last), lane, 2));
        let mut seen = BTreeSet::new();
        for (lane, xids) in lanes.iter().enumerate() {
            for index in 0..xids.count() {
                let xid = xids.at(index);
                assert_eq!(usize::from(xid.0 & 3), lane);
                assert!(seen.insert(xid), "{xid} twice");
                for (other, it) in lanes.iter().enumerate() {
                    assert_eq!(it.find(xid), (other == lane).then_some(index), "{xid}");
                }
            }
        }
        assert_eq!(seen, (first..=last).map(Xid).collect());
        let strangers = [0, 4, 0xffff].map(Xid);
        assert!(strangers.iter().all(|xid| lanes.iter().all(|it| it.find(*xid).is_none())));
    }

    #[test]
    #[should_panic(expected = "no XID of lane 3")]
    fn a_range_without_an_xid_of_the_lane_is_none() {
        Xids::new((4, 6), 3, 2);
    }
}
