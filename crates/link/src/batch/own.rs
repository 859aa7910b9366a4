//! Memory of a batch for the frames that are copied into it.

use tyche_block::{Arena, Extent, PAGE};

use super::frame::{Refused, RxFrame};

/// Heads begin with one.
const CACHE_LINE: usize = 64;

/// Memory for copies.
pub(super) struct Own {
    heads: Extent,
    payloads: Extent,
    head_len: usize,
    payload_max: usize,
    /// The distances between heads and between payload areas, in bytes.
    head_stride: usize,
    stride: usize,
}

impl Own {
    /// Allocates the memory and touches it, so that no frame causes a page fault.
    pub(super) fn new(slots: usize, head_len: usize, payload_max: usize) -> Self {
        let stride = payload_max.max(1).next_multiple_of(PAGE);
        let head_stride = head_len.next_multiple_of(CACHE_LINE);
        let (heads, payloads) = (touched(slots * head_stride), touched(slots * stride));
        Self { heads, payloads, head_len, payload_max, head_stride, stride }
    }

    pub(super) fn frame(&self, slot: usize, len: usize) -> RxFrame<'_> {
        RxFrame {
            head: &self.heads[slot * self.head_stride..][..self.head_len],
            payload: &self.payloads[slot * self.stride..][..len],
        }
    }

    /// The places of head and payload of a slot.
    pub(super) fn places(&mut self, slot: usize) -> (&mut [u8], &mut [u8]) {
        let head = &mut self.heads[slot * self.head_stride..][..self.head_len];
        (head, &mut self.payloads[slot * self.stride..][..self.payload_max])
    }

    /// Copies a frame into a slot. Returns the length of its payload.
    pub(super) fn copy<'b>(
        &mut self,
        slot: usize,
        parts: impl IntoIterator<Item = &'b [u8]>,
    ) -> Result<usize, Refused> {
        let head_len = self.head_len;
        let (head, payload) = self.places(slot);
        let mut len = 0;
        for mut part in parts {
            if len < head_len {
                let (first, rest) = part.split_at(part.len().min(head_len - len));
                head[len..len + first.len()].copy_from_slice(first);
                len += first.len();
                part = rest;
            }
            if part.is_empty() {
                continue;
            }
            let Some(room) = payload.get_mut(len - head_len..len - head_len + part.len()) else {
                return Err(Refused::Long);
            };
            room.copy_from_slice(part);
            len += part.len();
        }
        len.checked_sub(head_len).ok_or(Refused::Short)
    }
}

/// Page-aligned memory of its own arena, touched.
fn touched(len: usize) -> Extent {
    let mut memory = Arena::new(len.div_ceil(PAGE)).alloc(len).expect("the arena is this long");
    memory.fill(0);
    memory
}
