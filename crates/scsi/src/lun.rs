//! Logical unit numbers: eight bytes (SAM-5, 4.7).
//!
//! Two forms of a single level are in use for disks. The peripheral device form has the number in
//! the second byte, for numbers up to 255; the flat space form has 14 bits in the first two. A
//! target may report either, and must take what it reports, so an initiator keeps the bytes.

use core::fmt;

/// The logical units that a target of ours can have: those of the peripheral device form.
pub const UNITS_MAX: usize = 256;

/// A logical unit number, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lun(pub [u8; 8]);

impl Lun {
    /// LUN 0, which every target answers at.
    pub const ZERO: Self = Self::peripheral(0);

    /// The LUN of that number in the peripheral device form.
    pub const fn peripheral(number: u8) -> Self {
        Self([0, number, 0, 0, 0, 0, 0, 0])
    }

    /// The number of a LUN of one level, in peripheral device or flat space form. `None` for well
    /// known logical units, buses other than 0, and more levels.
    pub fn number(self) -> Option<u16> {
        let [first, second, rest @ ..] = self.0;
        if rest != [0; 6] {
            return None;
        }
        match first >> 6 {
            0b00 if first == 0 => Some(u16::from(second)),
            0b01 => Some(u16::from(first & 0x3f) << 8 | u16::from(second)),
            _ => None,
        }
    }

    /// The index of a logical unit of ours.
    pub(crate) fn index(self) -> Option<u8> {
        self.number().and_then(|number| u8::try_from(number).ok())
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "{number}"),
            None => self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lun({self})")
    }
}

/// A set of logical units of ours, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LunSet([u64; UNITS_MAX / 64]);

impl LunSet {
    /// No logical unit.
    pub const NONE: Self = Self([0; UNITS_MAX / 64]);
    /// All logical units.
    pub const ALL: Self = Self([u64::MAX; UNITS_MAX / 64]);

    /// The set with one more.
    #[must_use]
    pub fn with(mut self, number: u8) -> Self {
        self.0[usize::from(number / 64)] |= 1 << (number % 64);
        self
    }

    /// Whether the set has that one.
    pub fn has(&self, number: u8) -> bool {
        self.0[usize::from(number / 64)] >> (number % 64) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_level_are_taken_in_both_forms() {
        let lun = |first, second| Lun([first, second, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun::peripheral(255), lun(0, 0xff));
        assert_eq!(lun(0, 0xff).number(), Some(255));
        assert_eq!((lun(0x40, 0x07).number(), lun(0x40, 0x07).index()), (Some(7), Some(7)));
        assert_eq!((lun(0x41, 0x00).number(), lun(0x41, 0x00).index()), (Some(256), None));
        assert_eq!(lun(0x7f, 0xff).number(), Some(0x3fff));
        // Another bus, a logical unit of the logical unit form, REPORT LUNS, two levels.
        for other in [lun(1, 8), lun(0x81, 0x44), lun(0xc1, 0x01), Lun([0, 1, 0, 1, 0, 0, 0, 0])] {
            assert_eq!(other.number(), None, "{other}");
        }
        let shown = std::format!("{} {:?}", lun(0, 5), lun(0xc1, 1));
        assert_eq!(shown, "5 Lun(c101000000000000)");
    }

    #[test]
    fn sets_hold_each_number_by_itself() {
        let set = LunSet::NONE.with(0).with(63).with(64).with(255);
        let numbers = (0..=255).filter(|number| set.has(*number));
        assert!(numbers.eq([0, 63, 64, 255]));
        assert!((0..=255).all(|number| LunSet::ALL.has(number) && !LunSet::NONE.has(number)));
    }
}
