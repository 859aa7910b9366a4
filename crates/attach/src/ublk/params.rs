//! A disk's parameters for the kernel, and the check that another disk can replace it.

use std::io::{self, ErrorKind};

use tyche_block::Geometry;

use super::abi::{self, BasicParams, DiscardParams, Params};
use crate::SECTOR;

/// The longest discard or write of zeroes, in bytes: whole pages. A file system is made with one
/// discard after the other, of some GiB each.
const RANGE_MAX: u32 = u32::MAX - 4095;

/// The kernel's parameters of a disk.
pub(super) fn params(geometry: &Geometry, io_max: u32) -> Params {
    let shift = geometry.block_size.trailing_zeros() as u8;
    // An export may become write-back while the device lives: so flushes are always requested,
    // which costs little where there is nothing to flush.
    let mut attributes = abi::ATTR_VOLATILE_CACHE | abi::ATTR_FUA;
    if geometry.read_only {
        attributes |= abi::ATTR_READ_ONLY;
    }
    if geometry.rotational {
        attributes |= abi::ATTR_ROTATIONAL;
    }
    let range_max = RANGE_MAX / SECTOR as u32;
    Params {
        len: abi::PARAMS_LEN,
        types: abi::PARAM_BASIC | abi::PARAM_DISCARD,
        basic: BasicParams {
            attributes,
            logical_block_shift: shift,
            // The page size of the protocol and of stores.
            physical_block_shift: PAGE_SHIFT,
            io_opt_shift: io_max.trailing_zeros() as u8,
            io_min_shift: PAGE_SHIFT,
            sectors_max: io_max / SECTOR as u32,
            sectors: geometry.size / SECTOR,
            ..BasicParams::default()
        },
        discard: DiscardParams {
            granularity: 1 << PAGE_SHIFT,
            sectors_max: if geometry.discard { range_max } else { 0 },
            zeroes_sectors_max: range_max,
            segments_max: 1,
            ..DiscardParams::default()
        },
        pad: 0,
    }
}

const PAGE_SHIFT: u8 = 12;

/// Checks that a disk with those parameters can continue a device with these.
pub(super) fn check_params(of_device: &Params, of_disk: &Params) -> io::Result<()> {
    let wrong = |what: &str| Err(io::Error::new(ErrorKind::InvalidData, what.to_owned()));
    let (device, disk) = (of_device.basic, of_disk.basic);
    if disk.sectors < device.sectors {
        return wrong("the export is smaller than the device");
    }
    if disk.logical_block_shift != device.logical_block_shift {
        return wrong("the export has another block size than the device");
    }
    if disk.attributes & !device.attributes & abi::ATTR_READ_ONLY != 0 {
        return wrong("the export is read-only now, and the device is not");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO_MAX: u32 = 1 << 20;

    fn geometry() -> Geometry {
        Geometry { write_cache: true, discard: true, ..Geometry::new(1 << 30, 512) }
    }

    #[test]
    fn a_device_continues_with_a_disk_of_the_same_kind_and_at_least_its_size() {
        let device = params(&geometry(), IO_MAX);
        let check = |disk: Geometry| check_params(&device, &params(&disk, IO_MAX));
        assert!(check(geometry()).is_ok());
        assert!(check(Geometry { size: 2 << 30, ..geometry() }).is_ok());
        assert!(check(Geometry { write_cache: false, ..geometry() }).is_ok());
        assert!(check(Geometry { size: 1 << 29, ..geometry() }).is_err());
        assert!(check(Geometry { block_size: 4096, ..geometry() }).is_err());
        assert!(check(Geometry { read_only: true, ..geometry() }).is_err());
    }

    #[test]
    fn flushes_are_asked_for_though_there_is_no_cache_yet() {
        let device = params(&Geometry { write_cache: false, ..geometry() }, IO_MAX);
        let flushed = abi::ATTR_VOLATILE_CACHE | abi::ATTR_FUA;
        assert_eq!(device.basic.attributes & flushed, flushed);
    }

    #[test]
    fn discards_and_zeroes_are_as_long_as_a_request_can_be() {
        let longest = (u32::MAX - 4095) / 512;
        let of = |discard| params(&Geometry { discard, ..geometry() }, IO_MAX).discard;
        assert_eq!((of(true).sectors_max, of(true).zeroes_sectors_max), (longest, longest));
        assert_eq!((of(false).sectors_max, of(false).zeroes_sectors_max), (0, longest));
    }
}
