//! Received frames.
//!
//! A frame lies in one of two places: in memory of the batch, after a copy by the link, or in
//! memory that a link lends until the batch is cleared or received into again, such as the ring of
//! a socket. Readers of the batch see no difference.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use std::{mem, slice};

use tyche_counters::counters;

use super::FRAMES_MAX;
use super::frame::{Refused, RxFrame};
use super::own::Own;
use crate::HEAD;

counters! {
    /// Received frames that never reached a batch.
    pub struct Malformed as "malformed_" {
        /// Frames dropped because they are shorter than their head, or than their own length.
        short: Counter in Frames,
        /// Frames dropped because they are longer than the room for one.
        long: Counter in Frames,
    }
}

impl Malformed {
    /// Counts a frame that a batch with room has refused.
    pub(crate) fn count(&mut self, refused: Refused) {
        match refused {
            Refused::Short => self.short += 1,
            Refused::Long => self.long += 1,
            Refused::Full => unreachable!("the batch has room"),
        }
    }
}

/// The owner of lent frames, to which they are returned.
pub(crate) trait Lender: Send + Sync {
    /// Ends the loan of the frames at these positions, in the lender's own numbering.
    fn give_back(&self, positions: Range<usize>);
}

/// Room for a number of frames, and the frames of the last [`receive`](crate::Link).
///
/// A batch has *slots*, one per frame. Slots with a frame come first in `order`, so frames can be
/// dropped and added without moving any bytes.
pub struct RxBatch {
    /// Allocated at the first copy: a batch of lent frames only needs none.
    own: Option<Own>,
    head_len: usize,
    payload_max: usize,
    /// A permutation of all slots; the first `count` of them hold frames.
    order: Vec<u16>,
    count: usize,
    /// By slot.
    places: Vec<FramePlace>,
    /// By slot: the frame's time in the kernel, if known.
    waited: Vec<Option<Duration>>,
    /// By slot: what is special about the frame.
    marks: Vec<Marks>,
    loans: Vec<Loan>,
}

/// What is special about a frame.
#[derive(Clone, Copy, Default)]
struct Marks {
    is_congested: bool,
    /// Bytes of data that the peer has placed where they belong.
    placed: u32,
}

/// The place of a frame.
#[derive(Clone, Copy)]
enum FramePlace {
    /// In the slot's own memory, with this payload length.
    Own(usize),
    /// At this address in the lender's memory, a head and a payload of this length.
    Lent(NonNull<u8>, usize),
}

/// Lent frames, to be given back.
struct Loan {
    lender: Arc<dyn Lender>,
    positions: Range<usize>,
}

// SAFETY: `places` points to memory of the lender, which may be used by all threads and is kept
// alive by the loan; nobody writes there until the loan is given back.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Room for `frames` frames with heads of [`HEAD`] bytes and payloads of up to `payload_max`
    /// bytes.
    ///
    /// # Panics
    /// If `frames` is 0 or more than [`FRAMES_MAX`].
    pub fn new(frames: usize, payload_max: usize) -> Self {
        Self::with_head(HEAD, frames, payload_max)
    }

    /// As [`new`](Self::new), with heads of another length.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn with_head(head_len: usize, frames: usize, payload_max: usize) -> Self {
        assert!((1..=FRAMES_MAX).contains(&frames), "a batch of {frames} frames");
        Self {
            own: None,
            head_len,
            payload_max,
            order: (0..frames).map(|slot| slot as u16).collect(),
            count: 0,
            places: vec![FramePlace::Own(0); frames],
            waited: vec![None; frames],
            marks: vec![Marks::default(); frames],
            loans: Vec::new(),
        }
    }

    /// An empty batch with room for the same.
    pub fn alike(&self) -> Self {
        Self::with_head(self.head_len, self.capacity(), self.payload_max)
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The most frames that fit.
    pub fn capacity(&self) -> usize {
        self.order.len()
    }

    /// Bytes of a frame's head; frames that are shorter do not fit.
    pub fn head_len(&self) -> usize {
        self.head_len
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
        match self.places[slot] {
            FramePlace::Own(len) => {
                self.own.as_ref().expect("copied frames have memory").frame(slot, len)
            }
            FramePlace::Lent(start, len) => {
                // SAFETY: the loan ends with `&mut self`, and so after `&self`.
                let frame = unsafe { lent(start, self.head_len + len) };
                let (head, payload) = frame.split_at(self.head_len);
                RxFrame { head, payload }
            }
        }
    }

    /// The time that the frame at `index` spent in the kernel before it was received, if the link
    /// [measures](crate::Link::stamp_arrivals) it.
    pub fn waited(&self, index: usize) -> Option<Duration> {
        self.waited[usize::from(self.order[index])]
    }

    /// Whether the network has marked the frame at `index` as congested (ECN), if the link is over
    /// IP.
    pub fn is_congested(&self, index: usize) -> bool {
        self.marks[usize::from(self.order[index])].is_congested
    }

    /// Marks the frame that was added last as congested.
    ///
    /// # Panics
    /// If the batch is empty.
    pub fn mark_congested(&mut self) {
        self.marks[usize::from(self.order[self.count - 1])].is_congested = true;
    }

    /// Bytes of data that belong to the frame at `index`, and are not in its payload: its peer has
    /// placed them where they belong ([`Placement`](crate::Placement)).
    pub fn placed(&self, index: usize) -> usize {
        self.marks[usize::from(self.order[index])].placed as usize
    }

    /// Notes that the peer has placed so many bytes of data of the frame that was added last.
    ///
    /// # Panics
    /// If the batch is empty.
    pub(crate) fn mark_placed(&mut self, len: u32) {
        self.marks[usize::from(self.order[self.count - 1])].placed = len;
    }

    /// All frames in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RxFrame<'_>> {
        (0..self.count).map(|index| self.frame(index))
    }

    /// Removes all frames and gives lent ones back, which frees their room in the kernel. Must be
    /// called after a batch is handled, before the sender is told to go on.
    pub fn clear(&mut self) {
        self.count = 0;
        self.give_back();
    }

    fn give_back(&mut self) {
        self.loans.drain(..).for_each(|Loan { lender, positions }| lender.give_back(positions));
    }

    /// Adds a copy of the frame that is the concatenation of `parts`.
    ///
    /// # Errors
    /// The reason why the frame does not fit; the batch is then unchanged.
    pub fn push<'b, I>(&mut self, parts: I) -> Result<(), Refused>
    where
        I: IntoIterator<Item = &'b [u8]>,
    {
        let Some(&slot) = self.order.get(self.count) else {
            return Err(Refused::Full);
        };
        let slot = usize::from(slot);
        let new = || Own::new(self.order.len(), self.head_len, self.payload_max);
        let len = self.own.get_or_insert_with(new).copy(slot, parts)?;
        self.keep_new(slot, FramePlace::Own(len), None);
        Ok(())
    }

    /// The slot of the next frame, and the bytes of its payload if it has `len` bytes.
    fn room_for(&self, len: usize) -> Result<(usize, usize), Refused> {
        let slot = *self.order.get(self.count).ok_or(Refused::Full)?;
        let len = len.checked_sub(self.head_len).ok_or(Refused::Short)?;
        if len > self.payload_max {
            return Err(Refused::Long);
        }
        Ok((usize::from(slot), len))
    }

    /// Adds a frame of `len` bytes that `write` writes: its head and its payload.
    ///
    /// # Errors
    /// The reason why the frame does not fit; the batch is then unchanged.
    pub(crate) fn push_with(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Refused> {
        let (slot, len) = self.room_for(len)?;
        let new = || Own::new(self.order.len(), self.head_len, self.payload_max);
        let (head, payload) = self.own.get_or_insert_with(new).places(slot);
        write(head, &mut payload[..len]);
        self.keep_new(slot, FramePlace::Own(len), None);
        Ok(())
    }

    /// Adds a frame of `len` bytes in place, which spent `waited` in the kernel.
    ///
    /// # Errors
    /// The reason why the frame does not fit; the batch is then unchanged.
    ///
    /// # Safety
    /// The `len` bytes at `start` are readable and not written, from now on until the loan that the
    /// caller [takes](Self::borrow_from) next is given back.
    pub(crate) unsafe fn lend(
        &mut self,
        start: NonNull<u8>,
        len: usize,
        waited: Option<Duration>,
    ) -> Result<(), Refused> {
        let (slot, len) = self.room_for(len)?;
        self.keep_new(slot, FramePlace::Lent(start, len), waited);
        Ok(())
    }

    /// Records a lender and the positions of all frames that it has lent since the batch was
    /// cleared.
    pub(crate) fn borrow_from(&mut self, lender: Arc<dyn Lender>, positions: Range<usize>) {
        self.loans.push(Loan { lender, positions });
    }

    /// Whether the lender at that address is the last that was recorded.
    pub(crate) fn borrows_from(&self, lender: *const ()) -> bool {
        self.loans.last().is_some_and(|it| Arc::as_ptr(&it.lender).cast() == lender)
    }

    /// Copies lent frames and gives them back, so that the batch can be kept for any time.
    pub fn settle(&mut self) {
        if self.loans.is_empty() {
            return;
        }
        let new = || Own::new(self.order.len(), self.head_len, self.payload_max);
        let own = self.own.get_or_insert_with(new);
        for &slot in &self.order[..self.count] {
            let slot = usize::from(slot);
            if let FramePlace::Lent(start, len) = self.places[slot] {
                // SAFETY: the loan is given back below.
                let frame = unsafe { lent(start, self.head_len + len) };
                let copied = own.copy(slot, [frame]);
                self.places[slot] = FramePlace::Own(copied.expect("a lent frame fits its slot"));
            }
        }
        self.give_back();
    }

    /// Keeps the frames for which `keep` is true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(RxFrame<'_>) -> bool) {
        let before = mem::take(&mut self.count);
        for index in 0..before {
            if keep(self.at(index)) {
                self.order.swap(self.count, index);
                self.count += 1;
            }
        }
    }

    fn keep_new(&mut self, slot: usize, place: FramePlace, waited: Option<Duration>) {
        self.places[slot] = place;
        self.waited[slot] = waited;
        self.marks[slot] = Marks::default();
        self.count += 1;
    }
}

impl Drop for RxBatch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::fmt::Debug for RxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RxBatch({} of {} frames)", self.count, self.capacity())
    }
}

/// The frame of a [`FramePlace::Lent`].
///
/// # Safety
/// There is a loan of the frame, which outlives the result: that long, by the promise of
/// [`lend`](RxBatch::lend)'s caller, the bytes do not change.
unsafe fn lent<'a>(start: NonNull<u8>, len: usize) -> &'a [u8] {
    // SAFETY: the promise of this function's caller.
    unsafe { slice::from_raw_parts(start.as_ptr(), len) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tyche_block::PAGE;

    use super::*;

    fn bytes(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed)).collect()
    }

    /// Lends frames that exist for ever, and records the returned ones.
    #[derive(Default)]
    struct Frames(Mutex<Vec<(usize, usize)>>);

    impl Lender for Frames {
        fn give_back(&self, positions: Range<usize>) {
            self.0.lock().unwrap().push((positions.start, positions.end));
        }
    }

    fn lend(batch: &mut RxBatch, frame: Vec<u8>, waited: Option<Duration>) -> Result<(), Refused> {
        let frame: &'static [u8] = frame.leak();
        // SAFETY: leaked memory does not change.
        unsafe { batch.lend(NonNull::from(frame).cast(), frame.len(), waited) }
    }

    fn contents(batch: &RxBatch) -> Vec<Vec<u8>> {
        batch.iter().map(|frame| [frame.head, frame.payload].concat()).collect()
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
    fn lent_frames_lie_where_they_were_and_stand_beside_copied_ones() {
        let mut batch = RxBatch::new(4, 100);
        lend(&mut batch, bytes(64, 1), None).unwrap();
        batch.push([&bytes(80, 2)[..]]).unwrap();
        let long: &'static [u8] = bytes(164, 3).leak();
        let waited = Some(Duration::from_micros(7));
        // SAFETY: leaked memory does not change.
        unsafe { batch.lend(NonNull::from(long).cast(), long.len(), waited) }.unwrap();
        assert_eq!(contents(&batch), [bytes(64, 1), bytes(80, 2), bytes(164, 3)]);
        assert_eq!((batch.waited(1), batch.waited(2)), (None, waited));
        assert!(std::ptr::eq(batch.frame(2).payload, &long[HEAD..]));
        // One slot is left.
        lend(&mut batch, bytes(65, 4), None).unwrap();
        assert_eq!(lend(&mut batch, bytes(65, 5), None), Err(Refused::Full));
        batch.retain(|frame| frame.len() % 2 == 0);
        batch.push([&bytes(99, 6)[..]]).unwrap();
        assert_eq!(
            contents(&batch),
            [bytes(64, 1), bytes(80, 2), bytes(164, 3), bytes(99, 6)],
            "a slot that is used again has only the new frame"
        );
    }

    #[test]
    fn lent_frames_that_are_too_short_or_too_long_are_refused() {
        let mut batch = RxBatch::new(4, 100);
        assert_eq!(lend(&mut batch, bytes(63, 1), None), Err(Refused::Short));
        assert_eq!(lend(&mut batch, bytes(165, 1), None), Err(Refused::Long));
        assert!(batch.is_empty());
    }

    #[test]
    fn a_loan_is_given_back_once_and_no_sooner_than_its_frames_are_forgotten() {
        let frames = Arc::new(Frames::default());
        let given_back = || frames.0.lock().unwrap().clone();
        let mut batch = RxBatch::new(4, 100);
        lend(&mut batch, bytes(70, 1), None).unwrap();
        batch.borrow_from(frames.clone(), 3..5);
        batch.retain(|_| false);
        assert!(given_back().is_empty());
        batch.clear();
        batch.clear();
        assert_eq!(given_back(), [(3, 5)]);
        lend(&mut batch, bytes(70, 1), None).unwrap();
        batch.borrow_from(frames.clone(), 5..6);
        drop(batch);
        assert_eq!(given_back(), [(3, 5), (5, 6)]);
    }

    #[test]
    fn a_settled_batch_owes_nothing_and_has_the_same_frames() {
        let frames = Arc::new(Frames::default());
        let mut batch = RxBatch::new(4, 100);
        for seed in 1..4 {
            lend(&mut batch, bytes(70, seed), None).unwrap();
        }
        batch.borrow_from(frames.clone(), 0..3);
        batch.retain(|frame| frame.head[0] != bytes(1, 2)[0]);
        batch.push([&bytes(80, 9)[..]]).unwrap();
        let before = contents(&batch);
        assert!(frames.0.lock().unwrap().is_empty());
        batch.settle();
        assert_eq!(*frames.0.lock().unwrap(), [(0, 3)]);
        assert_eq!(contents(&batch), before);
        assert_eq!(batch.frame(0).payload.as_ptr().addr() % PAGE, 0);
        batch.settle();
        drop(batch);
        assert_eq!(frames.0.lock().unwrap().len(), 1);
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
    fn heads_have_the_length_asked_for() {
        for head_len in [1, 14, 52, 64, 65, 200] {
            let mut batch = RxBatch::with_head(head_len, 3, 10);
            assert_eq!(batch.push([&bytes(head_len - 1, 1)[..]]), Err(Refused::Short));
            assert_eq!(batch.push([&bytes(head_len + 11, 1)[..]]), Err(Refused::Long));
            let frames = [bytes(head_len, 2), bytes(head_len + 9, 3), bytes(head_len + 10, 4)];
            frames.iter().for_each(|frame| batch.push([&frame[..]]).unwrap());
            for (received, sent) in batch.iter().zip(&frames) {
                assert_eq!((received.head, received.payload), sent.split_at(head_len));
                assert_eq!(received.payload.as_ptr().addr() % PAGE, 0);
            }
        }
    }

    #[test]
    fn a_batch_without_payload_takes_heads() {
        let mut batch = RxBatch::new(1, 0);
        batch.push([&bytes(64, 1)[..]]).unwrap();
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
