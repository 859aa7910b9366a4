//! TPACKET_V2: a ring of slots that a socket and its user share.
//!
//! A slot is a header and a frame. Its status word names its owner; the owner hands it over with a
//! release store, and the other side polls with an acquire load. Receiving needs no system call;
//! sending needs one for any number of frames.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{ptr, slice};

use libc::{SOL_PACKET, c_uint, tpacket_req, tpacket2_hdr};

use crate::io::{HEAD, set};

/// The least overhead of the kernel between the start of a received slot and the frame.
const OVERHEAD: usize = 128;
const PAGE: usize = 4096;

/// The direction of frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

/// A ring of a socket. Positions increase for ever; the slot is the position modulo the ring's
/// length.
pub(crate) struct Ring {
    way: Way,
    start: *mut u8,
    slot: usize,
    slots: usize,
}

// SAFETY: the pointer is to a mapping that the ring owns and that every thread may use.
unsafe impl Send for Ring {}

impl Ring {
    /// Gives the socket a ring for frames of up to `frame_max` bytes.
    pub(crate) fn new(socket: &OwnedFd, way: Way, slots: usize, frame_max: usize) -> Result<Self> {
        set(socket, SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        let mut slot = (OVERHEAD + frame_max).next_multiple_of(PAGE);
        if way == Way::In {
            // The kernel puts the frame where the IP header of an Ethernet frame is at a multiple
            // of 16 after its own header, plus the reserve: so data start with a page.
            let unreserved = (libc::TPACKET2_HDRLEN + 16).next_multiple_of(16) - 14 + HEAD;
            let reserve = (PAGE - unreserved % PAGE) as c_uint;
            set(socket, SOL_PACKET, libc::PACKET_RESERVE, &reserve)?;
            slot = (PAGE + frame_max - HEAD).next_multiple_of(PAGE);
        }
        let request = tpacket_req {
            tp_block_size: slot as c_uint,
            tp_block_nr: slots as c_uint,
            tp_frame_size: slot as c_uint,
            tp_frame_nr: slots as c_uint,
        };
        let name = if way == Way::In { libc::PACKET_RX_RING } else { libc::PACKET_TX_RING };
        set(socket, SOL_PACKET, name, &request)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), slot * slots, protection, flags, socket.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Self { way, start: start.cast(), slot, slots })
    }

    fn header(&self, position: usize) -> *mut tpacket2_hdr {
        // SAFETY: within the mapping.
        unsafe { self.start.add(position % self.slots * self.slot).cast() }
    }

    fn status(&self, position: usize) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, and accessed as an atomic by both sides.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header(position)).tp_status) }
    }

    /// Whether the slot is ours: it has a received frame, or room for one to send.
    pub(crate) fn ours(&self, position: usize) -> bool {
        let status = self.status(position).load(Ordering::Acquire);
        match self.way {
            Way::In => status & libc::TP_STATUS_USER != 0,
            Way::Out => status == libc::TP_STATUS_AVAILABLE,
        }
    }

    /// The frame in a slot of ours, or the room for one.
    pub(crate) fn frame(&mut self, position: usize) -> &mut [u8] {
        assert!(self.ours(position), "the slot is the kernel's");
        let header = self.header(position);
        // SAFETY: the slot is ours until it is handed over, which takes `&mut self` again; the
        // kernel puts the frame within the slot.
        unsafe {
            let (offset, len) = match self.way {
                Way::In => (usize::from((*header).tp_mac), (*header).tp_snaplen as usize),
                Way::Out => {
                    let offset = size_of::<tpacket2_hdr>().next_multiple_of(16);
                    (offset, self.slot - offset)
                }
            };
            assert!(offset + len <= self.slot, "a frame within its slot");
            slice::from_raw_parts_mut(header.cast::<u8>().add(offset), len)
        }
    }

    /// Hands the first `len` bytes of the slot's frame to the kernel, to send at the next call.
    pub(crate) fn hand_over(&mut self, position: usize, len: usize) {
        // SAFETY: the slot is ours, so nobody else accesses its header.
        unsafe { (*self.header(position)).tp_len = len as u32 };
        self.status(position).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
    }

    /// Returns the slot to the kernel for another frame.
    pub(crate) fn hand_back(&mut self, position: usize) {
        self.status(position).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the ring's own mapping; no reference to it is left.
        unsafe { libc::munmap(self.start.cast(), self.slot * self.slots) };
    }
}
