//! What the core hands out to be sent, and how much of it fits into a frame.

use tyche_wire::{
    ChannelId, Control, ENTRIES_MAX, ENTRY_LEN, Entry, HEAD_LEN, Header, Kind, Mac, PAGE_LEN,
};

use crate::echo::OutgoingEcho;

/// One frame to be sent. The caller owns it and passes it to `poll_transmit` again and again, so
/// that nothing is allocated per frame.
///
/// The frame's data section consists of the ranges that its [`Entry::Data`] entries name, in
/// their order; the caller knows where each request's data lie.
#[derive(Debug)]
pub struct Outgoing {
    /// Where the frame goes.
    pub destination: Mac,
    /// Our index of the channel that the frame belongs to, whose requests its entries name.
    pub channel: Option<ChannelId>,
    /// Everything but the lengths and checksums.
    pub header: Header,
    /// For the kinds that carry entries.
    pub entries: Vec<Entry>,
    /// For the kinds that carry a body.
    pub control: Option<Control>,
    /// For an echo.
    pub echo: Option<OutgoingEcho>,
}

impl Outgoing {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            destination: Mac([0; 6]),
            channel: None,
            header: Header::new(Kind::Keepalive),
            entries: Vec::with_capacity(ENTRIES_MAX),
            control: None,
            echo: None,
        }
    }

    /// Makes it a frame without entries.
    pub(crate) fn set_control(&mut self, to: Mac, header: Header, control: Option<Control>) {
        self.destination = to;
        self.channel = None;
        self.header = header;
        self.control = control;
        self.echo = None;
        self.entries.clear();
    }

    /// Makes it an echo.
    pub(crate) fn set_echo(&mut self, to: Mac, header: Header, echo: OutgoingEcho) {
        self.set_control(to, header, None);
        self.echo = Some(echo);
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
    /// What data are cut into: whole pages where one fits, else 64 bytes. A power of two.
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

    /// How many of `remaining` bytes of one request fit behind `entries` entries and `data`
    /// bytes, together with the entry that describes them. A part that does not end its request
    /// is a multiple of the unit, so that what follows stays aligned.
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
