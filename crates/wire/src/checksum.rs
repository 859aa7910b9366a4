//! CRC32C (Castagnoli), as iSCSI and NVMe/TCP use it.

use crc_fast::{CrcAlgorithm, Digest};

/// A running CRC32C over one or more pieces.
pub struct Checksum(Digest);

impl Checksum {
    /// The checksum of no bytes.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds a piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all pieces in order.
    pub fn finish(self) -> u32 {
        self.0.finalize() as u32
    }

    /// The checksum of one piece.
    pub fn of(bytes: &[u8]) -> u32 {
        crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}
