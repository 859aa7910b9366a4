//! What operations write and what the disk holds: each eight bytes tell where they belong.

/// Bytes of the disk: a mebibyte for each operation, so that none meets another.
pub(crate) const DISK: u64 = 1 << 40;
/// Bytes of the disk that an operation has for itself.
pub(crate) const PLOT: u64 = 1 << 20;

fn word(salt: u64, at: u64) -> u64 {
    (at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt
}

fn matches(salt: u64, at: u64, bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<8>();
    (at..).step_by(8).zip(words).all(|(at, bytes)| *bytes == word(salt, at).to_le_bytes())
}

fn fill(salt: u64, at: u64, bytes: &mut [u8]) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (at, bytes) in (at..).step_by(8).zip(words) {
        *bytes = word(salt, at).to_le_bytes();
    }
}

const WRITTEN: u64 = 0;
const STORED: u64 = 0x5555_5555_5555_5555;

/// Fills in what a good host writes at that place of the disk.
pub(crate) fn write(at: u64, bytes: &mut [u8]) {
    fill(WRITTEN, at, bytes);
}

/// Whether that is what a good host writes there.
pub(crate) fn is_written(at: u64, bytes: &[u8]) -> bool {
    matches(WRITTEN, at, bytes)
}

/// Fills in what is read there, always.
pub(crate) fn read(at: u64, bytes: &mut [u8]) {
    fill(STORED, at, bytes);
}

/// Whether that is what is read there.
pub(crate) fn is_read(at: u64, bytes: &[u8]) -> bool {
    matches(STORED, at, bytes)
}
