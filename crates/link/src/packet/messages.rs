//! A batch in the form in which `sendmmsg` takes it, on a socket with `PACKET_VNET_HDR`.

use std::{mem, ptr};

use crate::batch::TxBatch;

/// Length of the `struct virtio_net_hdr` that precedes each frame, in the machine's byte order:
/// zeros, and at [`LINEAR_AT`] the least number of bytes for the kernel to put into the frame's
/// first buffer.
const VIRTIO: usize = 10;
const LINEAR_AT: std::ops::Range<usize> = 2..4;

/// The longest frame that is put into one buffer of the kernel, in bytes. By default the kernel
/// splits frames of a page and more into a small buffer and pages, which costs both sides more than
/// finding a larger buffer does, up to here (docs/measurements/packet-rings.md).
const LINEAR_MAX: usize = 16 << 10;

/// The `mmsghdr` array of a packet socket, with vectors and headers. Its memory is kept from batch
/// to batch; its pointers are good only as long as the batch that they were made for.
#[derive(Default)]
pub(super) struct Messages {
    headers: Vec<[u8; VIRTIO]>,
    /// `per_frame` for each message.
    vectors: Vec<libc::iovec>,
    per_frame: usize,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers inside point into memory of this value or are leftovers of an earlier
// batch, which nothing reads.
unsafe impl Send for Messages {}

impl Messages {
    /// Messages for so many frames with up to so many slices of data.
    fn new(frames: usize, slices_per_frame: usize) -> Self {
        // Header, front and tail have one each.
        let per_frame = slices_per_frame + 3;
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: all-zero is a valid `mmsghdr`: null pointers with zero lengths.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            headers: vec![[0; VIRTIO]; frames],
            vectors: vec![empty; frames * per_frame],
            per_frame,
            messages: vec![message; frames],
        }
    }

    /// The messages of a batch. They point to its frames, and so are good as long as it lives.
    pub(super) fn of(&mut self, batch: &TxBatch<'_>) -> &mut [libc::mmsghdr] {
        let slices = batch.slices_per_frame();
        if self.messages.len() < batch.len() || self.per_frame < slices + 3 {
            *self = Self::new(batch.capacity(), slices);
        }
        let Self { headers, vectors, per_frame, messages } = self;
        let vectors = vectors.chunks_exact_mut(*per_frame);
        let places = headers.iter_mut().zip(vectors).zip(messages.iter_mut());
        for (((header, vectors), message), frame) in places.zip(batch.frames()) {
            let linear = if frame.len() <= LINEAR_MAX { frame.len() as u16 } else { 0 };
            header[LINEAR_AT].copy_from_slice(&linear.to_ne_bytes());
            vectors[0] = vector(header);
            let mut count = 1;
            for part in frame.parts().filter(|part| !part.is_empty()) {
                vectors[count] = vector(part);
                count += 1;
            }
            message.msg_hdr.msg_iov = vectors.as_mut_ptr();
            message.msg_hdr.msg_iovlen = count as _;
        }
        &mut messages[..batch.len()]
    }
}

/// A vector for the kernel, which takes `*mut` but only reads what it sends.
fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: ptr::from_ref(bytes).cast_mut().cast(), iov_len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEAD, TxVectors};

    /// Reads frames as `sendmmsg` does: through the messages only, virtio headers apart.
    fn gather(messages: &mut Messages, batch: &TxBatch<'_>) -> Vec<(u16, Vec<u8>)> {
        let read = |message: &libc::mmsghdr| {
            let mut bytes = Vec::new();
            for part in 0..message.msg_hdr.msg_iovlen {
                // SAFETY: the message points to that many vectors of borrowed or own memory.
                bytes.extend_from_slice(unsafe {
                    let vector = &*message.msg_hdr.msg_iov.add(part);
                    std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len)
                });
            }
            let frame = bytes.split_off(VIRTIO);
            let linear = u16::from_ne_bytes(bytes[LINEAR_AT].try_into().unwrap());
            bytes[LINEAR_AT].fill(0);
            assert_eq!(bytes, [0; VIRTIO]);
            (linear, frame)
        };
        messages.of(batch).iter().map(read).collect()
    }

    #[test]
    fn messages_are_the_frames_that_are_left_each_behind_its_header() {
        let data: Vec<u8> = (0..200).collect();
        let (mut vectors, mut messages) = (TxVectors::new(4, 3), Messages::default());
        let mut batch = vectors.batch();
        batch.push(&[1; HEAD], [&data[..7], &data[100..], &data[50..51]], &[9; 300]);
        batch.push(&[2; HEAD], [&data[..]], &[]);
        batch.push(&[3; HEAD], [], &[8; 5]);
        batch.push(&[4; 20], [&data[..0]], &[]);
        let wanted = |batch: &TxBatch<'_>| {
            let frames = batch.frames().map(|frame| frame.parts().collect::<Vec<_>>().concat());
            frames.map(|frame| (frame.len() as u16, frame)).collect::<Vec<_>>()
        };
        assert_eq!(gather(&mut messages, &batch), wanted(&batch));
        batch.skip(3);
        assert_eq!(gather(&mut messages, &batch), [(20, vec![4; 20])]);
        assert!(gather(&mut messages, &vectors.batch()).is_empty());
    }

    #[test]
    fn frames_are_linear_up_to_a_length() {
        let data = vec![5; LINEAR_MAX];
        let (mut vectors, mut messages) = (TxVectors::new(2, 1), Messages::default());
        let mut batch = vectors.batch();
        batch.push(&[0; HEAD], [&data[HEAD..]], &[]);
        batch.push(&[0; HEAD], [&data[HEAD..]], &[7]);
        let linear = gather(&mut messages, &batch).into_iter().map(|(linear, _)| linear);
        assert_eq!(linear.collect::<Vec<_>>(), [LINEAR_MAX as u16, 0]);
    }
}
