//! Sending and receiving through AF_PACKET sockets, by system calls or by rings.

use std::ffi::CString;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{mem, ptr};

use crc_fast::{CrcAlgorithm, Digest};
use libc::{c_int, iovec, mmsghdr};

use crate::ring::{Ring, Way};

/// The start of every frame: addresses, EtherType, checksum, counts.
pub(crate) const HEAD: usize = 64;
/// A command or a completion, in bytes.
pub(crate) const ENTRY: usize = 24;
/// Frames per system call, and slots of a TX ring.
pub(crate) const BATCH: usize = 32;
/// Slots of an RX ring: more frames than are ever in flight.
const RX_SLOTS: usize = 256;
/// Bytes of `virtio_net_hdr`.
const VNET: usize = 10;
/// Vectors of a message: header of the socket, head, data, entries.
const VECTORS: usize = 20;
const PAGE: usize = 4096;

/// The method of sending.
#[derive(Clone, Copy)]
pub(crate) enum Out {
    /// `sendmmsg` from the data in place. *Linear*: into one buffer of the kernel instead of a
    /// small one and pages.
    Calls { linear: bool },
    /// Copied into a ring that the kernel takes frames from.
    Ring,
}

/// The method of receiving.
#[derive(Clone, Copy)]
pub(crate) enum In {
    /// `recvmmsg` into a buffer, then a copy to the destination; or, *placed*, directly there.
    Calls { placed: bool },
    /// Copied from a ring that the kernel puts frames into.
    Ring,
}

/// The frames of a method: their interface, their EtherType, and the length of the longest.
#[derive(Clone, Copy)]
pub(crate) struct Wire<'a> {
    pub(crate) interface: &'a str,
    pub(crate) ethertype: u16,
    pub(crate) frame_max: usize,
}

/// The number of blocks and of entries in a frame.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    pub(crate) blocks: usize,
    pub(crate) entries: usize,
}

/// Memory that blocks are read from or written to, at random.
pub(crate) struct BlockMemory {
    bytes: Vec<u8>,
    start: usize,
    block: usize,
    random: u64,
}

impl BlockMemory {
    pub(crate) fn new(block: usize) -> Self {
        let bytes = vec![1; (64 << 20) + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start, block, random: 88_172_645_463_325_252 }
    }

    /// Another random block, page-aligned.
    fn block(&mut self) -> &mut [u8] {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let stride = self.block.next_multiple_of(PAGE);
        let index = self.random as usize % ((64 << 20) / stride);
        &mut self.bytes[self.start + index * stride..][..self.block]
    }
}

/// The sending half of a method.
pub(crate) struct Sender {
    socket: OwnedFd,
    linear: bool,
    ring: Option<Ring>,
    next: usize,
    vnet: [u8; VNET],
    heads: Vec<[u8; HEAD]>,
    entries: Vec<u8>,
    vectors: Vec<[iovec; VECTORS]>,
}

impl Sender {
    pub(crate) fn open(wire: Wire<'_>, out: Out) -> Result<Self> {
        let Wire { interface, ethertype, frame_max } = wire;
        let socket = socket()?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
        let linear = matches!(out, Out::Calls { linear: true });
        if linear {
            set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        }
        let ring = match out {
            Out::Calls { .. } => None,
            Out::Ring => Some(Ring::new(&socket, Way::Out, BATCH, frame_max)?),
        };
        bind(&socket, interface, 0)?;
        let mut head = [0; HEAD];
        head[..6].fill(0xFF);
        head[6] = 2;
        head[12..14].copy_from_slice(&ethertype.to_be_bytes());
        Ok(Self {
            socket,
            linear,
            ring,
            next: 0,
            vnet: [0; VNET],
            heads: vec![head; BATCH],
            entries: vec![0; frame_max],
            vectors: vec![[vector(&mut []); VECTORS]; BATCH],
        })
    }

    /// Sends so many frames of that content.
    pub(crate) fn send(
        &mut self,
        place: &mut BlockMemory,
        mut frames: usize,
        content: Content,
    ) -> Result<()> {
        while frames > 0 {
            let batch = frames.min(BATCH);
            match self.ring {
                None => self.call(place, batch, content)?,
                Some(_) => self.fill(place, batch, content)?,
            }
            frames -= batch;
        }
        Ok(())
    }

    fn call(&mut self, place: &mut BlockMemory, frames: usize, content: Content) -> Result<()> {
        let Content { blocks, entries } = content;
        let len = HEAD + blocks * place.block + entries * ENTRY;
        // `hdr_len`: the bytes of the frame to put into the first buffer.
        self.vnet[2..4].copy_from_slice(&(len as u16).to_ne_bytes());
        let mut messages = [const { empty_message() }; BATCH];
        for (frame, message) in messages.iter_mut().enumerate().take(frames) {
            let vectors = &mut self.vectors[frame];
            let mut crc = Digest::new(CrcAlgorithm::Crc32Iscsi);
            vectors[0] = vector(&mut self.vnet);
            for at in 0..blocks {
                let block = place.block();
                crc.update(block);
                vectors[2 + at] = vector(block);
            }
            describe(&mut self.heads[frame], crc, content);
            vectors[1] = vector(&mut self.heads[frame]);
            vectors[2 + blocks] = vector(&mut self.entries[..entries * ENTRY]);
            let skipped = usize::from(!self.linear);
            message.msg_hdr.msg_iov = vectors[skipped..].as_mut_ptr();
            message.msg_hdr.msg_iovlen = 3 + blocks - skipped;
        }
        let mut sent = 0;
        while sent < frames {
            let rest = &mut messages[sent..frames];
            // SAFETY: the messages point to memory of `self` and `place`, both borrowed.
            sent += check(unsafe {
                libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            })? as usize;
        }
        Ok(())
    }

    fn fill(&mut self, place: &mut BlockMemory, frames: usize, content: Content) -> Result<()> {
        let Content { blocks, entries } = content;
        let ring = self.ring.as_mut().expect("a ring to fill");
        for _ in 0..frames {
            while !ring.ours(self.next) {
                std::hint::spin_loop();
            }
            let slot = ring.frame(self.next);
            let mut crc = Digest::new(CrcAlgorithm::Crc32Iscsi);
            let mut len = HEAD;
            for _ in 0..blocks {
                let block = place.block();
                crc.update(block);
                slot[len..len + block.len()].copy_from_slice(block);
                len += block.len();
            }
            slot[len..len + entries * ENTRY].copy_from_slice(&self.entries[..entries * ENTRY]);
            len += entries * ENTRY;
            describe(&mut self.heads[0], crc, content);
            slot[..HEAD].copy_from_slice(&self.heads[0]);
            ring.hand_over(self.next, len);
            self.next += 1;
        }
        flush(&self.socket)
    }
}

/// Makes the kernel send the frames in a TX ring.
pub(crate) fn flush(socket: &OwnedFd) -> Result<()> {
    // SAFETY: no memory is passed.
    let sent = unsafe { libc::send(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT) };
    check(sent as c_int).map(drop)
}

/// The receiving half of a method.
pub(crate) struct Receiver {
    socket: OwnedFd,
    placed: bool,
    ring: Option<Ring>,
    next: usize,
    heads: Vec<[u8; HEAD]>,
    buffers: Vec<u8>,
    vectors: Vec<[iovec; VECTORS]>,
    messages: Vec<mmsghdr>,
    /// Messages whose vectors were consumed by the last frames.
    used: usize,
}

impl Receiver {
    pub(crate) fn open(wire: Wire<'_>, input: In) -> Result<Self> {
        let Wire { interface, ethertype, frame_max } = wire;
        let socket = socket()?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(512 << 20))?;
        let ring = match input {
            In::Calls { .. } => None,
            In::Ring => Some(Ring::new(&socket, Way::In, RX_SLOTS, frame_max)?),
        };
        bind(&socket, interface, ethertype)?;
        let stride = frame_max.next_multiple_of(PAGE);
        let mut vectors = vec![[vector(&mut []); VECTORS]; BATCH];
        let messages = vectors
            .iter_mut()
            .map(|vectors| {
                let mut message = empty_message();
                message.msg_hdr.msg_iov = vectors.as_mut_ptr();
                message
            })
            .collect();
        Ok(Self {
            socket,
            placed: matches!(input, In::Calls { placed: true }),
            ring,
            next: 0,
            heads: vec![[0; HEAD]; BATCH],
            buffers: vec![0; stride * BATCH + PAGE],
            vectors,
            messages,
            used: BATCH,
        })
    }

    /// Receives waiting frames, of `blocks` blocks. Returns the number of their entries.
    pub(crate) fn receive(&mut self, place: &mut BlockMemory, blocks: usize) -> Result<usize> {
        if self.ring.is_some() { Ok(self.drain(place)) } else { self.call(place, blocks) }
    }

    fn drain(&mut self, place: &mut BlockMemory) -> usize {
        let ring = self.ring.as_mut().expect("a ring to drain");
        let mut entries = 0;
        for _ in 0..BATCH {
            if !ring.ours(self.next) {
                break;
            }
            let (head, payload) = ring.frame(self.next).split_at(HEAD);
            store(head, payload, place);
            entries += usize::from(head[21]);
            ring.hand_back(self.next);
            self.next += 1;
        }
        entries
    }

    fn call(&mut self, place: &mut BlockMemory, blocks: usize) -> Result<usize> {
        let Self { placed, heads, buffers, vectors, messages, .. } = self;
        let start = buffers.as_ptr().align_offset(PAGE);
        let stride = (buffers.len() - PAGE) / BATCH;
        let blocks = if *placed { blocks } else { 0 };
        for message in 0..self.used {
            let vectors = &mut vectors[message];
            vectors[0] = vector(&mut heads[message]);
            for at in 0..blocks {
                vectors[1 + at] = vector(place.block());
            }
            vectors[1 + blocks] = vector(&mut buffers[start + message * stride..][..stride]);
            messages[message].msg_hdr.msg_iovlen = 2 + blocks;
        }
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the messages point to memory of `self`, and of `place`, which lives as long as
        // its method.
        let received = check(unsafe {
            let (start, len) = (messages.as_mut_ptr(), messages.len() as u32);
            libc::recvmmsg(self.socket.as_raw_fd(), start, len, flags, ptr::null_mut())
        });
        self.used = match received {
            Ok(received) => received as usize,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => 0,
            Err(error) => return Err(error),
        };
        let mut entries = 0;
        for message in 0..self.used {
            let head = &heads[message];
            entries += usize::from(head[21]);
            if blocks == 0 {
                store(head, &buffers[start + message * stride..][..stride], place);
                continue;
            }
            let mut crc = Digest::new(CrcAlgorithm::Crc32Iscsi);
            for block in &vectors[message][1..=blocks] {
                // SAFETY: made from a block of `place` above, with no other reference now.
                crc.update(unsafe {
                    std::slice::from_raw_parts(block.iov_base.cast::<u8>(), block.iov_len)
                });
            }
            verify(head, crc);
        }
        Ok(entries)
    }
}

/// Checks a frame's blocks and copies each to its destination.
fn store(head: &[u8], payload: &[u8], place: &mut BlockMemory) {
    let mut crc = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for from in payload.chunks_exact(place.block).take(usize::from(head[20])) {
        crc.update(from);
        place.block().copy_from_slice(from);
    }
    verify(head, crc);
}

fn describe(head: &mut [u8; HEAD], crc: Digest, content: Content) {
    head[16..20].copy_from_slice(&(crc.finalize() as u32).to_le_bytes());
    head[20..22].copy_from_slice(&[content.blocks as u8, content.entries as u8]);
}

fn verify(head: &[u8], crc: Digest) {
    assert_eq!(head[16..20], (crc.finalize() as u32).to_le_bytes(), "a damaged frame");
}

pub(crate) fn socket() -> Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn bind(socket: &OwnedFd, interface: &str, ethertype: u16) -> Result<()> {
    let name = CString::new(interface)?;
    // SAFETY: a name that ends with a zero and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: all-zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = index as c_int;
    let len = size_of_val(&address) as u32;
    // SAFETY: the address is `len` bytes long and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

pub(crate) fn set<T>(socket: &OwnedFd, level: c_int, name: c_int, value: &T) -> Result<()> {
    let (value, len) = (ptr::from_ref(value).cast(), size_of::<T>() as u32);
    // SAFETY: the value is `len` bytes long and outlives the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) }).map(drop)
}

fn check(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn vector(bytes: &mut [u8]) -> iovec {
    iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

const fn empty_message() -> mmsghdr {
    // SAFETY: all-zero is a valid message: no name, no vectors, no control data.
    unsafe { mem::zeroed() }
}

/// Receives a frame, if there is one.
pub(crate) fn receive_one(socket: &OwnedFd, frame: &mut [u8]) -> Result<bool> {
    let (start, len) = (frame.as_mut_ptr().cast(), frame.len());
    // SAFETY: the kernel writes at most `len` bytes.
    let received = unsafe { libc::recv(socket.as_raw_fd(), start, len, libc::MSG_DONTWAIT) };
    match check(received as c_int) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        result => result.map(|_| true),
    }
}
