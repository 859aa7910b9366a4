//! Frames to send.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use tyche_numa::Node;

use super::FRAMES_MAX;
use crate::HEAD;

/// The most bytes of a frame that are copied: those before and those behind its data.
pub const COPIED_MAX: usize = 1344;

/// Length of the `struct virtio_net_hdr` that precedes each frame on a socket with
/// `PACKET_VNET_HDR`, in the machine's byte order: zeros, and at [`LINEAR_AT`] the least number of
/// bytes for the kernel to put into the frame's first buffer.
const VIRTIO: usize = 10;
const LINEAR_AT: std::ops::Range<usize> = 2..4;

/// The longest frame that is put into one buffer of the kernel, in bytes. By default the kernel
/// splits frames of a page and more into a small buffer and pages, which costs both sides more than
/// finding a larger buffer does, up to here (docs/measurements/packet-rings.md).
const LINEAR_MAX: usize = 16 << 10;

/// A frame's copied parts one after the other: virtio header, front, tail.
type Copied = [u8; VIRTIO + COPIED_MAX];

/// Persistent storage for batches of frames to send, which the kernel reads. Allocated once, used
/// for one [`TxBatch`] after the other.
pub struct TxVectors {
    copied: Vec<Copied>,
    lengths: Vec<Lengths>,
    /// `per_frame` vectors for every frame.
    vectors: Vec<libc::iovec>,
    per_frame: usize,
    /// In cells, for the kernel writes to these although it only sends.
    messages: Vec<UnsafeCell<libc::mmsghdr>>,
}

/// The lengths of a frame and its parts.
#[derive(Clone, Copy, Default)]
struct Lengths {
    front: usize,
    slices: usize,
    tail: usize,
    /// The whole frame.
    frame: usize,
}

// SAFETY: the raw pointers inside point into the storage's own vectors, which are never resized,
// or are leftovers of an earlier batch that nothing reads.
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
        let per_frame = slices_per_frame + 2;
        assert!(per_frame <= FRAMES_MAX, "{slices_per_frame} slices in a frame");
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut vectors = vec![empty; frames * per_frame];
        let messages = vectors
            .chunks_exact_mut(per_frame)
            .map(|vectors| {
                // SAFETY: all-zero is a valid `mmsghdr`: null pointers with zero lengths.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = vectors.as_mut_ptr();
                UnsafeCell::new(message)
            })
            .collect();
        Self {
            copied: vec![[0; VIRTIO + COPIED_MAX]; frames],
            lengths: vec![Lengths::default(); frames],
            vectors,
            per_frame,
            messages,
        }
    }

    /// The most frames that a batch takes.
    pub fn capacity(&self) -> usize {
        self.messages.len()
    }

    /// The most slices of data that a frame takes.
    pub fn slices_per_frame(&self) -> usize {
        self.per_frame - 2
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
    /// Adds the frame `front` ++ `data` ++ `tail`. Front and tail are copied, the data is not.
    ///
    /// # Panics
    /// If the batch is full, there are more slices than the storage has room for, the front is
    /// shorter than [`HEAD`], or front and tail are longer than [`COPIED_MAX`].
    pub fn push<I>(&mut self, front: &[u8], data: I, tail: &[u8])
    where
        I: IntoIterator<Item = &'a [u8]>,
    {
        assert!(self.room() > 0, "a batch takes {} frames", self.storage.capacity());
        let both = front.len() + tail.len();
        assert!(
            front.len() >= HEAD && both <= COPIED_MAX,
            "{} + {} bytes",
            front.len(),
            tail.len()
        );
        let TxVectors { copied, lengths, vectors, per_frame, messages } = &mut *self.storage;
        let copied = &mut copied[self.end];
        let (before, behind) = (VIRTIO + front.len(), VIRTIO + both);
        copied[VIRTIO..before].copy_from_slice(front);
        copied[before..behind].copy_from_slice(tail);
        let vectors = &mut vectors[self.end * *per_frame..][..*per_frame];

        let mut frame = both;
        let mut slices = 0;
        for slice in data {
            assert!(slices + 2 < *per_frame, "a frame takes {} slices", *per_frame - 2);
            vectors[slices + 1] = vector(slice);
            slices += 1;
            frame += slice.len();
        }
        let linear = if frame <= LINEAR_MAX { frame as u16 } else { 0 };
        copied[LINEAR_AT].copy_from_slice(&linear.to_ne_bytes());
        // Without data the copied parts are one run of bytes and travel as one vector.
        let used = if slices == 0 {
            vectors[0] = vector(&copied[..behind]);
            1
        } else {
            vectors[0] = vector(&copied[..before]);
            vectors[slices + 1] = vector(&copied[before..behind]);
            slices + 1 + usize::from(!tail.is_empty())
        };
        messages[self.end].get_mut().msg_hdr.msg_iovlen = used as _;
        lengths[self.end] = Lengths { front: front.len(), slices, tail: tail.len(), frame };
        self.end += 1;
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
        let Lengths { front, slices, tail, frame } = self.storage.lengths[index];
        let copied = &self.storage.copied[index];
        TxFrame {
            front: &copied[VIRTIO..][..front],
            data: &self.storage.vectors[index * self.storage.per_frame + 1..][..slices],
            tail: &copied[VIRTIO + front..][..tail],
            len: frame,
        }
    }

    /// All frames that are left, in order.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = TxFrame<'_>> {
        (0..self.len()).map(|index| self.frame(index))
    }

    /// The messages for `sendmmsg` on a socket with `PACKET_VNET_HDR`.
    pub(crate) fn messages(&self) -> &[UnsafeCell<libc::mmsghdr>] {
        &self.storage.messages[self.first..self.end]
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
    front: &'a [u8],
    /// Only ever made from `&'a [u8]`, in `TxBatch::push`.
    data: &'a [libc::iovec],
    tail: &'a [u8],
    len: usize,
}

impl<'a> TxFrame<'a> {
    /// Length of the frame in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty: it has a head")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes before the data, at least the first [`HEAD`] of the frame.
    pub fn front(&self) -> &'a [u8] {
        self.front
    }

    /// The slices of data between front and tail.
    pub fn data(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.data.iter().map(|vector| {
            // SAFETY: `push` made the vector from a slice that the batch borrows, and `self`
            // borrows the batch.
            unsafe { slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len) }
        })
    }

    /// Front, data and tail: the whole frame, in order.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        [self.front].into_iter().chain(self.data()).chain([self.tail])
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

/// A vector for the kernel, which takes `*mut` but only reads frames that it sends.
fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads frames as `sendmmsg` does: through the messages only, virtio headers apart.
    fn gather(batch: &TxBatch<'_>) -> Vec<Vec<u8>> {
        let read = |cell: &UnsafeCell<libc::mmsghdr>| {
            // SAFETY: nobody writes to the message now.
            let header = unsafe { (*cell.get()).msg_hdr };
            let mut bytes = Vec::new();
            for part in 0..header.msg_iovlen {
                // SAFETY: the message points to `msg_iovlen` vectors of borrowed or own memory.
                bytes.extend_from_slice(unsafe {
                    let vector = &*header.msg_iov.add(part);
                    slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len)
                });
            }
            let frame = bytes.split_off(VIRTIO);
            let mut header = [0; VIRTIO];
            if frame.len() <= LINEAR_MAX {
                header[LINEAR_AT].copy_from_slice(&(frame.len() as u16).to_ne_bytes());
            }
            assert_eq!(bytes, header);
            frame
        };
        batch.messages().iter().map(read).collect()
    }

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
        assert_eq!(gather(&batch), wanted);
        assert_eq!(views(&batch), wanted);
        assert_eq!(batch.room(), 0);
    }

    #[test]
    fn frames_are_linear_up_to_a_length() {
        let data = vec![5; LINEAR_MAX];
        let mut vectors = TxVectors::new(2, 1);
        let mut batch = vectors.batch();
        batch.push(&[0; HEAD], [&data[HEAD..]], &[]);
        batch.push(&[0; HEAD], [&data[HEAD..]], &[7]);
        assert_eq!(gather(&batch), views(&batch));
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
    fn the_rest_after_a_partial_send_is_what_was_not_skipped() {
        let mut vectors = TxVectors::new(5, 0);
        let mut batch = vectors.batch();
        for index in 0..4 {
            batch.push(&[index; HEAD], [], &[]);
        }
        batch.skip(3);
        assert_eq!(gather(&batch), [[3; HEAD]]);
        batch.push(&[4; HEAD], [], &[]);
        assert_eq!((batch.len(), batch.room()), (2, 0));
        assert_eq!(views(&batch), [[3; HEAD], [4; HEAD]]);
        batch.skip(2);
        assert!(batch.is_empty());
        assert!(gather(&vectors.batch()).is_empty(), "a new batch starts empty");
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
