//! The receive ring of a socket (`PACKET_RX_RING`, TPACKET_V2): memory shared with the kernel, so
//! that a frame is received without a system call.
//!
//! A ring is a number of *slots*, each with room for a header and a frame. The kernel fills them
//! round robin. The status word of a slot names its owner:
//!
//! ```text
//!            ┌──────────────── give_back ───────────────┐
//!            ▼                                          │
//!        [ KERNEL ] ── a frame came ──► [ USER ] ── take ──► [ LENT ]
//! ```
//!
//! If the next slot is not the kernel's, frames are dropped and counted (`PACKET_STATISTICS`). So a
//! ring holds as many frames as it has slots, however long they are.
//!
//! The kernel reserves room in front of frames (`PACKET_RESERVE`), so much that payloads start with
//! a page. docs/measurements/packet-rings.md shows the gain of a ring, and the reason for its size.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{tpacket_req, tpacket2_hdr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tyche_block::PAGE;
use tyche_numa::Node;

use crate::batch::Lender;

/// Bytes of a ring: more would not stay in the caches, for the slots are used round robin.
const RING_BYTES: usize = 4 << 20;
/// The most slots of a ring that needs no more than [`RING_BYTES`].
const SLOTS_MAX: usize = 512;
/// Bytes of a block: the unit in which the kernel allocates the ring.
const BLOCK_BYTES: usize = 1 << 20;
/// The longest payload of a slot, in bytes: no Ethernet device has a greater MTU.
const PAYLOAD_MAX: usize = 64 << 10;

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;
/// A frame's offset in a slot without a reserve (`tpacket_rcv` in the kernel).
const UNRESERVED: usize =
    (libc::TPACKET2_HDRLEN + 16).next_multiple_of(libc::TPACKET_ALIGNMENT) - ETHERNET;

/// The status of a lent slot, whose frame is being read: neither the kernel's nor new.
const LENT: u32 = libc::TP_STATUS_COPY;

/// A frame in a slot that has been taken.
pub(super) struct Taken {
    pub(super) start: NonNull<u8>,
    /// Bytes of the frame in the slot.
    pub(super) len: usize,
    /// Whether the frame was cut to fit.
    pub(super) truncated: bool,
    /// The time of arrival, by the real-time clock.
    pub(super) arrived: Duration,
}

/// The shape of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a frame's head, before the payload.
    head_len: usize,
    /// Bytes of a slot: whole pages, the first for the header and the frame's head.
    slot: usize,
    slots_per_block: usize,
    blocks: usize,
}

impl Shape {
    /// The shape for frames of up to `frame_len` bytes, of which `head_len` are the head, with at
    /// least `slots_min` slots, whatever memory they take.
    ///
    /// # Panics
    /// If the head does not fit into a page with the kernel's header.
    pub(super) fn new(head_len: usize, frame_len: usize, slots_min: usize) -> Self {
        assert!(head_len <= PAGE - UNRESERVED, "a head of {head_len} bytes");
        let payload = frame_len.saturating_sub(head_len).clamp(1, PAYLOAD_MAX);
        let slot = PAGE + payload.next_multiple_of(PAGE);
        let slots = (RING_BYTES / slot).min(SLOTS_MAX).max(slots_min);
        let blocks = slots.div_ceil(BLOCK_BYTES / slot);
        Self { head_len, slot, slots_per_block: slots.div_ceil(blocks), blocks }
    }

    /// The shape for frames of up to `frame_len` bytes, with no fewer slots than this one: peers
    /// may have so many frames in flight.
    pub(super) fn grown(&self, frame_len: usize) -> Self {
        Self::new(self.head_len, frame_len, self.slots())
    }

    /// The number of slots, and so of frames that the ring holds.
    pub(super) fn slots(&self) -> usize {
        self.slots_per_block * self.blocks
    }

    /// The longest frame that fits, in bytes.
    pub(super) fn frame_len_max(&self) -> usize {
        self.head_len + self.slot - PAGE
    }

    /// The reserve, in bytes, for payloads to start with a slot's second page.
    pub(super) fn reserve(&self) -> usize {
        PAGE - UNRESERVED - self.head_len
    }

    /// The kernel's parameters for the ring.
    pub(super) fn request(&self) -> tpacket_req {
        tpacket_req {
            tp_block_size: (self.slots_per_block * self.slot) as u32,
            tp_block_nr: self.blocks as u32,
            tp_frame_size: self.slot as u32,
            tp_frame_nr: self.slots() as u32,
        }
    }
}

/// A ring's memory. *Positions* increase for ever; the slot is the position modulo the number of
/// slots.
pub(super) struct Ring {
    start: NonNull<u8>,
    shape: Shape,
}

// SAFETY: the mapping is the ring's own. Threads agree on a slot's owner by its status, and access
// only slots of their own.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Maps the ring of `socket`.
    pub(super) fn map(socket: BorrowedFd<'_>, shape: Shape) -> io::Result<Self> {
        let len = shape.slot * shape.slots();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            mmap(ptr::null_mut(), len, protection, flags, socket, 0)?
        };
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at 0");
        Ok(Self { start, shape })
    }

    /// The NUMA nodes of its memory.
    pub(super) fn memory_nodes(&self) -> Vec<Node> {
        tyche_numa::nodes_of(self.start.cast(), self.shape.slot * self.shape.slots())
    }

    fn header(&self, position: usize) -> NonNull<tpacket2_hdr> {
        // SAFETY: within the mapping.
        unsafe { self.start.add(position % self.shape.slots() * self.shape.slot).cast() }
    }

    fn status(&self, position: usize) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned, and only accessed as an atomic.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header(position).as_ptr()).tp_status) }
    }

    /// Takes the frame at `position` if one has come. It stays until it is given back.
    pub(super) fn take(&self, position: usize) -> Option<Taken> {
        let status = self.status(position);
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        status.store(LENT, Ordering::Relaxed);
        let slot = self.header(position);
        // SAFETY: the kernel has written the header, and does not touch it until it gets the slot
        // back.
        let header = unsafe { slot.read() };
        let (offset, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        assert!(offset + len <= self.shape.slot, "the kernel filled more than a slot");
        Some(Taken {
            // SAFETY: within the slot.
            start: unsafe { slot.cast::<u8>().add(offset) },
            len,
            truncated: header.tp_len > header.tp_snaplen,
            arrived: Duration::new(header.tp_sec.into(), header.tp_nsec),
        })
    }
}

impl Lender for Ring {
    fn give_back(&self, positions: Range<usize>) {
        for position in positions {
            self.status(position).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let len = self.shape.slot * self.shape.slots();
        // SAFETY: the ring's own mapping; readers of its frames keep the ring alive.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEAD;

    #[test]
    fn shapes_have_slots_for_the_longest_frames_and_stay_in_bounds() {
        for (frame_len, slot, slots) in [
            (0, 8 << 10, 512),
            (1514, 8 << 10, 512),
            (4160, 8 << 10, 512),
            (4161, 12 << 10, 345),
            (9014, 16 << 10, 256),
            (65549, 68 << 10, 135),
            (usize::MAX, 68 << 10, 135),
        ] {
            let shape = Shape::new(HEAD, frame_len, 128);
            assert_eq!((shape.slot, shape.slots()), (slot, slots), "{frame_len} bytes");
            assert!(shape.frame_len_max() >= frame_len.min(HEAD + PAYLOAD_MAX));
            let request = shape.request();
            assert_eq!(request.tp_block_size as usize % slot, 0);
            assert!(request.tp_block_size as usize <= BLOCK_BYTES);
        }
    }

    #[test]
    fn a_shape_has_as_many_slots_as_are_asked_for() {
        for frame_len in [1514, 9014, 65549] {
            let shape = Shape::new(HEAD, frame_len, 4096);
            assert!((4096..4200).contains(&shape.slots()), "{}", shape.slots());
            assert!(shape.request().tp_block_size as usize <= BLOCK_BYTES);
        }
    }

    #[test]
    fn a_grown_shape_holds_as_many_longer_frames() {
        for (from, to) in [(1514, 1514), (1514, 9014), (9014, 65549), (1514, 65549)] {
            let (before, fresh) = (Shape::new(HEAD, from, 128), Shape::new(HEAD, to, 128));
            let grown = before.grown(to);
            assert!(grown.slots() >= before.slots(), "{from} to {to} bytes");
            assert_eq!(grown.frame_len_max(), fresh.frame_len_max());
            assert!(grown.request().tp_block_size as usize <= BLOCK_BYTES);
        }
    }
}
