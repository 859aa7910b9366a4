//! Parts of a link, and the cookies that lead a frame to one of them.

use tyche_wire::{Checksum, Cookie, Uuid};

/// The part of a link that a listener serves, if several share the link. A frame belongs to the
/// part that the first byte of its cookie names, modulo the number of parts; a Connect to the one
/// that the first byte of the host's cookie names, which its header and those of the questions
/// before it have as well. Any part answers questions.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    index: u8,
    of: u8,
    /// The key of the link's tickets.
    key: u128,
}

impl Part {
    /// All parts of a link. `random`: a cryptographic source.
    ///
    /// # Panics
    /// If `of` is 0.
    pub fn all(of: u8, random: &mut dyn FnMut() -> u64) -> impl Iterator<Item = Self> {
        assert!(of > 0, "a link needs at least one part");
        let key = u128::from(random()) << 64 | u128::from(random());
        (0..of).map(move |index| Self { index, of, key })
    }

    /// Number of the part, from 0 on.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// Number of parts.
    pub fn of(&self) -> u8 {
        self.of
    }

    /// The key of the link's tickets.
    pub(super) fn key(&self) -> u128 {
        self.key
    }

    /// Makes a cookie of this part from a random number.
    fn cookie(self, random: u64) -> u64 {
        let first = random as u8;
        let own = first - first % self.of;
        let own = own.checked_add(self.index).unwrap_or(self.index);
        random & !0xff | u64::from(own)
    }
}

/// The source of the cookies of a part.
pub(super) struct Cookies {
    part: Part,
    /// Their upper 16 bits, the same in every run of the target.
    mark: u16,
    /// A cryptographic source.
    random: Box<dyn FnMut() -> u64 + Send>,
}

impl Cookies {
    pub(super) fn new(target: Uuid, part: Part, random: Box<dyn FnMut() -> u64 + Send>) -> Self {
        Self { part, mark: Checksum::of(target.as_bytes()) as u16, random }
    }

    /// A new cookie.
    pub(super) fn make(&mut self) -> Cookie {
        let random = self.part.cookie((self.random)());
        Cookie(random << 16 >> 16 | u64::from(self.mark) << 48)
    }

    /// The source of random numbers.
    pub(super) fn random(&mut self) -> &mut dyn FnMut() -> u64 {
        &mut *self.random
    }

    /// Whether a cookie was made by this target for this part, in this run or a former one. Frames
    /// of other parts come here only with one of this part before them, as a train over UDP.
    pub(super) fn are_of(&self, cookie: Cookie) -> bool {
        (cookie.0 >> 48) as u16 == self.mark && cookie.0 as u8 % self.part.of == self.part.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Uuid = Uuid::from_u128(3);

    #[test]
    fn cookies_lead_to_their_part_and_are_known_in_the_next_run() {
        for of in [1, 2, 3, 7, 255] {
            for part in Part::all(of, &mut || 5) {
                for first in 0..=u8::MAX {
                    let random = 0xdead_beef_0123_4500 | u64::from(first);
                    let mut cookies = Cookies::new(TARGET, part, Box::new(move || random));
                    let cookie = cookies.make();
                    assert_eq!(cookie.0 as u8 % of, part.index(), "{first} for {of}");
                    assert_eq!(cookie.0 >> 8 & 0xff_ffff_ffff, 0xbe_ef01_2345, "random");
                    let next = Part::all(1, &mut || 6).next().expect("there is one");
                    assert!(Cookies::new(TARGET, next, Box::new(|| 7)).are_of(cookie));
                    let other = Cookies::new(Uuid::from_u128(4), next, Box::new(|| 7));
                    assert!(!other.are_of(cookie), "another target's");
                }
            }
        }
    }
}
