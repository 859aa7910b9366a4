//! The protocols of a port (FC-4 types) and its functions in each, as FIP and the name server have
//! them (FC-GS-6).

use core::fmt;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The type of FCP, SCSI.
pub const FC4_FCP: u8 = 8;

/// A bit for each type: type `t` in word `t / 32`, bit `t % 32` of it.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Fc4Types([U32; 8]);

/// Four bits of functions for each type: type `t` in word `t / 8`, from bit `t % 8 * 4` on.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Fc4Functions([U32; 32]);

/// The types, and the functions in each.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Fc4 {
    types: Fc4Types,
    functions: Fc4Functions,
}

impl Fc4Types {
    /// Only this type.
    pub fn only(kind: u8) -> Self {
        let kind = usize::from(kind);
        let mut words = [U32::ZERO; 8];
        words[kind / 32] = (1 << (kind % 32)).into();
        Self(words)
    }

    /// Whether this type is among them.
    pub fn has(&self, kind: u8) -> bool {
        let kind = usize::from(kind);
        self.0[kind / 32].get() >> (kind % 32) & 1 != 0
    }
}

impl Fc4Functions {
    /// The word with the functions of a type, and their place in it.
    const fn place(kind: u8) -> (usize, usize) {
        (kind as usize / 8, kind as usize % 8 * 4)
    }

    /// Only those of FCP: [`Fc4::TARGET`] and [`Fc4::INITIATOR`].
    pub fn fcp(functions: u8) -> Self {
        let (word, shift) = Self::place(FC4_FCP);
        let mut words = [U32::ZERO; 32];
        words[word] = (u32::from(functions & 0xf) << shift).into();
        Self(words)
    }

    /// The functions of FCP.
    pub fn of_fcp(&self) -> u8 {
        let (word, shift) = Self::place(FC4_FCP);
        (self.0[word].get() >> shift & 0xf) as u8
    }
}

impl Fc4 {
    /// The bit of targets among the functions of FCP.
    pub const TARGET: u8 = 1;
    /// The bit of initiators among the functions of FCP.
    pub const INITIATOR: u8 = 2;

    /// Only FCP, with the functions [`Fc4::TARGET`] and [`Fc4::INITIATOR`].
    pub fn fcp(functions: u8) -> Self {
        Self { types: Fc4Types::only(FC4_FCP), functions: Fc4Functions::fcp(functions) }
    }

    /// The functions of FCP that the port has; `None` if it does not speak FCP.
    pub fn fcp_functions(&self) -> Option<u8> {
        self.types.has(FC4_FCP).then(|| self.functions.of_fcp())
    }
}

impl fmt::Debug for Fc4Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..=u8::MAX).filter(|kind| self.has(*kind))).finish()
    }
}

impl fmt::Debug for Fc4Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fc4Functions {{ fcp: {} }}", self.of_fcp())
    }
}

impl fmt::Debug for Fc4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fc4 {{ types: {:?}, fcp: {:?} }}", self.types, self.fcp_functions())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_a_bit_of_its_own_at_its_place() {
        for kind in 0..=u8::MAX {
            let types = Fc4Types::only(kind);
            for other in 0..=u8::MAX {
                assert_eq!(types.has(other), other == kind, "{kind} {other}");
            }
            // Bit 0 of a word is in its last byte.
            let mut bytes = [0; 32];
            let (word, bit) = (usize::from(kind) / 32, usize::from(kind) % 32);
            bytes[4 * word + 3 - bit / 8] = 1 << (bit % 8);
            assert_eq!(types.as_bytes(), bytes, "{kind}");
        }
    }

    #[test]
    fn each_type_has_four_bits_of_functions() {
        let places = [(0, (0, 0)), (1, (0, 4)), (7, (0, 28)), (8, (1, 0)), (0x1f, (3, 28))];
        for (kind, place) in places {
            assert_eq!(Fc4Functions::place(kind), place, "{kind}");
        }
        let mut bytes = [0; 128];
        bytes[7] = 0xa;
        assert_eq!(Fc4Functions::fcp(0x5a).as_bytes(), bytes);
        assert_eq!(Fc4Functions::fcp(0x5a).of_fcp(), 0xa);
    }
}
