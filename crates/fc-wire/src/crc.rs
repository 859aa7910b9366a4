//! The CRC of a frame: CRC-32 of IEEE 802.3, over header, payload and fill.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC of several pieces in order, as one run of bytes.
pub fn crc<'d>(pieces: impl IntoIterator<Item = &'d [u8]>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    pieces.into_iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}
