//! Frames that came.

use std::time::Duration;
use std::{mem, ptr};

use tyche_block::{Arena, Extent, PAGE};

use super::FRAMES_MAX;
use super::arrivals::Arrivals;
use crate::HEAD;

/// One received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxFrame<'a> {
    /// The first 64 bytes.
    pub head: &'a [u8; HEAD],
    /// What follows; starts at a page boundary.
    pub payload: &'a [u8],
}

impl RxFrame<'_> {
    /// Bytes in the frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty: it has a head")]
    pub fn len(&self) -> usize {
        HEAD + self.payload.len()
    }
}

/// Why a frame does not go into an [`RxBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is shorter than a head.
    Short,
    /// Its payload is longer than the batch's payload area.
    Long,
    /// The batch has no room left.
    Full,
}

/// Room for a number of frames, and the frames that came in the last [`receive`](crate::Link).
///
/// The memory is split into *slots*, one a frame. Slots that hold a frame come first in `order`;
/// so frames can be dropped and added without moving any bytes.
pub struct RxBatch {
    heads: Extent,
    payloads: Extent,
    /// Bytes from one payload area to the next.
    stride: usize,
    payload_max: usize,
    /// A permutation of all slots; the first `count` of them hold frames.
    order: Vec<u16>,
    count: usize,
    /// Whether `order` is 0, 1, 2 and so on.
    in_order: bool,
    /// Payload bytes by slot.
    lengths: Vec<usize>,
    /// By slot: the vector of head and payload, and the message that points to it.
    #[expect(dead_code, reason = "the kernel reads it, through `messages`")]
    vectors: Vec<[libc::iovec; 2]>,
    messages: Vec<libc::mmsghdr>,
    /// When the frames arrived, once a link has been asked for that.
    arrivals: Option<Arrivals>,
}

// SAFETY: the raw pointers inside `vectors` and `messages` point into memory that the batch owns
// (extents, vectors and boxes that are never resized), so they move to another thread with it.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Takes the memory for `frames` frames with payloads of up to `payload_max` bytes, and
    /// touches it, so that no frame pays for a page fault.
    ///
    /// # Panics
    /// If `frames` is 0 or more than [`FRAMES_MAX`].
    pub fn new(frames: usize, payload_max: usize) -> Self {
        assert!((1..=FRAMES_MAX).contains(&frames), "a batch of {frames} frames");
        let stride = payload_max.max(1).next_multiple_of(PAGE);
        let mut heads = own_memory(frames * HEAD);
        let mut payloads = own_memory(frames * stride);
        let mut vectors: Vec<[libc::iovec; 2]> = heads
            .as_chunks_mut::<HEAD>()
            .0
            .iter_mut()
            .zip(payloads.chunks_exact_mut(stride))
            .map(|(head, payload)| {
                [vector(head.as_mut_slice()), vector(&mut payload[..payload_max])]
            })
            .collect();
        let messages = vectors.iter_mut().map(message).collect();
        Self {
            heads,
            payloads,
            stride,
            payload_max,
            order: (0..frames).map(|slot| slot as u16).collect(),
            count: 0,
            in_order: true,
            lengths: vec![0; frames],
            vectors,
            messages,
            arrivals: None,
        }
    }

    /// Frames there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Frames there is room for in all.
    pub fn capacity(&self) -> usize {
        self.order.len()
    }

    /// The longest payload that fits, in bytes.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// The frame at `index`, in order of arrival.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn frame(&self, index: usize) -> RxFrame<'_> {
        assert!(index < self.count, "frame {index} of {}", self.count);
        self.at(index)
    }

    fn at(&self, index: usize) -> RxFrame<'_> {
        let slot = usize::from(self.order[index]);
        let start = slot * self.stride;
        RxFrame {
            head: &self.heads.as_chunks().0[slot],
            payload: &self.payloads[start..start + self.lengths[slot]],
        }
    }

    /// How long the frame at `index` lay in the kernel before it was received, where the link has
    /// been asked to [find that out](crate::Link::stamp_arrivals).
    pub fn waited(&self, index: usize) -> Option<Duration> {
        self.arrivals.as_ref()?.waited(usize::from(self.order[index]))
    }

    /// All frames in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RxFrame<'_>> {
        (0..self.count).map(|index| self.frame(index))
    }

    /// Forgets all frames.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a copy of the frame that `parts` make up one after the other.
    ///
    /// # Errors
    /// Says why the frame does not go in; the batch is then as it was.
    pub fn push<'b, I>(&mut self, parts: I) -> Result<(), Refused>
    where
        I: IntoIterator<Item = &'b [u8]>,
    {
        let Some(&slot) = self.order.get(self.count) else {
            return Err(Refused::Full);
        };
        let slot = usize::from(slot);
        let head = &mut self.heads.as_chunks_mut::<HEAD>().0[slot];
        let payload = &mut self.payloads[slot * self.stride..][..self.payload_max];
        let mut len = 0;
        for mut part in parts {
            if len < HEAD {
                let (first, rest) = part.split_at(part.len().min(HEAD - len));
                head[len..len + first.len()].copy_from_slice(first);
                len += first.len();
                part = rest;
            }
            if part.is_empty() {
                continue;
            }
            let Some(room) = payload.get_mut(len - HEAD..len - HEAD + part.len()) else {
                return Err(Refused::Long);
            };
            room.copy_from_slice(part);
            len += part.len();
        }
        self.lengths[slot] = len.checked_sub(HEAD).ok_or(Refused::Short)?;
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.forget(slot);
        }
        self.count += 1;
        Ok(())
    }

    /// Keeps the frames that `keep` says, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(RxFrame<'_>) -> bool) {
        let before = mem::take(&mut self.count);
        for index in 0..before {
            if keep(self.at(index)) {
                self.keep(index);
            }
        }
    }

    /// Where `recvmmsg` shall put frames: every slot, in order. The batch is empty afterwards
    /// until [`accept`](Self::accept).
    pub(crate) fn messages(&mut self) -> &mut [libc::mmsghdr] {
        if self.arrivals.take().is_some() {
            Arrivals::take_back(&mut self.messages);
        }
        self.empty_slots()
    }

    /// The same, and has the kernel say when each frame arrives.
    pub(crate) fn stamped_messages(&mut self) -> &mut [libc::mmsghdr] {
        let slots = self.capacity();
        self.arrivals.get_or_insert_with(|| Arrivals::new(slots)).lend(&mut self.messages);
        self.empty_slots()
    }

    fn empty_slots(&mut self) -> &mut [libc::mmsghdr] {
        self.count = 0;
        if !self.in_order {
            self.order.sort_unstable();
            self.in_order = true;
        }
        &mut self.messages
    }

    /// Takes over what the kernel said of the first `received` slots since
    /// [`stamped_messages`](Self::stamped_messages).
    pub(crate) fn take_stamps(&mut self, received: usize) {
        let arrivals = self.arrivals.as_mut().expect("the messages have asked for stamps");
        arrivals.take(&self.messages[..received]);
    }

    /// Takes over what `recvmmsg` put into the first `received` slots. Returns how many frames
    /// were left out because they were too short, and how many because they were too long.
    pub(crate) fn accept(&mut self, received: usize) -> (u64, u64) {
        assert!(received <= self.capacity(), "the kernel filled more slots than there are");
        let (mut short, mut long) = (0, 0);
        for slot in 0..received {
            match self.verdict(slot) {
                Some(Refused::Short) => short += 1,
                Some(_) => long += 1,
                None => {
                    self.lengths[slot] = self.messages[slot].msg_len as usize - HEAD;
                    self.keep(slot);
                }
            }
        }
        (short, long)
    }

    /// Makes the frame at `index` the next one that is kept. The frames between are given up.
    fn keep(&mut self, index: usize) {
        if index != self.count {
            self.order.swap(self.count, index);
            self.in_order = false;
        }
        self.count += 1;
    }

    /// Why the message in `slot` is no frame, if it is none.
    fn verdict(&self, slot: usize) -> Option<Refused> {
        let message = &self.messages[slot];
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return Some(Refused::Long);
        }
        let len = message.msg_len as usize;
        assert!(len <= HEAD + self.payload_max, "the kernel wrote past the payload area");
        (len < HEAD).then_some(Refused::Short)
    }
}

impl std::fmt::Debug for RxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RxBatch({} of {} frames)", self.count, self.capacity())
    }
}

/// Page-aligned memory of its own arena, touched.
fn own_memory(len: usize) -> Extent {
    let mut memory = Arena::new(len.div_ceil(PAGE)).alloc(len).expect("the arena is this long");
    memory.fill(0);
    memory
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn message(vector: &mut [libc::iovec; 2]) -> libc::mmsghdr {
    // SAFETY: all-zero is a valid `mmsghdr`: null pointers with zero lengths.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_iov = ptr::from_mut(vector).cast();
    message.msg_hdr.msg_iovlen = vector.len() as _;
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed)).collect()
    }

    /// Does what `recvmmsg` does: writes through the vectors only.
    fn scatter(batch: &mut RxBatch, slot: usize, frame: &[u8]) {
        let message = &mut batch.messages()[slot];
        let mut rest = frame;
        for part in 0..message.msg_hdr.msg_iovlen {
            // SAFETY: the batch points to `msg_iovlen` vectors of memory that it owns.
            let room = unsafe {
                let vector = &*message.msg_hdr.msg_iov.add(part);
                std::slice::from_raw_parts_mut(vector.iov_base.cast::<u8>(), vector.iov_len)
            };
            let (now, later) = rest.split_at(rest.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            rest = later;
        }
        message.msg_len = (frame.len() - rest.len()) as u32;
        message.msg_hdr.msg_flags = if rest.is_empty() { 0 } else { libc::MSG_TRUNC };
    }

    fn contents(batch: &RxBatch) -> Vec<Vec<u8>> {
        batch.iter().map(|frame| [frame.head.as_slice(), frame.payload].concat()).collect()
    }

    #[test]
    fn payloads_are_page_aligned_and_heads_cache_line_aligned() {
        let mut batch = RxBatch::new(5, PAGE + 1);
        for seed in 0..5 {
            batch.push([&bytes(HEAD + 10, seed)[..]]).unwrap();
        }
        for frame in batch.iter() {
            assert_eq!(frame.payload.as_ptr().addr() % PAGE, 0);
            assert_eq!(frame.head.as_ptr().addr() % HEAD, 0);
        }
    }

    #[test]
    fn frames_that_are_too_short_or_too_long_are_left_out_and_counted() {
        let mut batch = RxBatch::new(6, 100);
        let lens = [63, 64, 164, 165, 0, 65];
        for (slot, len) in lens.into_iter().enumerate() {
            scatter(&mut batch, slot, &bytes(len, slot as u8));
        }
        assert_eq!(batch.accept(6), (2, 1));
        assert_eq!(contents(&batch), [bytes(64, 1), bytes(164, 2), bytes(65, 5)]);
        // The three slots left are usable, and only these.
        for seed in 10..13 {
            batch.push([&bytes(80, seed)[..]]).unwrap();
        }
        assert_eq!(batch.push([&bytes(80, 13)[..]]), Err(Refused::Full));
        assert_eq!(contents(&batch)[..3], [bytes(64, 1), bytes(164, 2), bytes(65, 5)]);
        assert_eq!(contents(&batch)[3..], [bytes(80, 10), bytes(80, 11), bytes(80, 12)]);
    }

    #[test]
    fn a_batch_received_again_has_only_the_new_frames() {
        let mut batch = RxBatch::new(4, 64);
        for slot in 0..4 {
            scatter(&mut batch, slot, &bytes(70 + slot, 1));
        }
        batch.accept(4);
        batch.retain(|frame| frame.len() % 2 == 1);
        assert_eq!(contents(&batch), [bytes(71, 1), bytes(73, 1)]);
        scatter(&mut batch, 0, &bytes(99, 2));
        assert!(batch.is_empty(), "lending the slots to the kernel empties the batch");
        batch.accept(1);
        assert_eq!(contents(&batch), [bytes(99, 2)]);
        batch.messages();
        batch.accept(0);
        assert!(batch.is_empty());
    }

    #[test]
    fn push_joins_parts_wherever_they_are_cut() {
        let frame = bytes(HEAD + 50, 3);
        for cut in 0..=frame.len() {
            for second in cut..=frame.len() {
                let mut batch = RxBatch::new(1, 50);
                let parts = [&frame[..cut], &frame[cut..second], &frame[second..]];
                batch.push(parts).unwrap();
                assert_eq!(contents(&batch), [&frame[..]]);
            }
        }
    }

    #[test]
    fn push_refuses_and_leaves_the_batch_as_it_was() {
        let mut batch = RxBatch::new(2, 10);
        batch.push([&bytes(74, 1)[..]]).unwrap();
        assert_eq!(batch.push([&bytes(63, 2)[..]]), Err(Refused::Short));
        assert_eq!(batch.push([&bytes(75, 2)[..]]), Err(Refused::Long));
        assert_eq!(batch.push([&bytes(64, 2)[..], &bytes(11, 2)]), Err(Refused::Long));
        assert_eq!(contents(&batch), [bytes(74, 1)]);
        batch.push([&bytes(64, 4)[..]]).unwrap();
        assert_eq!(contents(&batch), [bytes(74, 1), bytes(64, 4)]);
    }

    #[test]
    fn a_batch_without_payload_takes_heads() {
        let mut batch = RxBatch::new(1, 0);
        scatter(&mut batch, 0, &bytes(64, 1));
        assert_eq!(batch.accept(1), (0, 0));
        assert!(batch.frame(0).payload.is_empty());
    }

    #[test]
    #[should_panic(expected = "frame 1 of 1")]
    fn a_frame_that_is_not_there_panics() {
        let mut batch = RxBatch::new(4, 10);
        batch.push([&bytes(64, 1)[..]]).unwrap();
        batch.frame(1);
    }
}
