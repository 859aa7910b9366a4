//! Batches of frames, sent and received with one system call each, and set up once.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use super::socket::{Socket, count, head};
use super::{HEAD, PAGES_MAX, Pages};

/// Frames in a batch.
pub(super) const FRAMES: usize = 64;
/// Bytes for the payload of a received frame.
const ROOM: usize = 128 << 10;

const NOWHERE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

fn message(parts: &mut [libc::iovec]) -> libc::mmsghdr {
    // SAFETY: zeroes are a value of this plain structure: no name, no control data.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = parts.as_mut_ptr();
    message.msg_hdr.msg_iovlen = parts.len();
    message
}

/// Frames to send, whose data are borrowed for `'a`.
pub(super) struct Outgoing<'a> {
    // The messages point to the parts, and each frame's first part points to its head. Neither of
    // these lists ever grows, so their elements do not move.
    messages: Vec<libc::mmsghdr>,
    parts: Vec<[libc::iovec; 1 + PAGES_MAX]>,
    heads: Vec<[u8; HEAD]>,
    len: usize,
    data: PhantomData<&'a [u8]>,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new() -> Self {
        let mut heads = vec![head(0); FRAMES];
        let mut parts = vec![[NOWHERE; 1 + PAGES_MAX]; FRAMES];
        for (parts, head) in parts.iter_mut().zip(&mut heads) {
            parts[0] = libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: HEAD };
        }
        let messages = parts.iter_mut().map(|parts| message(parts)).collect();
        Self { messages, parts, heads, len: 0, data: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == FRAMES
    }

    /// Adds a frame.
    ///
    /// # Panics
    /// When full, or given more than [`PAGES_MAX`] pieces.
    pub(super) fn push(&mut self, count: u32, data: impl Iterator<Item = &'a [u8]>) {
        self.heads[self.len][16..20].copy_from_slice(&count.to_ne_bytes());
        let parts = &mut self.parts[self.len];
        let mut used = 1;
        for piece in data {
            // The kernel only reads through the pointer, whatever its type.
            let iov_base = piece.as_ptr().cast_mut().cast();
            parts[used] = libc::iovec { iov_base, iov_len: piece.len() };
            used += 1;
        }
        self.messages[self.len].msg_hdr.msg_iovlen = used;
        self.len += 1;
    }

    /// Sends all frames; waits for room if there is none.
    pub(super) fn flush(&mut self, socket: &Socket) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.len {
            let messages = &mut self.messages[sent..self.len];
            // SAFETY: the messages point to our heads and parts, and the parts to data that live
            // for 'a; the kernel only reads them.
            let result = unsafe {
                let (fd, first) = (socket.as_fd().as_raw_fd(), messages.as_mut_ptr());
                libc::sendmmsg(fd, first, messages.len() as u32, 0)
            };
            match result {
                0.. => sent += result as usize,
                _ => no_room(io::Error::last_os_error())?,
            }
        }
        self.len = 0;
        Ok(())
    }
}

fn no_room(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

/// Received frames.
pub(super) struct Incoming {
    messages: Vec<libc::mmsghdr>,
    // The messages point to these, as above; the kernel writes to them.
    _parts: Vec<[libc::iovec; 2]>,
    heads: Vec<[u8; HEAD]>,
    _payloads: Pages,
}

impl Incoming {
    pub(super) fn new() -> Self {
        let mut heads = vec![[0; HEAD]; FRAMES];
        let mut payloads = Pages::new(FRAMES * ROOM);
        let mut parts = vec![[NOWHERE; 2]; FRAMES];
        let places = heads.iter_mut().zip(payloads.chunks_exact_mut(ROOM));
        for (parts, (head, payload)) in parts.iter_mut().zip(places) {
            parts[0] = libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: HEAD };
            parts[1] = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: ROOM };
        }
        let messages = parts.iter_mut().map(|parts| message(parts)).collect();
        Self { messages, _parts: parts, heads, _payloads: payloads }
    }

    /// Receives all pending frames without waiting; returns the count and the bytes of payload of
    /// each.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
    ) -> io::Result<impl Iterator<Item = (u32, usize)> + '_> {
        // SAFETY: the messages point to our heads and payloads, which no one reads meanwhile.
        let result = unsafe {
            let (fd, first) = (socket.as_fd().as_raw_fd(), self.messages.as_mut_ptr());
            libc::recvmmsg(fd, first, FRAMES as u32, libc::MSG_DONTWAIT, ptr::null_mut())
        };
        let received = match result {
            0.. => result as usize,
            _ => no_room(io::Error::last_os_error()).map(|()| 0)?,
        };
        let frames = self.messages[..received].iter().zip(&self.heads);
        Ok(frames
            .map(|(message, head)| (count(head), (message.msg_len as usize).saturating_sub(HEAD))))
    }
}
