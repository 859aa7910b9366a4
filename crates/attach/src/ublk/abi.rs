//! The interface between the kernel's ublk driver and its server: the used part of
//! `linux/ublk_cmd.h`.

use std::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A control command's number: the operation in ioctl encoding.
const fn control_command(write: bool, number: u32) -> u32 {
    let direction = if write { 3 } else { 2 };
    direction << 30 | (size_of::<ControlCommand>() as u32) << 16 | (b'u' as u32) << 8 | number
}

pub(super) const CMD_GET_DEV_INFO: u32 = control_command(false, 0x02);
pub(super) const CMD_ADD_DEV: u32 = control_command(true, 0x04);
pub(super) const CMD_DEL_DEV: u32 = control_command(true, 0x05);
pub(super) const CMD_START_DEV: u32 = control_command(true, 0x06);
pub(super) const CMD_STOP_DEV: u32 = control_command(true, 0x07);
pub(super) const CMD_SET_PARAMS: u32 = control_command(true, 0x08);
pub(super) const CMD_GET_PARAMS: u32 = control_command(false, 0x09);
pub(super) const CMD_START_USER_RECOVERY: u32 = control_command(true, 0x10);
pub(super) const CMD_END_USER_RECOVERY: u32 = control_command(true, 0x11);
pub(super) const CMD_GET_FEATURES: u32 = control_command(false, 0x13);
pub(super) const CMD_DEL_DEV_ASYNC: u32 = control_command(false, 0x14);
pub(super) const CMD_UPDATE_SIZE: u32 = control_command(true, 0x15);

const fn io_command(number: u32) -> u32 {
    3 << 30 | (size_of::<IoCommand>() as u32) << 16 | (b'u' as u32) << 8 | number
}

pub(super) const IO_FETCH_REQ: u32 = io_command(0x20);
pub(super) const IO_COMMIT_AND_FETCH_REQ: u32 = io_command(0x21);

/// Another process may take the device over when its server dies.
pub(super) const F_USER_RECOVERY: u64 = 1 << 3;
/// Requests in flight when the server dies are issued again.
pub(super) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// Control commands are encoded as above.
pub(super) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// The server copies data with `pread` and `pwrite`, at any time. Linux 6.5.
pub(super) const F_USER_COPY: u64 = 1 << 7;
/// A live device can change its size. Linux 6.16.
pub(super) const F_UPDATE_SIZE: u64 = 1 << 10;

pub(super) const STATE_DEAD: u16 = 0;

/// The device number of a command that concerns no particular device.
pub(super) const ANY_DEVICE: u32 = u32::MAX;
/// The queue number of a command that concerns no queue.
pub(super) const NO_QUEUE: u16 = u16::MAX;

/// `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    pub(super) queue: u16,
    /// Length in bytes of the buffer at `address`.
    pub(super) len: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, IntoBytes, FromBytes, Immutable)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) io_max: u32,
    pub(super) device: u32,
    pub(super) pid: i32,
    pub(super) pad1: u32,
    pub(super) flags: u64,
    /// For the server's own use, kept by the kernel.
    pub(super) server_flags: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) reserved: [u64; 2],
}

pub(super) const PARAM_BASIC: u32 = 1;
pub(super) const PARAM_DISCARD: u32 = 2;

pub(super) const ATTR_READ_ONLY: u32 = 1;
pub(super) const ATTR_ROTATIONAL: u32 = 2;
pub(super) const ATTR_VOLATILE_CACHE: u32 = 4;
pub(super) const ATTR_FUA: u32 = 8;

/// Bytes of [`Params`] without the padding at its end.
pub(super) const PARAMS_LEN: u32 = 60;

/// `struct ublk_params`, up to the last used field: the kernel goes by `len`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable)]
pub(super) struct Params {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) basic: BasicParams,
    pub(super) discard: DiscardParams,
    pub(super) pad: u32,
}

/// `struct ublk_param_basic`. Shifts are powers of two of bytes; a sector has 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable)]
pub(super) struct BasicParams {
    pub(super) attributes: u32,
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) virtual_boundary_mask: u64,
}

/// `struct ublk_param_discard`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable)]
pub(super) struct DiscardParams {
    pub(super) alignment: u32,
    pub(super) granularity: u32,
    pub(super) sectors_max: u32,
    pub(super) zeroes_sectors_max: u32,
    pub(super) segments_max: u16,
    pub(super) reserved: u16,
}

pub(super) const OP_READ: u8 = 0;
pub(super) const OP_WRITE: u8 = 1;
pub(super) const OP_FLUSH: u8 = 2;
pub(super) const OP_DISCARD: u8 = 3;
pub(super) const OP_WRITE_ZEROES: u8 = 5;

pub(super) const IO_F_FUA: u32 = 1 << 13;
pub(super) const IO_F_NOUNMAP: u32 = 1 << 15;

/// `struct ublksrv_io_desc`: a request, in memory that the kernel writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes)]
pub(super) struct IoDescriptor {
    /// The operation in the lowest byte, flags above.
    pub(super) op_flags: u32,
    pub(super) sectors: u32,
    pub(super) start_sector: u64,
    pub(super) address: u64,
}

/// `struct ublksrv_io_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    /// Bytes moved, or a negated error number.
    pub(super) result: i32,
    pub(super) address: u64,
}

/// The result of a command when no more requests will come.
pub(super) const RES_ABORT: i32 = -libc::ENODEV;
/// The result of a command when there is a request.
pub(super) const RES_OK: i32 = 0;

/// The most requests of a queue.
pub(super) const DEPTH_MAX: u16 = 4096;

/// The offset of a queue's descriptors in the character device, for `mmap`.
pub(super) fn descriptors_offset(queue: u16) -> u64 {
    u64::from(queue) * (usize::from(DEPTH_MAX) * size_of::<IoDescriptor>()) as u64
}

/// The offset of a request's data in the character device, for `pread` and `pwrite`.
pub(super) fn data_offset(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

const _: () = assert!(
    size_of::<ControlCommand>() == 32
        && size_of::<DeviceInfo>() == 64
        && size_of::<BasicParams>() == 32
        && size_of::<DiscardParams>() == 20
        && size_of::<Params>() == 64
        && size_of::<IoDescriptor>() == 24
        && size_of::<IoCommand>() == 16
);
