//! The numbers that a target gives to exchanges (RX_ID).
//!
//! A frame that the network repeats finds a later exchange only if that has the same OX_ID and the
//! same RX_ID. Initiators use an OX_ID again at once, if they like. So each OX_ID of a port gets
//! the RX_IDs in turn: all of them before one of them again. Those of exchanges that are not
//! forgotten are passed over.
//!
//! The turn of an OX_ID outlives logins: a port that comes back goes on where it was.

use tyche_fc_wire::{PortId, Xid};

/// RX_IDs of a target. A prime number, so that no rotation of OX_IDs or CRNs keeps step with them.
pub const RX_IDS: u16 = 65_521;

/// No exchange has the number.
const FREE: u16 = u16::MAX;

/// The allocator of RX_IDs, and the map from an RX_ID to the slot of its exchange. It takes 256
/// KiB, for any number of initiators.
pub(super) struct RxIds {
    /// By RX_ID: the slot of its exchange, or [`FREE`].
    slots: Box<[u16]>,
    /// By [key](RxIds::key): how many RX_IDs were given, modulo their number. Not touched before
    /// the first.
    turns: Box<[u16]>,
    /// A random number of the process: an earlier one began elsewhere.
    seed: u64,
}

impl RxIds {
    pub(super) fn new(seed: u64) -> Self {
        let turns = vec![0; 1 << u16::BITS].into();
        Self { slots: vec![FREE; RX_IDS.into()].into(), turns, seed }
    }

    /// The place of the turn of a port's OX_ID. Few share one: their turns are shorter then.
    fn key(initiator: PortId, ox_id: Xid) -> u16 {
        // Most differ in the lower bits, and so do OX_IDs.
        let initiator = initiator.to_u32() as u16;
        initiator.swap_bytes() ^ ox_id.0
    }

    /// The next RX_ID for an OX_ID of that port.
    pub(super) fn next(&mut self, initiator: PortId, ox_id: Xid) -> Xid {
        let key = Self::key(initiator, ox_id);
        let first = (self.seed ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let first = (first % u64::from(RX_IDS)) as u32;
        let turn = &mut self.turns[usize::from(key)];
        // There are fewer exchanges than numbers.
        loop {
            *turn = (*turn + 1) % RX_IDS;
            let rx_id = (first + u32::from(*turn)) % u32::from(RX_IDS);
            if self.slots[rx_id as usize] == FREE {
                return Xid(rx_id as u16);
            }
        }
    }

    /// Gives an RX_ID that is free to the exchange in a slot.
    pub(super) fn assign(&mut self, rx_id: Xid, slot: u16) {
        self.slots[usize::from(rx_id.0)] = slot;
    }

    /// Frees the RX_ID of an exchange that is forgotten.
    pub(super) fn free(&mut self, rx_id: Xid) {
        self.slots[usize::from(rx_id.0)] = FREE;
    }

    /// The slot of the exchange with an RX_ID from a frame.
    pub(super) fn find(&self, rx_id: Xid) -> Option<u16> {
        self.slots.get(usize::from(rx_id.0)).copied().filter(|slot| *slot != FREE)
    }
}

/// Whether an RX_ID of a target of ours is later than another with the same OX_ID, of which it has
/// given up to a half of all in between.
pub(crate) fn is_later(rx_id: Xid, than: Xid) -> bool {
    let ahead = (u32::from(rx_id.0) + u32::from(RX_IDS)).wrapping_sub(than.0.into());
    rx_id.0 < RX_IDS && (1..=u32::from(RX_IDS / 2)).contains(&(ahead % u32::from(RX_IDS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId::new(0x0a01);

    #[test]
    fn an_ox_id_has_all_other_numbers_before_one_comes_again() {
        let (mut rx_ids, ox_id) = (RxIds::new(7), Xid(0x300));
        let mut last = rx_ids.next(PORT, ox_id);
        let first = last;
        // Those of exchanges that last are passed over.
        let open = Xid((first.0 + 10) % RX_IDS);
        rx_ids.assign(open, 3);
        assert_eq!(rx_ids.find(open), Some(3));
        for use_ in 1..RX_IDS - 1 {
            let next = rx_ids.next(PORT, ox_id);
            assert!(next != first && next != open, "use {use_}: {next}");
            assert!(is_later(next, last) && !is_later(last, next), "{next} is later than {last}");
            last = next;
        }
        assert_eq!(rx_ids.next(PORT, ox_id), first);
        rx_ids.free(open);
        assert_eq!(rx_ids.find(open), None);
        let numbers = (1..20).map(|_| rx_ids.next(PORT, ox_id)).collect::<Vec<_>>();
        assert!(numbers.contains(&open));
    }

    #[test]
    fn ports_and_processes_begin_elsewhere() {
        let first = |seed, port, ox_id| RxIds::new(seed).next(PortId::new(port), Xid(ox_id));
        let base = first(1, 0x0a01, 5);
        assert!(first(2, 0x0a01, 5) != base && first(1, 0x0a02, 5) != base);
        assert!(first(1, 0x0a01, 6) != base);
    }

    #[test]
    fn a_number_is_later_up_to_half_of_all_and_strange_ones_never() {
        let half = RX_IDS / 2;
        for than in [0, 1, half, half + 1, RX_IDS - 1] {
            let after = |by: u16| Xid(((u32::from(than) + u32::from(by)) % 65_521) as u16);
            assert!(!is_later(after(0), Xid(than)));
            assert!(is_later(after(1), Xid(than)) && is_later(after(half), Xid(than)));
            assert!(!is_later(after(half + 1), Xid(than)));
            assert!(!is_later(after(RX_IDS - 1), Xid(than)));
            for strange in [RX_IDS, 0xfffe, 0xffff] {
                assert!(!is_later(Xid(strange), Xid(than)));
            }
        }
    }
}
