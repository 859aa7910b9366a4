//! Big-endian fields: reading at an offset, and writing in order.

/// The two bytes at an offset; `None` if there are fewer.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

/// The four bytes at an offset; `None` if there are fewer.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_be_bytes)
}

/// The eight bytes at an offset; `None` if there are fewer.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_be_bytes)
}

/// The `N` bytes at an offset; `None` if there are fewer.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The bit if it is set, else zero.
pub(crate) const fn bit_if(is_set: bool, bit: u8) -> u8 {
    if is_set { bit } else { 0 }
}

/// Writes fields in order. It keeps the fields that fit, so that an answer is cut at the
/// allocation length and nowhere else.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    /// The place of the next `len` bytes, as much of it as there is.
    fn reserve(&mut self, len: usize) -> &mut [u8] {
        let begin = self.kept();
        self.at = self.at.saturating_add(len);
        let end = self.kept();
        &mut self.out[begin..end]
    }

    pub(crate) fn bytes(&mut self, field: &[u8]) -> &mut Self {
        let place = self.reserve(field.len());
        place.copy_from_slice(&field[..place.len()]);
        self
    }

    pub(crate) fn zeroes(&mut self, len: usize) -> &mut Self {
        self.reserve(len).fill(0);
        self
    }

    pub(crate) fn u8(&mut self, field: u8) -> &mut Self {
        self.bytes(&[field])
    }

    pub(crate) fn u16(&mut self, field: u16) -> &mut Self {
        self.bytes(&field.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, field: u32) -> &mut Self {
        self.bytes(&field.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, field: u64) -> &mut Self {
        self.bytes(&field.to_be_bytes())
    }

    /// The bytes that were kept.
    pub(crate) fn kept(&self) -> usize {
        self.at.min(self.out.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_within_a_field() {
        for room in 0..=8 {
            let mut out = [0xa5; 8];
            let mut writer = Writer::new(&mut out[..room]);
            writer.u8(1).u16(0x0203).zeroes(2).bytes(&[4]);
            assert_eq!(writer.kept(), room.min(6));
            let whole = [1, 2, 3, 0, 0, 4];
            assert_eq!(out[..room.min(6)], whole[..room.min(6)]);
            assert!(out[room.min(6)..].iter().all(|byte| *byte == 0xa5), "{out:x?}");
        }
    }

    #[test]
    fn reads_past_the_end_are_none() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(u16_at(&bytes, 7), Some(0x0708));
        assert_eq!(u32_at(&bytes, 1), Some(0x0102_0304));
        assert_eq!(u64_at(&bytes, 1), Some(0x0102_0304_0506_0708));
        assert_eq!((u16_at(&bytes, 8), u32_at(&bytes, 6), u64_at(&bytes, 2)), (None, None, None));
        assert_eq!(u16_at(&bytes, usize::MAX), None);
    }
}
