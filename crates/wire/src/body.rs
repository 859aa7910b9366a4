//! Reading and writing the fields of a body in order.

use uuid::Uuid;

use crate::{Reject, Text};

/// The most bytes of a body, a hello's padding aside. The shortest frame has room for it.
pub(crate) const BODY_LEN_MAX: usize = 1152;

/// Takes fields off the front of a body.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Reject> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Reject::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Reject> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Reject> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Reject> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, Reject> {
        self.bytes().map(Uuid::from_bytes)
    }

    pub(crate) fn text<const N: usize>(&mut self) -> Result<Text<N>, Reject> {
        Text::from_bytes(self.bytes()?).ok_or(Reject::Text)
    }

    /// Takes `N` bytes, which must be zero.
    pub(crate) fn zeroes<const N: usize>(&mut self) -> Result<(), Reject> {
        if self.bytes::<N>()? == [0; N] { Ok(()) } else { Err(Reject::Reserved) }
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), Reject> {
        if self.0.is_empty() { Ok(()) } else { Err(Reject::Length) }
    }

    /// The bytes that are left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Checks that padding is zero, in whole blocks: a hello has up to 65,485 bytes of it, and
/// anybody may send one.
pub(crate) fn check_padding(padding: &[u8]) -> Result<(), Reject> {
    let is_zero = |block: &[u8]| block.iter().fold(0, |all, byte| all | byte) == 0;
    if padding.chunks(256).all(is_zero) { Ok(()) } else { Err(Reject::Reserved) }
}

/// Appends fields to a body.
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, len: 0 }
    }

    pub(crate) fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
        self
    }

    pub(crate) fn u16(&mut self, field: u16) -> &mut Self {
        self.bytes(&field.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, field: u32) -> &mut Self {
        self.bytes(&field.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, field: u64) -> &mut Self {
        self.bytes(&field.to_le_bytes())
    }

    pub(crate) fn uuid(&mut self, field: &Uuid) -> &mut Self {
        self.bytes(field.as_bytes())
    }

    pub(crate) fn text<const N: usize>(&mut self, field: &Text<N>) -> &mut Self {
        self.bytes(field.as_bytes())
    }

    pub(crate) fn zeroes<const N: usize>(&mut self) -> &mut Self {
        self.bytes(&[0; N])
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
