//! Structures in frames: read from the front of bytes, appended to a buffer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Reject;

/// The structure at the front of `bytes`, and the bytes behind it. Of a slice it is the longest.
///
/// # Errors
/// [`Reject::Length`] if there are too few.
pub(crate) fn front<T>(bytes: &[u8]) -> Result<(&T, &[u8]), Reject>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned + ?Sized,
{
    T::ref_from_prefix(bytes).map_err(|_| Reject::Length)
}

/// The structure that `bytes` are, to the byte.
///
/// # Errors
/// [`Reject::Length`] if they are more or less.
pub(crate) fn exactly<T>(bytes: &[u8]) -> Result<&T, Reject>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned + ?Sized,
{
    T::ref_from_bytes(bytes).map_err(|_| Reject::Length)
}

/// Appends structures to a buffer.
pub(crate) struct Append<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Append<'a> {
    /// Begins with the first byte.
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Appends a structure.
    ///
    /// # Panics
    /// If the buffer is too short: its owner has made it long enough for the longest PDU.
    pub(crate) fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, part: &T) -> &mut Self {
        let bytes = part.as_bytes();
        self.buffer[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    /// Appends zeroes up to a length of the whole, if it is not that long already.
    pub(crate) fn pad_to(&mut self, len: usize) {
        if self.len < len {
            self.buffer[self.len..len].fill(0);
            self.len = len;
        }
    }

    /// Bytes of the whole.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
