//! How the payload of a frame is protected when it is written, and checked when it is read.
//!
//! The two directions stand side by side, so that a frame which one seals is a frame which the
//! other opens. The header has a checksum of its own, which is the same in every version
//! ([`Header::parse`]): a receiver must know the channel of a frame before it can tell how its
//! payload is protected.

use crate::{Checksum, Header, Reject};

/// Protects payloads that are written.
pub trait Seal {
    /// The value of [`Header::payload_crc`] for a payload of these pieces: those of the data
    /// section or of the body, then the entries.
    fn seal<'a>(
        &self,
        header: &Header,
        data: impl IntoIterator<Item = &'a [u8]>,
        entries: &[u8],
    ) -> u32;
}

/// Checks payloads that are read.
pub trait Open {
    /// Checks a payload whose last `entries_len` bytes are entries.
    ///
    /// # Errors
    /// `PayloadChecksum`.
    fn open(&self, header: &Header, payload: &[u8], entries_len: usize) -> Result<(), Reject>;
}

/// Bytes of the tag behind the payload of a sealed frame.
pub const TAG_LEN: usize = 16;

/// Payloads whose tag does the work of the checksum, which is zero. They are sealed after they are
/// written, and opened before they are read.
#[derive(Clone, Copy, Debug)]
pub struct Sealed;

impl Seal for Sealed {
    fn seal<'a>(&self, _: &Header, _: impl IntoIterator<Item = &'a [u8]>, _: &[u8]) -> u32 {
        0
    }
}

impl Open for Sealed {
    fn open(&self, _: &Header, _: &[u8], _: usize) -> Result<(), Reject> {
        Ok(())
    }
}

/// CRC32C over the entries, and over the data section if the frame says so. PROTOCOL.md,
/// "Checksums".
#[derive(Clone, Copy, Debug)]
pub struct Checksums;

impl Seal for Checksums {
    fn seal<'a>(
        &self,
        header: &Header,
        data: impl IntoIterator<Item = &'a [u8]>,
        entries: &[u8],
    ) -> u32 {
        let mut checksum = Checksum::new();
        if header.covers_data() {
            // A call takes a while, also for nothing.
            let pieces = data.into_iter().filter(|piece| !piece.is_empty());
            pieces.for_each(|piece| checksum.update(piece));
        }
        checksum.update(entries);
        checksum.finish()
    }
}

impl Open for Checksums {
    fn open(&self, header: &Header, payload: &[u8], entries_len: usize) -> Result<(), Reject> {
        let skipped = if header.covers_data() { 0 } else { payload.len() - entries_len };
        let matches = Checksum::of(&payload[skipped..]) == header.payload_crc;
        if matches { Ok(()) } else { Err(Reject::PayloadChecksum) }
    }
}
