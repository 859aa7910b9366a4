//! How many frames a socket's receive buffer holds.
//!
//! The kernel does not count a frame's bytes but its *true size*: all memory that the frame keeps
//! busy, descriptor and unused ends of its buffers included. It drops a frame when what is queued
//! has reached the limit, which is *twice* what `SO_RCVBUF` was set to.
//!
//! [`true_size`] was fitted to what `SO_MEMINFO` says after one frame of each length from 64 to
//! 65,549 bytes over veth (Linux 6.18, x86-64), where it is the sender that allocates:
//!
//! | frame | true size | what it is |
//! |---|---|---|
//! | up to 240 | 832 | descriptor 256, small buffer 576 |
//! | up to 688 / 1,712 / 3,760 / 4,079 | 256 + 1 / 2 / 4 / 8 KiB | one buffer of a power of two: headroom 16, the frame, trailer 320 |
//! | longer | 832 + the rest after byte 14 in whole pages | Ethernet header apart, data in pages |
//!
//! Behind a network card the receiving driver allocates. Drivers give short frames half a page
//! and long ones whole pages; so less than half a page is never assumed here, which makes the
//! figure for short frames over veth up to 2.8 times too low. Too low costs throughput only when
//! frames are that short; too high would cost dropped frames.

use tyche_block::PAGE;

/// The kernel's descriptor of a frame (`struct sk_buff`, rounded up by its allocator).
const DESCRIPTOR: usize = 256;
/// What every buffer ends with (`struct skb_shared_info`).
const TRAILER: usize = 320;
/// Room for the link layer in front of the frame.
const HEADROOM: usize = 16;
/// The smallest true size assumed: a descriptor and half a page.
const LEAST: usize = DESCRIPTOR + PAGE / 2;
/// What a frame in pages costs besides its pages.
const PAGED: usize = 832;
/// Bytes of the Ethernet header, which never lie in the pages.
const ETHERNET: usize = 14;

/// Bytes of kernel memory that a queued frame of `frame_len` bytes counts for.
pub(super) fn true_size(frame_len: usize) -> usize {
    if HEADROOM + frame_len < PAGE {
        ((HEADROOM + frame_len + TRAILER).next_power_of_two() + DESCRIPTOR).max(LEAST)
    } else {
        (frame_len - ETHERNET).next_multiple_of(PAGE) + PAGED
    }
}

/// How many frames of `frame_len` bytes fit where the kernel granted `limit` (what
/// `getsockopt(SO_RCVBUF)` says). The kernel takes the frame that crosses the limit, too; that
/// one is left as a margin.
pub(super) fn capacity(limit: usize, frame_len: usize) -> usize {
    limit / true_size(frame_len)
}

/// The value of [`PacketOptions::receive_buffer`](super::PacketOptions) with which `frames`
/// frames of `frame_len` bytes fit.
pub fn receive_buffer_for(frames: usize, frame_len: usize) -> usize {
    frames.saturating_mul(true_size(frame_len)).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_what_was_measured() {
        // (first frame length of the step, true size), as the kernel reported.
        let measured = [
            (1713, 4352),
            (3761, 8448),
            (4080, 4928),
            (4111, 9024),
            (8207, 13120),
            (12303, 17216),
            (16399, 21312),
            (61455, 66368),
        ];
        for (first, size) in measured {
            assert_eq!(true_size(first), size, "{first} bytes");
            assert_ne!(true_size(first - 1), size, "{} bytes", first - 1);
        }
        assert_eq!((true_size(689), true_size(1514)), (2304, 2304));
        assert_eq!(true_size(9014), 13120);
        assert_eq!(true_size(64), LEAST);
    }

    #[test]
    fn the_buffer_asked_for_holds_the_frames_it_was_asked_for() {
        for frame_len in [64, 1514, 4079, 4080, 9014, 65549] {
            for frames in [1, 7, 1024] {
                let buffer = receive_buffer_for(frames, frame_len);
                assert_eq!(capacity(2 * buffer, frame_len), frames);
            }
        }
        assert_eq!(receive_buffer_for(usize::MAX, 64), usize::MAX / 2 + 1);
    }
}
