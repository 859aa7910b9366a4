//! The share of a link's rates that one address may take.
//!
//! The rate of each address is kept in a table of fixed size, without an entry that a flood could
//! displace: an address has a cell in each of two rows, by a keyed hash, and its time is the
//! earlier one (a count-min sketch with conservative update). Two addresses disturb each other only
//! if they share both cells, which nobody can bring about without the key.

use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tyche_wire::Mac;

use crate::time::Instant;

/// Cells of a row. Fewer: a flood of so many addresses, each at its limit, takes others along.
/// More: memory, 16 bytes each.
const CELLS: usize = 4096;

/// The rate limiter for single addresses, in 64 KiB of memory however many addresses there are. In
/// exchange, an address may now and then be refused because others share both of its cells.
pub(super) struct Shares {
    key: u128,
    /// When the intervals of the frames that were taken end.
    rows: [Box<[Instant; CELLS]>; 2],
}

impl Shares {
    /// `key`: a secret.
    pub(super) fn new(key: u128) -> Self {
        Self { key, rows: array::from_fn(|_| Box::new([Instant(0); CELLS])) }
    }

    /// Whether to take a frame of an address that has come now: one in each `interval` on average,
    /// and `burst` at once. Those of another `class` have rates of their own.
    pub(super) fn takes(
        &mut self,
        now: Instant,
        (class, address): (u8, Mac),
        (interval, burst): (Duration, u32),
    ) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.key, class, address.0).hash(&mut hasher);
        let hash = hasher.finish() as usize;
        let places = [hash % CELLS, (hash >> 32) % CELLS];
        let cells = self.rows.iter().zip(places).map(|(row, place)| row[place]);
        let until = cells.fold(Instant(u64::MAX), Instant::min).max(now) + interval;
        let is_taken = until.since(now) <= interval * burst;
        if is_taken {
            for (row, place) in self.rows.iter_mut().zip(places) {
                row[place] = row[place].max(until);
            }
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: (Duration, u32) = (Duration::from_millis(1), 4);
    const NOW: Instant = Instant(1_000_000_000);

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    #[test]
    fn an_address_has_its_rate_and_others_theirs() {
        let mut shares = Shares::new(7);
        let mut taken = |now, class, number| {
            (0..100).filter(|_| shares.takes(now, (class, mac(number)), RATE)).count()
        };
        assert_eq!(taken(NOW, 0, 1), 4);
        assert_eq!(taken(NOW, 0, 2), 4, "another address");
        assert_eq!(taken(NOW, 1, 1), 4, "another class");
        assert_eq!(taken(NOW + RATE.0, 0, 1), 1);
        assert_eq!(taken(NOW + 100 * RATE.0, 0, 1), 4, "silence does not save up more");
    }

    #[test]
    fn a_thousand_addresses_at_their_limits_leave_others_theirs() {
        let mut shares = Shares::new(7);
        for number in 0..1000 {
            while shares.takes(NOW, (0, mac(number)), RATE) {}
        }
        let free = (1000..2000).filter(|&it| shares.takes(NOW, (0, mac(it)), RATE)).count();
        assert!(free > 900, "{free}");
    }
}
