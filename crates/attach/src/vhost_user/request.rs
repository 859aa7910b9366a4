//! Virtio block requests, as in the Virtual I/O Device specification, 5.2.6.
//!
//! A header of 16 bytes is read, data are read or written, and a byte of status is written last.
//! All integers are little-endian; sectors have 512 bytes, whatever the disk's blocks are.

use tyche_block::{Errno, Operation};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP,
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};

use super::chain::{Broken, Chain, Memory};
use crate::SECTOR;

/// Bytes of a request's header.
pub(super) const HEADER_LEN: u64 = 16;

/// Bytes of a range to be discarded or zeroed.
const RANGE_LEN: usize = 16;

/// Bytes of the disk's name, padded with zeroes.
pub(super) const IDENTITY_LEN: usize = VIRTIO_BLK_ID_BYTES as usize;

/// The status of a finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = VIRTIO_BLK_S_OK as u8,
    IoError = VIRTIO_BLK_S_IOERR as u8,
    Unsupported = VIRTIO_BLK_S_UNSUPP as u8,
}

impl From<Result<(), Errno>> for Status {
    fn from(result: Result<(), Errno>) -> Self {
        match result {
            Ok(()) => Self::Ok,
            Err(Errno::OPNOTSUPP) => Self::Unsupported,
            Err(_) => Self::IoError,
        }
    }
}

impl From<Broken> for Status {
    fn from(_: Broken) -> Self {
        Self::IoError
    }
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A disk operation. `offset` and `len` are in bytes and not checked yet.
    Disk { operation: Operation, offset: u64, len: u32 },
    /// The disk's name.
    Identify,
}

/// The terms negotiated between the front end and the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The longest read or write, in bytes.
    pub(super) payload_max: u32,
    /// Whether the guest does not flush: each write is durable when it completes.
    pub(super) write_through: bool,
    /// Whether ranges may be discarded.
    pub(super) discard: bool,
}

/// Parses the header, and the rest of a request without data.
pub(super) fn parse(chain: &Chain, memory: &Memory, terms: Terms) -> Result<Command, Status> {
    let mut header = [0; HEADER_LEN as usize];
    chain.readable.read(memory, 0, &mut header)?;
    let kind = u32::from_le_bytes(field(&header, 0));
    let sector = u64::from_le_bytes(field(&header, 8));
    let written = chain.readable.len() - HEADER_LEN;
    // The status byte is not data.
    let room = chain.writable.len().checked_sub(1).ok_or(Status::IoError)?;
    let transfer = |operation, len: u64| {
        let len = u32::try_from(len).ok().filter(|&len| len <= terms.payload_max);
        let len = len.ok_or(Status::IoError)?;
        let offset = sector.checked_mul(SECTOR).ok_or(Status::IoError)?;
        Ok(Command::Disk { operation, offset, len })
    };
    let fua = terms.write_through;
    match kind {
        VIRTIO_BLK_T_IN => transfer(Operation::Read, room),
        VIRTIO_BLK_T_OUT => transfer(Operation::Write { fua }, written),
        VIRTIO_BLK_T_FLUSH => Ok(Command::Disk { operation: Operation::Flush, offset: 0, len: 0 }),
        VIRTIO_BLK_T_GET_ID if room >= IDENTITY_LEN as u64 => Ok(Command::Identify),
        VIRTIO_BLK_T_DISCARD if terms.discard => {
            let (offset, len, flags) = range(chain, memory, written)?;
            match flags {
                0 => Ok(Command::Disk { operation: Operation::Discard, offset, len }),
                _ => Err(Status::Unsupported),
            }
        }
        VIRTIO_BLK_T_WRITE_ZEROES => {
            let (offset, len, flags) = range(chain, memory, written)?;
            let may_unmap = flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
            match flags & !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP {
                0 => {
                    let operation = Operation::WriteZeroes { fua, may_unmap };
                    Ok(Command::Disk { operation, offset, len })
                }
                _ => Err(Status::Unsupported),
            }
        }
        _ => Err(Status::Unsupported),
    }
}

/// The one range of a request, in bytes, and its flags.
fn range(chain: &Chain, memory: &Memory, len: u64) -> Result<(u64, u32, u32), Status> {
    if len != RANGE_LEN as u64 {
        // The guest was told the limit of one range.
        return Err(Status::IoError);
    }
    let mut bytes = [0; RANGE_LEN];
    chain.readable.read(memory, HEADER_LEN, &mut bytes)?;
    let offset = u64::from_le_bytes(field(&bytes, 0)).checked_mul(SECTOR);
    let len = u32::from_le_bytes(field(&bytes, 8)).checked_mul(SECTOR as u32);
    match (offset, len) {
        (Some(offset), Some(len)) => Ok((offset, len, u32::from_le_bytes(field(&bytes, 12)))),
        _ => Err(Status::IoError),
    }
}

/// A field of a message of known length.
fn field<const N: usize>(bytes: &[u8; 16], offset: usize) -> [u8; N] {
    *bytes[offset..].first_chunk().expect("the offsets above leave room")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_as_much_as_virtio_can() {
        assert_eq!(Status::from(Ok(())), Status::Ok);
        assert_eq!(Status::from(Err(Errno::OPNOTSUPP)), Status::Unsupported);
        assert_eq!(Status::from(Err(Errno::ROFS)), Status::IoError);
    }
}
