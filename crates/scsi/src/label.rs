//! Identifying text of SCSI: ASCII, padded with spaces.

use core::fmt;

/// Printable ASCII in a field of `N` bytes, at most 255, without the spaces around it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Label<N> {
    /// The empty text.
    pub const EMPTY: Self = Self { bytes: [b' '; N], len: 0 };

    /// The text of a field, or its beginning if it is longer than `N`. Bytes that are not printable
    /// become spaces, as peers fill fields with either.
    pub fn from_field(field: &[u8]) -> Self {
        let mut this = Self::EMPTY;
        let skipped = field.iter().take_while(|byte| !byte.is_ascii_graphic()).count();
        for (place, byte) in this.bytes.iter_mut().zip(&field[skipped..]) {
            *place = if byte.is_ascii_graphic() { *byte } else { b' ' };
        }
        let end = this.bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        this.len = end.min(255) as u8;
        this
    }

    /// The text without its padding.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// The whole field, padded with spaces.
    pub fn field(&self) -> &[u8; N] {
        &self.bytes
    }
}

impl<const N: usize> fmt::Display for Label<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for Label<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_taken_off_and_other_bytes_become_spaces() {
        let label = Label::<8>::from_field(b"TYCHE   ");
        assert_eq!((label.as_str(), label.field()), ("TYCHE", b"TYCHE   "));
        assert_eq!(Label::<8>::from_field(b"  a\tb\0\0").as_str(), "a b");
        assert_eq!(Label::<4>::from_field(b"longer").as_str(), "long");
        assert_eq!(Label::<4>::from_field(b"\xff\xfe\xfd"), Label::EMPTY);
        assert_eq!(Label::<4>::from_field(b""), Label::EMPTY);
    }
}
