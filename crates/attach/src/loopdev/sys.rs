//! The loop driver's system calls: no crate wraps all that is needed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use libc::{Ioctl, c_int};

const LOOP_GET_STATUS64: Ioctl = 0x4c05;
const LOOP_SET_CAPACITY: Ioctl = 0x4c07;
const LOOP_CONFIGURE: Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: Ioctl = 0x4c82;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_PARTSCAN: u32 = 8;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

/// The file that a loop device is bound to: its device and inode numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backing {
    device: u64,
    inode: u64,
}

/// The number of an unbound loop device, which the kernel creates if there is none.
pub(super) fn free_number(control: &File) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Binds `device` to `file` with direct I/O; it unbinds itself with its last close.
pub(super) fn configure(
    device: &File,
    file: &File,
    name: &OsStr,
    block_size: u32,
    read_only: bool,
) -> io::Result<()> {
    // SAFETY: integers and arrays of integers are valid with all bits zero.
    let mut config: LoopConfig = unsafe { zeroed() };
    config.fd = u32::try_from(file.as_raw_fd()).expect("a file has a descriptor");
    config.block_size = block_size;
    config.info.flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_PARTSCAN | LO_FLAGS_DIRECT_IO;
    if read_only {
        config.info.flags |= LO_FLAGS_READ_ONLY;
    }
    let name = name.as_bytes();
    // Shown in lists of devices; cut to fit, with a terminating zero.
    let len = name.len().min(config.info.file_name.len() - 1);
    config.info.file_name[..len].copy_from_slice(&name[..len]);
    // SAFETY: the request reads a `loop_config`, whose layout `LoopConfig` has.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) })
}

/// The file that `device` is bound to, if any.
pub(super) fn backing(device: &File) -> io::Result<Option<Backing>> {
    // SAFETY: integers and arrays of integers are valid with all bits zero.
    let mut info: LoopInfo = unsafe { zeroed() };
    // SAFETY: the request writes a `loop_info64`, whose layout `LoopInfo` has.
    let result =
        check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) });
    match result {
        Ok(()) => Ok(Some(Backing { device: info.device, inode: info.inode })),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes `device` read the size of its file again.
pub(super) fn update_capacity(device: &File) -> io::Result<()> {
    let unused: c_int = 0;
    // SAFETY: the request ignores its argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY, unused) })
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
