//! The properties of a disk ([`Geometry`]), in one type for all: a store finds them out, a target
//! configures its export with them, frames carry them to the host, and sessions, attachments and
//! reports use them there. And what a disk is asked to do ([`Operation`]), for requests and for
//! SCSI commands, and how it tells which of its ranges are holes ([`StatusRun`]).
//!
//! It is a crate of its own because the crates that share it share nothing else: frames
//! (`tyche-wire`) and commands (`tyche-scsi`) know no requests, and requests (`tyche-block`) know
//! neither.

#![no_std]
#![forbid(unsafe_code)]

mod block_status;
mod operation;

pub use block_status::{STATUS_LEN_MAX, StatusRun, StatusWriter, status_runs};
pub use operation::{Misfit, Operation};

/// The properties of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `block_size`.
    pub size: u64,
    /// Logical block size in bytes: 512 or 4096.
    pub block_size: u32,
    /// Requests that modify the disk are refused.
    pub read_only: bool,
    /// Completed writes may be volatile until the next flush (write-back).
    pub write_cache: bool,
    /// Whether discard has an effect.
    pub discard: bool,
    /// Whether seeks take time: the disks are rotational.
    pub rotational: bool,
}

impl Geometry {
    /// The geometry of a disk that is not known yet: it accepts no request.
    pub const UNKNOWN: Self = Self { read_only: true, ..Self::new(0, 512) };

    /// A disk of that size and block size in bytes, without any other property: writable, without
    /// a volatile cache, without discard, not rotational.
    pub const fn new(size: u64, block_size: u32) -> Self {
        Self {
            size,
            block_size,
            read_only: false,
            write_cache: false,
            discard: false,
            rotational: false,
        }
    }

    /// Whether disks may have blocks of that many bytes.
    pub const fn is_block_size(bytes: u32) -> bool {
        matches!(bytes, 512 | 4096)
    }

    /// Whether the disk has a valid block size, and is a whole number of such blocks.
    pub const fn is_valid(&self) -> bool {
        Self::is_block_size(self.block_size) && self.size.is_multiple_of(self.block_size as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_a_whole_number_of_its_blocks() {
        assert!(Geometry::UNKNOWN.is_valid());
        assert!(Geometry::new(4608, 512).is_valid() && !Geometry::new(4608, 4096).is_valid());
        for block_size in [0, 1, 511, 1024, 8192] {
            assert!(!Geometry::new(0, block_size).is_valid(), "{block_size}");
        }
    }
}
