//! Frames to be sent, as values, and how much fits into one.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tyche_crypto::FrameKey;
use tyche_wire::{
    BOUND, ChannelId, Checksums, Content, Control, Data, ENTRIES_MAX, ENTRY_LEN, ETHERTYPE,
    Encoded, Encoder, Entry, HEAD_LEN, Header, Kind, Mac, PAGE_LEN, Sealed, TAG_LEN,
};

/// One frame to be sent. The caller owns it and passes it to `poll_transmit` repeatedly, so that
/// nothing is allocated per frame; an [`Encoder`] writes its bytes.
#[derive(Debug)]
pub struct Outgoing {
    /// The address that the frame goes to.
    pub destination: Mac,
    /// Our index of the channel that the frame belongs to, if any.
    pub channel: Option<ChannelId>,
    /// The most bytes that may leave at once with it, as one train, so that a slow path is not held
    /// up for long.
    pub burst: u32,
    /// The header, without lengths and checksums.
    pub header: Header,
    /// The payload, without the data section.
    pub content: Content,
    /// The parts of the data section: one for each [`Entry::Data`], in order.
    pub parts: ArrayVec<Part, ENTRIES_MAX>,
    /// The key that the payload is sealed with, if it is.
    pub key: Option<Arc<FrameKey>>,
}

/// The bytes of a frame.
#[derive(Debug)]
pub enum Written<'e, 'd> {
    /// They lie in pieces.
    Clear(&'e Encoded<'e, 'd>),
    /// They are to be sealed into memory of the sender.
    Sealed(SealedFrame<'e, 'd>),
}

impl Written<'_, '_> {
    /// Appends the whole frame to `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Clear(frame) => {
                frame.pieces().for_each(|piece| bytes.extend_from_slice(piece));
            }
            Self::Sealed(frame) => {
                bytes.extend_from_slice(frame.head());
                let begin = bytes.len();
                bytes.resize(begin + frame.payload_len(), 0);
                frame.seal(&mut bytes[begin..]);
            }
        }
    }
}

/// A frame whose payload is to be sealed.
#[derive(Debug)]
pub struct SealedFrame<'e, 'd> {
    frame: &'e Encoded<'e, 'd>,
    key: &'e FrameKey,
    packet: u64,
}

impl SealedFrame<'_, '_> {
    /// The headers, which stay in the clear.
    pub fn head(&self) -> &[u8] {
        &self.frame.front[..HEAD_LEN]
    }

    /// Bytes of the sealed payload.
    pub fn payload_len(&self) -> usize {
        self.frame.len() - HEAD_LEN + TAG_LEN
    }

    /// Seals the payload. Not for two different frames of a channel with the same number.
    ///
    /// # Panics
    /// If `out` has not the [length](Self::payload_len) of the payload.
    pub fn seal(&self, out: &mut [u8]) {
        let Encoded { front, data, entries } = *self.frame;
        let (head, body) = front.split_at(HEAD_LEN);
        if body.is_empty() {
            return self.key.seal(self.packet, &head[BOUND], data, entries, out);
        }
        let mut pieces = ArrayVec::<&[u8], { ENTRIES_MAX + 1 }>::new();
        pieces.push(body);
        pieces.extend(data.iter().copied());
        self.key.seal(self.packet, &head[BOUND], &pieces, entries, out);
    }
}

/// Bytes of a request's data, in memory of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The request. From a session, it is the number of the operation ([`OpId`](crate::OpId)); from
    /// a listener, the slot of the channel.
    pub request: u32,
    /// First byte within the request's data.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// First byte within the `damq` of its channel.
    pub place: u32,
}

impl Outgoing {
    /// An empty frame, to be filled by `poll_transmit`.
    pub fn new() -> Self {
        Self {
            destination: Mac([0; 6]),
            channel: None,
            burst: u32::MAX,
            header: Header::new(Kind::Keepalive),
            content: Content::Empty,
            parts: ArrayVec::new(),
            key: None,
        }
    }

    /// Writes the frame, and returns what `take` makes of it. `data` finds the bytes of a part;
    /// `src` and `ethertype` are those of the link.
    pub fn encode<'d, T>(
        &self,
        encoder: &mut Encoder,
        (src, ethertype): (Mac, u16),
        data: impl FnMut(&Part) -> &'d [u8],
        take: impl FnOnce(&Written<'_, 'd>) -> T,
    ) -> T {
        let ethernet = (self.destination, src, ethertype);
        self.encode_data(encoder, ethernet, self.parts.iter().map(data), take)
    }

    fn encode_data<'d, T>(
        &self,
        encoder: &mut Encoder,
        ethernet: (Mac, Mac, u16),
        data: impl Iterator<Item = &'d [u8]>,
        take: impl FnOnce(&Written<'_, 'd>) -> T,
    ) -> T {
        let Self { header, content, key, .. } = self;
        match key {
            None => {
                let take = |frame: &Encoded<'_, 'd>| take(&Written::Clear(frame));
                encoder.encode(ethernet, header, content, &Checksums, data, take)
            }
            Some(key) => {
                let packet = header.packet.0;
                let take = |frame: &Encoded<'_, 'd>| {
                    take(&Written::Sealed(SealedFrame { frame, key, packet }))
                };
                encoder.encode(ethernet, header, content, &Sealed, data, take)
            }
        }
    }

    /// The bytes of the frame with this data section, for simulations and tests, which keep frames.
    pub fn to_bytes(&self, src: Mac, data: &[u8]) -> Vec<u8> {
        let (mut encoder, ethernet) = (Encoder::new(), (self.destination, src, ETHERTYPE));
        let data = (!data.is_empty()).then_some(data);
        let take = |frame: &Written<'_, '_>| {
            let mut bytes = Vec::new();
            frame.append_to(&mut bytes);
            bytes
        };
        self.encode_data(&mut encoder, ethernet, data.into_iter(), take)
    }

    /// The places of its parts in the `damq`, if the peer may have them placed there: nothing
    /// covers the data but the link's own checksum.
    pub fn places(&self) -> Option<impl Iterator<Item = u32>> {
        let may_be_placed =
            self.header.kind == Kind::Data && !self.header.covers_data() && self.key.is_none();
        may_be_placed.then(|| self.parts.iter().map(|part| part.place))
    }

    /// Turns it into a frame without data, in the clear.
    pub(crate) fn set(&mut self, to: Mac, header: Header, content: Content) {
        self.key = None;
        self.set_sealed(to, header, content);
    }

    /// The same, but leaves the key as it is.
    pub(crate) fn set_sealed(&mut self, to: Mac, header: Header, content: Content) {
        self.destination = to;
        self.channel = None;
        self.burst = u32::MAX;
        self.header = header;
        self.content = content;
        self.parts.clear();
    }

    /// Turns it into a frame outside of channels, whose header has only its kind.
    pub fn set_control(&mut self, to: Mac, control: Control) {
        self.set(to, Header::new(control.kind()), Content::Control(control));
    }

    /// Fills in `parts` from the entries. `place` returns the request of a part, the first byte of
    /// the slot's data within that request, and their first page in the `damq`.
    pub(crate) fn place_data(&mut self, place: impl Fn(&Data) -> (u32, u32, u32)) {
        let Self { content, parts, .. } = self;
        parts.clear();
        for entry in content.entries() {
            if let Entry::Data(data) = entry {
                let (request, base, page) = place(data);
                let place = page * PAGE_LEN as u32 + data.offset;
                parts.push(Part { request, offset: base + data.offset, len: data.len, place });
            }
        }
    }
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new()
    }
}

/// How much fits into a frame of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Bytes of data and entries together.
    payload: usize,
    /// Bytes that data are cut into: a page if one fits, else 64. A power of two.
    unit: usize,
}

impl Capacity {
    pub(crate) fn new(frame_len: usize) -> Self {
        let payload = frame_len - HEAD_LEN;
        let unit = if payload >= PAGE_LEN + 2 * ENTRY_LEN { PAGE_LEN } else { 64 };
        Self { payload, unit }
    }

    /// Bytes of the longest frame.
    pub(crate) fn frame_len(&self) -> usize {
        HEAD_LEN + self.payload
    }

    /// Whether another entry fits behind `entries` entries and `data` bytes.
    pub(crate) fn fits_entry(&self, entries: usize, data: usize) -> bool {
        entries < ENTRIES_MAX && data + (entries + 1) * ENTRY_LEN <= self.payload
    }

    /// How many of the `remaining` bytes of a request fit behind `entries` entries and `data`
    /// bytes, together with the entry that describes them; `None` if none do. A part that does not
    /// end its request is a multiple of the unit, so that the next one is aligned.
    pub(crate) fn chunk(&self, entries: usize, data: usize, remaining: u32) -> Option<u32> {
        if !self.fits_entry(entries, data) || data & (self.unit - 1) != 0 {
            return None;
        }
        let room = self.payload - data - (entries + 1) * ENTRY_LEN;
        if remaining as usize <= room {
            return Some(remaining);
        }
        let chunk = room & !(self.unit - 1);
        (chunk > 0).then_some(chunk as u32)
    }

    /// As [`chunk`](Self::chunk), but if `others` wait to share the frame, a place is left for one
    /// of them: whole units would leave none in frames of some lengths, those of 1500 bytes among
    /// them.
    pub(crate) fn chunk_beside(
        &self,
        others: bool,
        entries: usize,
        data: usize,
        remaining: u32,
    ) -> Option<u32> {
        let chunk = self.chunk(entries + usize::from(others), data, remaining);
        // Data go on in the shortest of frames, too.
        let alone = || self.chunk(entries, data, remaining).filter(|_| data == 0);
        chunk.or_else(alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumbo_frames_carry_whole_pages() {
        let capacity = Capacity::new(9014);
        assert_eq!(capacity.chunk(1, 0, 1 << 20), Some(8192));
        assert_eq!(capacity.chunk(1, 0, 4096), Some(4096));
        assert_eq!(capacity.chunk(2, 4096, 1 << 20), Some(4096));
        assert_eq!(capacity.chunk(3, 8192, 4096), None);
        assert_eq!(capacity.chunk(2, 512, 4096), None, "would not be aligned");
        assert!(capacity.fits_entry(30, 8192) && !capacity.fits_entry(31, 8192));
    }

    #[test]
    fn one_page_needs_three_frames_at_mtu_1500() {
        let capacity = Capacity::new(1514);
        let first = capacity.chunk(1, 0, 4096).unwrap();
        let second = capacity.chunk(0, 0, 4096 - first).unwrap();
        assert_eq!((first, second), (1344, 1408));
        let third = capacity.chunk(0, 0, 4096 - first - second).unwrap();
        assert_eq!(first + second + third, 4096);
        assert!(capacity.fits_entry(1, third as usize), "the completion rides along");
    }

    #[test]
    fn the_largest_frame_carries_fifteen_pages() {
        assert_eq!(Capacity::new(65549).chunk(1, 0, 1 << 20), Some(15 * 4096));
    }
}
