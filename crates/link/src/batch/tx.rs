//! Frames to send.

use std::marker::PhantomData;
use std::ptr::NonNull;

use tyche_numa::Node;

use super::FRAMES_MAX;

/// The most bytes of a frame that are copied: those before and those behind its data.
pub const COPIED_MAX: usize = 1344;

/// Persistent storage for batches of frames to send. Allocated once, used for one [`TxBatch`] after
/// the other.
pub struct TxVectors {
    /// By frame, its copied parts one after the other: front, tail.
    copied: Vec<[u8; COPIED_MAX]>,
    lengths: Vec<Lengths>,
    /// By frame, what was written behind its front: see [`TxBatch::push_filled`]. Grows when it is
    /// first used.
    filled: Vec<Vec<u8>>,
    /// By frame, room for `per_frame` slices of data.
    slices: Vec<*const [u8]>,
    /// The places of the slices: see [`TxBatch::place`]. Grows when it is first used.
    places: Vec<u32>,
    per_frame: usize,
}

/// The lengths of a frame and its parts.
#[derive(Clone, Copy, Default)]
struct Lengths {
    front: usize,
    slices: usize,
    tail: usize,
    /// The whole frame.
    frame: usize,
    /// See [`TxBatch::limit_burst`].
    burst: u32,
    /// The region that the slices have places in.
    region: Option<u16>,
}

// SAFETY: outside of a batch, which borrows its data, nothing reads the pointers.
unsafe impl Send for TxVectors {}

impl TxVectors {
    /// The NUMA nodes of the storage, according to the kernel.
    pub fn memory_nodes(&self) -> Vec<Node> {
        let start = NonNull::from(&self.copied[..]);
        tyche_numa::nodes_of(start.cast(), size_of_val(&self.copied[..]))
    }

    /// Allocates storage for batches of up to `frames` frames with up to `slices_per_frame` slices
    /// of data each.
    ///
    /// # Panics
    /// If `frames` is 0 or more than [`FRAMES_MAX`], or a frame would exceed the kernel's limit of
    /// vectors.
    pub fn new(frames: usize, slices_per_frame: usize) -> Self {
        assert!((1..=FRAMES_MAX).contains(&frames), "a batch of {frames} frames");
        // The kernel takes as many vectors; a link may need one for itself.
        assert!(slices_per_frame <= FRAMES_MAX - 3, "{slices_per_frame} slices in a frame");
        Self {
            copied: vec![[0; COPIED_MAX]; frames],
            lengths: vec![Lengths::default(); frames],
            filled: vec![Vec::new(); frames],
            slices: vec![&raw const *<&[u8]>::default(); frames * slices_per_frame],
            places: Vec::new(),
            per_frame: slices_per_frame,
        }
    }

    /// The most frames that a batch takes.
    pub fn capacity(&self) -> usize {
        self.copied.len()
    }

    /// The most slices of data that a frame takes.
    pub fn slices_per_frame(&self) -> usize {
        self.per_frame
    }

    /// Begins an empty batch in this storage.
    pub fn batch(&mut self) -> TxBatch<'_> {
        TxBatch { storage: self, first: 0, end: 0, borrowed: PhantomData }
    }
}

impl std::fmt::Debug for TxVectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TxVectors({} frames)", self.capacity())
    }
}

/// Frames to send, with their data in the caller's memory.
///
/// The data is borrowed for as long as the batch lives, so it can neither change nor go away
/// before it is sent:
///
/// ```compile_fail,E0505
/// # use tyche_link::{TxVectors, HEAD};
/// let mut vectors = TxVectors::new(1, 1);
/// let data = vec![1; 100];
/// let mut batch = vectors.batch();
/// batch.push(&[0; HEAD], [&data[..]], &[]);
/// drop(data);
/// assert_eq!(batch.len(), 1);
/// ```
pub struct TxBatch<'a> {
    storage: &'a mut TxVectors,
    /// Frames before this one were skipped.
    first: usize,
    end: usize,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> TxBatch<'a> {
    /// Adds a frame that lies in one piece: its head, of `head_len` bytes, is the front.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn push_whole(&mut self, frame: &'a [u8], head_len: usize) {
        let (front, rest) = frame.split_at(frame.len().min(head_len));
        self.push(front, [rest], &[]);
    }

    /// Adds the frame `front` ++ `data` ++ `tail`. Front and tail are copied, the data is not. The
    /// Ethernet header is in the front: links look for it there.
    ///
    /// # Panics
    /// If the batch is full, there are more slices than the storage has room for, or front and tail
    /// are longer than [`COPIED_MAX`].
    pub fn push<I>(&mut self, front: &[u8], data: I, tail: &[u8])
    where
        I: IntoIterator<Item = &'a [u8]>,
    {
        assert!(self.room() > 0, "a batch takes {} frames", self.storage.capacity());
        let both = front.len() + tail.len();
        assert!(both <= COPIED_MAX, "{} + {} bytes", front.len(), tail.len());
        let TxVectors { copied, lengths, slices, per_frame, .. } = &mut *self.storage;
        let copied = &mut copied[self.end];
        copied[..front.len()].copy_from_slice(front);
        copied[front.len()..both].copy_from_slice(tail);
        let places = &mut slices[self.end * *per_frame..][..*per_frame];

        let (mut frame, mut slices) = (both, 0);
        for slice in data {
            assert!(slices < *per_frame, "a frame takes {per_frame} slices");
            places[slices] = slice;
            slices += 1;
            frame += slice.len();
        }
        let (front, tail) = (front.len(), tail.len());
        lengths[self.end] = Lengths { front, slices, tail, frame, burst: u32::MAX, region: None };
        self.end += 1;
    }

    /// Adds the frame `front` ++ the `len` bytes that `write` writes, into storage of the batch.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn push_filled(&mut self, front: &[u8], len: usize, write: impl FnOnce(&mut [u8])) {
        self.push(front, [], &[]);
        let TxVectors { lengths, filled, slices, per_frame, .. } = &mut *self.storage;
        let index = self.end - 1;
        let room = &mut filled[index];
        if room.len() < len {
            room.resize(len, 0);
        }
        write(&mut room[..len]);
        assert!(*per_frame > 0, "a frame takes no slices");
        slices[index * *per_frame] = &raw const room[..len];
        lengths[index].slices = 1;
        lengths[index].frame += len;
    }

    /// Limits the bytes that leave at once, as one train, with the last frame. Without it the link
    /// decides.
    ///
    /// # Panics
    /// If there is no frame.
    pub fn limit_burst(&mut self, bytes: u32) {
        assert!(!self.is_empty(), "no frame to limit");
        self.storage.lengths[self.end - 1].burst = bytes;
    }

    /// Says where each slice of the last frame belongs, in that region of its receiver. A link
    /// whose peer has [exposed](crate::Placement) the region may write them there, instead of into
    /// the frame.
    ///
    /// # Panics
    /// If there is no frame, or there are not as many places as slices.
    pub fn place(&mut self, region: u16, places: impl Iterator<Item = u32>) {
        assert!(!self.is_empty(), "no frame to place");
        let TxVectors { lengths, slices, places: room, per_frame, .. } = &mut *self.storage;
        room.resize(slices.len(), 0);
        let Lengths { slices, region: of_frame, .. } = &mut lengths[self.end - 1];
        let room = &mut room[(self.end - 1) * *per_frame..][..*slices];
        let count = room.iter_mut().zip(places).map(|(room, place)| *room = place).count();
        assert!(count == *slices, "{count} places of {slices} slices");
        *of_frame = Some(region);
    }

    /// The number of frames left to send.
    pub fn len(&self) -> usize {
        self.end - self.first
    }

    /// Whether no frame is left to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of frames that can still be pushed.
    pub fn room(&self) -> usize {
        self.storage.capacity() - self.end
    }

    /// The number of frames that the batch takes.
    pub(crate) fn capacity(&self) -> usize {
        self.storage.capacity()
    }

    /// The most slices of data that a frame takes.
    pub(crate) fn slices_per_frame(&self) -> usize {
        self.storage.slices_per_frame()
    }

    /// Removes the first `frames` frames, e.g. those that a link has sent, so that the rest can be
    /// sent again. Their room does not become free.
    ///
    /// # Panics
    /// If there are fewer frames.
    pub fn skip(&mut self, frames: usize) {
        assert!(frames <= self.len(), "skipping {frames} of {} frames", self.len());
        self.first += frames;
    }

    /// The frame at `index`, counted from the first that is left.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn frame(&self, index: usize) -> TxFrame<'_> {
        assert!(index < self.len(), "frame {index} of {}", self.len());
        let index = self.first + index;
        let TxVectors { copied, lengths, places, per_frame, .. } = &*self.storage;
        let Lengths { front, slices, tail, frame, burst, region } = lengths[index];
        let first = index * per_frame;
        TxFrame {
            copied: &copied[index][..front + tail],
            front,
            data: &self.storage.slices[first..][..slices],
            region,
            places: if region.is_some() { &places[first..][..slices] } else { &[] },
            len: frame,
            burst,
        }
    }

    /// All frames that are left, in order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = TxFrame<'_>> {
        (0..self.len()).map(|index| self.frame(index))
    }
}

impl std::fmt::Debug for TxBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TxBatch({} frames)", self.len())
    }
}

/// One frame of a [`TxBatch`], for links and wrappers that read it.
#[derive(Clone, Copy)]
pub struct TxFrame<'a> {
    /// Front and tail.
    copied: &'a [u8],
    /// Length of the front.
    front: usize,
    /// Of slices that the batch borrows, or of its own storage.
    data: &'a [*const [u8]],
    /// Of the slices, if they have some.
    region: Option<u16>,
    places: &'a [u32],
    len: usize,
    burst: u32,
}

impl<'a> TxFrame<'a> {
    /// Length of the frame in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty: it has a head")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The most bytes that may leave at once with it: [`TxBatch::limit_burst`].
    pub fn burst(&self) -> usize {
        self.burst as usize
    }

    /// The bytes before the data.
    pub fn front(&self) -> &'a [u8] {
        &self.copied[..self.front]
    }

    /// The slices of data between front and tail.
    pub fn data(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        // SAFETY: `push` made the pointer from a slice that the batch borrows, or `push_filled`
        // from storage of this frame, which does not change while it is in the batch; and `self`
        // borrows the batch.
        self.data.iter().map(|slice| unsafe { &**slice })
    }

    /// The region of its receiver that the slices have places in, if they have some.
    pub fn region(&self) -> Option<u16> {
        self.region
    }

    /// The places of the slices, as many as there are; none if they have none: [`TxBatch::place`].
    pub fn places(&self) -> &'a [u32] {
        self.places
    }

    /// The bytes behind the data.
    pub(crate) fn tail(&self) -> &'a [u8] {
        &self.copied[self.front..]
    }

    /// The whole frame, in order: front, data and tail; without data, front and tail as one part.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let front = if self.data.is_empty() { self.copied.len() } else { self.front };
        let (front, tail) = self.copied.split_at(front);
        [front].into_iter().chain(self.data()).chain([tail])
    }

    /// Appends the whole frame to `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.reserve(self.len);
        self.parts().for_each(|part| bytes.extend_from_slice(part));
    }
}

impl std::fmt::Debug for TxFrame<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TxFrame({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEAD;

    fn views(batch: &TxBatch<'_>) -> Vec<Vec<u8>> {
        let read = |frame: TxFrame<'_>| {
            let mut bytes = Vec::new();
            frame.append_to(&mut bytes);
            assert_eq!(bytes.len(), frame.len());
            bytes
        };
        batch.frames().map(read).collect()
    }

    #[test]
    fn a_frame_is_head_then_data_then_tail() {
        let data: Vec<u8> = (0..200).collect();
        let mut vectors = TxVectors::new(4, 3);
        let mut batch = vectors.batch();
        batch.push(&[1; HEAD], [&data[..7], &data[100..], &data[50..51]], &[9; COPIED_MAX - HEAD]);
        batch.push(&[2; HEAD], [&data[..]], &[]);
        batch.push(&[3; HEAD], [], &[8; 5]);
        batch.push(&[4; HEAD + 9], [&data[..0]], &[7]);
        let wanted = [
            [&[1; HEAD], &data[..7], &data[100..], &data[50..51], &[9; COPIED_MAX - HEAD]].concat(),
            [&[2; HEAD], &data[..]].concat(),
            [&[3; HEAD][..], &[8; 5]].concat(),
            [&[4; HEAD + 9][..], &[7]].concat(),
        ];
        assert_eq!(views(&batch), wanted);
        assert_eq!(batch.room(), 0);
    }

    #[test]
    fn a_frame_may_be_written_in_place() {
        let mut vectors = TxVectors::new(3, 1);
        for round in 1..4 {
            let mut batch = vectors.batch();
            let (long, short) = (vec![round; 9000], vec![round + 1; 10 * usize::from(round)]);
            batch.push_filled(&[1; HEAD], long.len(), |room| room.copy_from_slice(&long));
            batch.push(&[2; HEAD], [&long[..5]], &[]);
            batch.push_filled(&[3; HEAD], short.len(), |room| room.copy_from_slice(&short));
            let wanted = [
                [&[1; HEAD], &long[..]].concat(),
                [&[2; HEAD], &long[..5]].concat(),
                [&[3; HEAD], &short[..]].concat(),
            ];
            assert_eq!(views(&batch), wanted);
        }
    }

    #[test]
    fn data_is_not_copied() {
        let data = [5; 4096];
        let mut vectors = TxVectors::new(1, 1);
        let mut batch = vectors.batch();
        batch.push(&[0; HEAD], [&data[..]], &[]);
        let lent = batch.frame(0).data().next().unwrap();
        assert!(std::ptr::eq(lent, &data[..]));
    }

    #[test]
    fn places_are_those_of_their_frame() {
        let (data, mut vectors) = ([5; 100], TxVectors::new(3, 2));
        let mut batch = vectors.batch();
        batch.push(&[0; HEAD], [&data[..1], &data[1..]], &[]);
        batch.place(1, [7, 8].into_iter());
        batch.push(&[0; HEAD], [&data[..]], &[]);
        batch.push(&[0; HEAD], [&data[..]], &[]);
        batch.place(2, [9].into_iter());
        let places: Vec<_> = batch.frames().map(|frame| frame.places().to_vec()).collect();
        assert_eq!(places, [vec![7, 8], vec![], vec![9]]);
        let regions: Vec<_> = batch.frames().map(|frame| frame.region()).collect();
        assert_eq!(regions, [Some(1), None, Some(2)]);
        batch.skip(2);
        assert_eq!(batch.frame(0).places(), [9]);
    }

    #[test]
    #[should_panic(expected = "1 places of 2 slices")]
    fn each_slice_has_a_place() {
        let mut vectors = TxVectors::new(1, 2);
        let mut batch = vectors.batch();
        batch.push(&[0; HEAD], [&[1][..], &[2]], &[]);
        batch.place(1, [7].into_iter());
    }

    #[test]
    fn the_rest_after_a_partial_send_is_what_was_not_skipped() {
        let mut vectors = TxVectors::new(5, 0);
        let mut batch = vectors.batch();
        for index in 0..4 {
            batch.push(&[index; HEAD], [], &[]);
        }
        batch.skip(3);
        assert_eq!(views(&batch), [[3; HEAD]]);
        batch.push(&[4; HEAD], [], &[]);
        assert_eq!((batch.len(), batch.room()), (2, 0));
        assert_eq!(views(&batch), [[3; HEAD], [4; HEAD]]);
        batch.skip(2);
        assert!(batch.is_empty());
        assert!(views(&vectors.batch()).is_empty(), "a new batch starts empty");
    }

    #[test]
    #[should_panic(expected = "a frame takes 1 slices")]
    fn too_many_slices_panic() {
        TxVectors::new(1, 1).batch().push(&[0; HEAD], [&[1][..], &[2]], &[]);
    }

    #[test]
    #[should_panic(expected = "a batch takes 1 frames")]
    fn a_frame_too_many_panics() {
        let mut vectors = TxVectors::new(1, 1);
        let mut batch = vectors.batch();
        batch.push(&[0; HEAD], [], &[]);
        batch.skip(1);
        batch.push(&[0; HEAD], [], &[]);
    }

    #[test]
    #[should_panic(expected = "64 + 1281 bytes")]
    fn a_tail_too_long_panics() {
        TxVectors::new(1, 1).batch().push(&[0; HEAD], [], &[0; COPIED_MAX - HEAD + 1]);
    }
}
