//! `tyche.h`: the library for C. The doc comments of public items become the header's.
//!
//! Conditions of every function, which C cannot check: a handle came from the function that makes
//! it and has not been freed; a string ends in a zero byte; a buffer has the given length; the
//! memory of a request is left alone until the request has ended. Null is checked everywhere.
//!
//! A panic means that an invariant of the library is broken. It never unwinds into C: Rust ends
//! the process when a panic reaches an `extern "C"` function.

#![allow(clippy::missing_safety_doc, reason = "the module says it once, for all of them")]
#![allow(unreachable_pub, reason = "what is exported is reached by the linker")]

mod buffers;
mod counters;
mod options;
mod slots;

use std::ffi::{c_char, c_int};
use std::ptr;
use std::time::Duration;

use tyche_block::{Completion, Errno, Extent, Geometry, Operation, Request};

use crate::REQUESTS_MAX;
use crate::error::{OpenError, Refusal, Refused};
use crate::volume::Volume;
use crate::wanted::Wanted;
use buffers::Buffers;
use options::tyche_options;
use slots::Slots;

/// For writes and zeroes: complete only when on stable storage.
pub const TYCHE_FUA: u32 = 1;
/// For zeroes: blocks may be deallocated.
pub const TYCHE_UNMAP: u32 = 2;

/// The longest wait for the target's confirmation of the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// An open export. Made by tyche_open(), freed by tyche_close(). In queue mode any number of
/// threads may use it at once; in inline mode one at a time: a call during another thread's returns
/// -EBUSY. After a fork(), the child must leave it alone, tyche_close() included.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct tyche_volume {
    volume: Volume,
    slots: Slots,
    buffers: Buffers,
    /// Bytes in the volume's own memory.
    memory: usize,
}

/// The properties of a disk.
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct tyche_geometry {
    /// Bytes, a multiple of the block size.
    pub size: u64,
    /// Bytes in a block, 512 or 4096: the unit of offsets and lengths.
    pub block_size: u32,
    /// Requests that modify fail with EROFS.
    pub read_only: bool,
    /// Completed writes may be volatile until the next flush.
    pub write_cache: bool,
    /// Whether discard has an effect.
    pub discard: bool,
    /// Whether seeks take time: the disks are rotational.
    pub rotational: bool,
}

/// The completion of a request.
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct tyche_completion {
    /// The token that the request was submitted with.
    pub token: u64,
    /// 0, or a negative error number. After an error the content of a read's buffer is undefined.
    pub result: i32,
    /// Zero.
    pub reserved: u32,
}

/// Connects to an export and waits for the connection: returns 0 and the volume in *volume, or a
/// negative error number and a sentence in `error`, cut to `error_size` bytes with the final zero.
/// `error` may be NULL. The options remain the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_open(
    options: *const tyche_options,
    volume: *mut *mut tyche_volume,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(tyche_options { options }) = (unsafe { options.as_ref() }) else {
        return -libc::EINVAL;
    };
    if volume.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: as the header demands.
    unsafe { give(options.open(), options.memory, volume, (error, error_size)) }
}

/// Opens a further queue of a volume's session, for another thread: a volume of its own, with its
/// own requests, completions and buffers, on the same disk. tyche_options_set_queues() says how
/// many there are. Returns as tyche_open(), -EINVAL if all are open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_open_queue(
    volume: *const tyche_volume,
    queue: *mut *mut tyche_volume,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    if queue.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: as the header demands.
    unsafe { give(handle.volume.open_queue(), handle.memory, queue, (error, error_size)) }
}

/// Passes an opened volume to C, or else the error.
///
/// # Safety
/// `to` is writable; `error` is null or has room for the bytes beside it.
unsafe fn give(
    opened: Result<Volume, OpenError>,
    memory: usize,
    to: *mut *mut tyche_volume,
    (error, error_size): (*mut c_char, usize),
) -> c_int {
    let (handle, result) = match opened {
        Ok(volume) => {
            let (slots, buffers) = (Slots::new(REQUESTS_MAX), Buffers::default());
            let handle = tyche_volume { volume, slots, buffers, memory };
            (Box::into_raw(Box::new(handle)), 0)
        }
        Err(why) => {
            // SAFETY: `error` has room for `error_size` bytes or is null.
            unsafe { say(&why.to_string(), error, error_size) };
            (ptr::null_mut(), -why.errno().0)
        }
    };
    // SAFETY: writable.
    unsafe { to.write(handle) };
    result
}

/// Writes a zero-terminated text.
///
/// # Safety
/// `to` is null or has room for `size` bytes.
unsafe fn say(text: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let longest = text.len().min(size - 1);
    let len = (0..=longest).rev().find(|&len| text.is_char_boundary(len)).unwrap_or(0);
    // SAFETY: `len` is within the text and below `size`, so text and zero fit; the two do not
    // overlap, for the text is ours.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), to, len);
        to.add(len).write(0);
    }
}

/// Ends the session, waits up to a second for the target's confirmation, and frees the volume and
/// all its registered buffers; NULL does nothing. Completions that have not been polled are lost,
/// and the outcome of requests in flight is unknown: their memory is not touched any more. A
/// session with several open queues goes on, unless this one is in inline mode and has requests in
/// flight. Over FCoE, in inline mode, it ends with its first queue, which waits up to a second
/// until the others are closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_close(volume: *mut tyche_volume) {
    if !volume.is_null() {
        // SAFETY: made by `Box::into_raw` in `tyche_open` and closed once, as the header demands.
        let handle = unsafe { Box::from_raw(volume) };
        // The buffers go last, after all requests.
        let tyche_volume { volume, buffers, .. } = *handle;
        volume.close(FAREWELL);
        drop(buffers);
    }
}

/// The current geometry of the disk; its size may grow while it is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_get_geometry(
    volume: *const tyche_volume,
    geometry: *mut tyche_geometry,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    if geometry.is_null() {
        return -libc::EINVAL;
    }
    // Each field is named, so that none is forgotten.
    let Geometry { size, block_size, read_only, write_cache, discard, rotational } =
        handle.volume.geometry();
    let answer = tyche_geometry { size, block_size, read_only, write_cache, discard, rotational };
    // SAFETY: not null, and writable as the header demands.
    unsafe { geometry.write(answer) };
    0
}

/// Allocates a registered buffer, for data without another copy: zeroed, and aligned to 4096 bytes.
/// Requests may use any part of it. Parts that begin at a multiple of 4096 bytes, and whose pages
/// no other request in flight uses, are used in place; others are copied like unregistered memory.
/// NULL if `len` is zero or more than 16 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_buffer_alloc(
    volume: *const tyche_volume,
    len: usize,
) -> *mut std::ffi::c_void {
    // SAFETY: null or valid, as the header demands.
    let handle = unsafe { volume.as_ref() };
    let buffer = handle.and_then(|handle| handle.buffers.alloc(len));
    buffer.map_or(ptr::null_mut(), <*mut u8>::cast)
}

/// Frees a registered buffer; NULL does nothing. No request in flight may use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_buffer_free(
    volume: *const tyche_volume,
    buffer: *mut std::ffi::c_void,
) {
    // SAFETY: null or valid, as the header demands.
    if let Some(handle) = unsafe { volume.as_ref() } {
        handle.buffers.free(buffer.cast());
    }
}

/// Reads `len` bytes at `offset` of the disk into `buffer`, which must be left alone until the
/// request has ended. Any memory will do; a registered buffer is filled in place.
///
/// Returns 0: the completion comes out of tyche_poll() or tyche_wait() with this token. -EAGAIN:
/// the limit of requests in progress or of memory is reached; poll and try again. -EBUSY: another
/// thread is in a call on this volume, which is in inline mode. -EINVAL: a pointer is NULL, or the
/// request is longer than the volume's memory. The same holds for the requests below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_read(
    volume: *const tyche_volume,
    buffer: *mut std::ffi::c_void,
    len: u32,
    offset: u64,
    token: u64,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    if buffer.is_null() {
        return -libc::EINVAL;
    }
    let (extent, copy_to) = match handle.memory(buffer.cast(), len) {
        Ok((extent, true)) => (extent, ptr::null_mut()),
        Ok((extent, false)) => (extent, buffer.cast()),
        Err(errno) => return -errno.0,
    };
    handle.submit(Operation::Read, (offset, len), Some(extent), (token, copy_to))
}

/// Writes `len` bytes from `buffer` to `offset` of the disk. Memory of a registered buffer must be
/// left alone until the request has ended; other memory is copied before this returns. Flags:
/// TYCHE_FUA.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_write(
    volume: *const tyche_volume,
    buffer: *const std::ffi::c_void,
    len: u32,
    offset: u64,
    flags: u32,
    token: u64,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    if buffer.is_null() || flags & !TYCHE_FUA != 0 {
        return -libc::EINVAL;
    }
    let (mut extent, is_in_place) = match handle.memory(buffer.cast(), len) {
        Ok(memory) => memory,
        Err(errno) => return -errno.0,
    };
    if !is_in_place {
        // SAFETY: `len` bytes are readable there, as the header demands, and the extent has as
        // many; the two do not overlap, for the extent had no other owner until now.
        unsafe { ptr::copy_nonoverlapping(buffer.cast(), extent.as_mut_ptr(), len as usize) };
    }
    let operation = Operation::Write { fua: flags & TYCHE_FUA != 0 };
    handle.submit(operation, (offset, len), Some(extent), (token, ptr::null_mut()))
}

/// Makes every write that has ended before durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_flush(volume: *const tyche_volume, token: u64) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    handle.submit(Operation::Flush, (0, 0), None, (token, ptr::null_mut()))
}

/// Discards the range: its content is no longer needed, and reads may return anything until it is
/// rewritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_discard(
    volume: *const tyche_volume,
    len: u32,
    offset: u64,
    token: u64,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    handle.submit(Operation::Discard, (offset, len), None, (token, ptr::null_mut()))
}

/// Zeroes the range: it reads as zeroes from then on. Flags: TYCHE_FUA, TYCHE_UNMAP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_write_zeroes(
    volume: *const tyche_volume,
    len: u32,
    offset: u64,
    flags: u32,
    token: u64,
) -> c_int {
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    if flags & !(TYCHE_FUA | TYCHE_UNMAP) != 0 {
        return -libc::EINVAL;
    }
    let operation =
        Operation::WriteZeroes { fua: flags & TYCHE_FUA != 0, may_unmap: flags & TYCHE_UNMAP != 0 };
    handle.submit(operation, (offset, len), None, (token, ptr::null_mut()))
}

/// Takes up to `max` completions and returns how many; never waits. In inline mode this sends
/// submitted requests and handles received frames, also with a `max` of 0: call it a few times a
/// second at least.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_poll(
    volume: *const tyche_volume,
    completions: *mut tyche_completion,
    max: u32,
) -> c_int {
    // SAFETY: both as the header demands.
    unsafe { collect(volume, completions, Wanted::at_once(max as usize)) }
}

/// As tyche_poll(), but waits until `min` requests have ended, or as many as are in flight, or
/// `timeout_ms` milliseconds have passed. If several threads wait, each should wait for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_wait(
    volume: *const tyche_volume,
    completions: *mut tyche_completion,
    min: u32,
    max: u32,
    timeout_ms: u32,
) -> c_int {
    let timeout = Duration::from_millis(timeout_ms.into());
    let wanted = Wanted::new(min as usize, max as usize, timeout);
    // SAFETY: both as the header demands.
    unsafe { collect(volume, completions, wanted) }
}

/// In queue mode, a descriptor that becomes readable when a request has ended: for poll(2) and the
/// like, never to be read or closed. Call this before every sleep, for it arms the descriptor;
/// spurious wake-ups are possible. -EOPNOTSUPP in inline mode: use tyche_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tyche_wait_fd(volume: *const tyche_volume) -> c_int {
    use std::os::fd::AsRawFd;
    // SAFETY: null or valid, as the header demands.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    handle.volume.wait_fd().map_or(-libc::EOPNOTSUPP, |fd| fd.as_raw_fd())
}

/// # Safety
/// `volume` is null or valid; `completions` is null or has room for `wanted.max`.
unsafe fn collect(
    volume: *const tyche_volume,
    completions: *mut tyche_completion,
    wanted: Wanted,
) -> c_int {
    // SAFETY: null or valid, as the caller of this function promises.
    let Some(handle) = (unsafe { volume.as_ref() }) else { return -libc::EINVAL };
    if completions.is_null() && wanted.max > 0 {
        return -libc::EINVAL;
    }
    let mut next = completions;
    let mut take = |completion: Completion| {
        let completion = handle.settle(completion);
        // SAFETY: at most `wanted.max` are taken, and the array has room for as many.
        unsafe {
            next.write(completion);
            next = next.add(1);
        }
    };
    match handle.volume.collect(wanted, &mut take) {
        Ok(count) => c_int::try_from(count).expect("fewer than may be in flight"),
        Err(reason) => -errno(reason),
    }
}

fn errno(reason: Refusal) -> c_int {
    match reason {
        Refusal::Full => libc::EAGAIN,
        Refusal::Busy => libc::EBUSY,
    }
}

impl tyche_volume {
    /// The memory for the data of a request: that of the caller in place (`true`), or else some of
    /// the volume, through which they are copied.
    fn memory(&self, at: *const u8, len: u32) -> Result<(Extent, bool), Errno> {
        let len = len as usize;
        if let Some(extent) = self.buffers.claim(at, len) {
            return Ok((extent, true));
        }
        if len > self.memory {
            return Err(Errno::INVAL);
        }
        Ok((self.volume.arena().alloc(len).ok_or(Errno(libc::EAGAIN))?, false))
    }

    fn submit(
        &self,
        operation: Operation,
        (offset, len): (u64, u32),
        buffer: Option<Extent>,
        (token, copy_to): (u64, *mut u8),
    ) -> c_int {
        let Some(slot) = self.slots.take(token, copy_to) else { return -libc::EAGAIN };
        let request = Request { operation, offset, len, buffer };
        match self.volume.submit(request, slot) {
            Ok(()) => 0,
            Err(Refused { reason, .. }) => {
                self.slots.release(slot);
                -errno(reason)
            }
        }
    }

    /// Converts a completion for C, and copies the data of a read to the caller's memory.
    fn settle(&self, completion: Completion) -> tyche_completion {
        let Completion { token: slot, result, buffer } = completion;
        let (token, copy_to) = self.slots.release(slot);
        if let (false, Ok(()), Some(extent)) = (copy_to.is_null(), result, buffer) {
            // SAFETY: by the caller of the read, the memory there has the length of the request,
            // which the extent has too, and was left alone since; the extent is ours.
            unsafe { ptr::copy_nonoverlapping(extent.as_ptr(), copy_to, extent.len()) };
        }
        let result = result.map_or_else(|errno| -errno.0, |()| 0);
        tyche_completion { token, result, reserved: 0 }
    }
}
