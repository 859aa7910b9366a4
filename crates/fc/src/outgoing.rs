//! Frames to be sent, as values. Data of commands stay where they are.

use arrayvec::ArrayVec;
use tyche_fc_wire::els::LOGIN_LEN;
use tyche_fc_wire::fcp::{CommandFrame, PreparedHead};
use tyche_fc_wire::{Ethernet, HEAD_LEN, Header, TAIL_LEN, Tail, head};

/// The most bytes of a payload that is not data: that of the longest link service.
pub const PAYLOAD_MAX: usize = LOGIN_LEN;

/// A frame to be sent. The caller owns it and has it filled again and again, so that nothing is
/// allocated for a frame.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The whole frame, or the head of one with data.
    front: ArrayVec<u8, { HEAD_LEN + PAYLOAD_MAX + TAIL_LEN }>,
    part: Option<Part>,
}

/// Bytes of an exchange's data, in memory of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The index of the exchange.
    pub exchange: u16,
    /// The first byte within its data.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

impl Outgoing {
    /// No frame yet.
    pub fn new() -> Self {
        Self { front: ArrayVec::new(), part: None }
    }

    /// The data of the frame, which the caller is to find; `None` if it has none.
    pub fn part(&self) -> Option<Part> {
        self.part
    }

    /// Writes the frame: gives `take` its front, the pieces of its data, and what follows them.
    /// `data` are those pieces: all bytes of its [part](Self::part), or nothing.
    pub fn write<'d, T>(
        &self,
        data: &[&'d [u8]],
        take: impl FnOnce(&[u8], &[&'d [u8]], &[u8]) -> T,
    ) -> T {
        let Some(part) = self.part else { return take(&self.front, &[], &[]) };
        let len: usize = data.iter().map(|it| it.len()).sum();
        debug_assert_eq!(len, part.len as usize, "the data of the part");
        let head = self.front.first_chunk().expect("the front is a head");
        let tail = Tail::seal(head, data.iter().copied());
        take(head, data, tail.as_bytes())
    }

    /// The bytes of the frame in one run, for simulations and tests, which keep frames.
    pub fn to_bytes(&self, data: &[u8]) -> Vec<u8> {
        let data: &[&[u8]] = if data.is_empty() { &[] } else { &[data] };
        self.write(data, |front, data, tail| [front, &data.concat(), tail].concat())
    }

    /// Makes it a frame without data.
    ///
    /// # Panics
    /// If the payload is longer than [`PAYLOAD_MAX`].
    pub(crate) fn set(&mut self, ethernet: Ethernet, header: &Header, payload: &[u8]) {
        let head = head(ethernet, header, payload.len());
        let tail = Tail::seal(&head, [payload]);
        self.put([&head, payload, tail.as_bytes()]);
    }

    /// Makes it the frame of a command.
    pub(crate) fn set_command(&mut self, command: &CommandFrame) {
        self.put([command.as_bytes().as_slice()]);
    }

    /// Makes it a frame of data, whose head says their length.
    pub(crate) fn set_data(&mut self, head: &PreparedHead, part: Part) {
        self.put([head.as_bytes().as_slice()]);
        self.part = Some(part);
    }

    fn put<'b>(&mut self, pieces: impl IntoIterator<Item = &'b [u8]>) {
        self.part = None;
        self.front.clear();
        for piece in pieces {
            self.front.try_extend_from_slice(piece).expect("payloads without data are short");
        }
    }
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new()
    }
}
