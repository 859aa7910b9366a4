//! The writer of frames: from a value to bytes.
//!
//! A frame is written as three runs of bytes: what is composed in front (the headers, and the body
//! of kinds that have one), the data where they lie, and the entries. So data are not copied, and
//! every sender of frames (engine, simulator, tests) writes the same bytes.

use arrayvec::ArrayVec;

use crate::{
    Control, ENTRIES_MAX, ENTRY_LEN, Echo, Entry, FRAME_LEN_MAX, HEAD_LEN, Header, Mac, Seal,
    ethernet,
};

/// The entries of a frame to be written.
pub type EntryList = ArrayVec<Entry, ENTRIES_MAX>;

/// The contents of a frame to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: void, ack without bitmaps, keepalive, disconnect.
    Empty,
    /// Entries. The data section consists of the parts that its [`Entry::Data`] describe, in order.
    Entries(EntryList),
    /// A PDU of its own.
    Control(Control),
    /// An echo: zeroes, and its only entry.
    Echo {
        /// The entry.
        echo: Echo,
        /// Bytes of zeroes.
        filling: usize,
    },
}

impl Content {
    /// The entries; none for other kinds of contents.
    pub fn entries(&self) -> &[Entry] {
        if let Self::Entries(entries) = self { entries } else { &[] }
    }

    /// The PDU, if it is one.
    pub fn control(&self) -> Option<&Control> {
        if let Self::Control(control) = self { Some(control) } else { None }
    }

    /// Makes it a list of entries, empty at first.
    pub fn begin_entries(&mut self) -> &mut EntryList {
        if !matches!(self, Self::Entries(_)) {
            *self = Self::Entries(ArrayVec::new());
        }
        let Self::Entries(entries) = self else { unreachable!("it is one now") };
        entries.clear();
        entries
    }
}

/// Writes frames, one after the other. Its memory is that of the composed parts.
#[derive(Debug)]
pub struct Encoder {
    front: [u8; HEAD_LEN + Control::LEN_MAX],
    entries: [u8; ENTRIES_MAX * ENTRY_LEN],
}

/// The bytes of a frame: `front`, then all of `data`, then `entries`.
#[derive(Debug)]
pub struct Encoded<'e, 'd> {
    /// The Ethernet header, the Tyche header, and the body of kinds that have one.
    pub front: &'e [u8],
    /// The pieces of the data section, where they lie; or the padding of a body.
    pub data: &'e [&'d [u8]],
    /// The entries.
    pub entries: &'e [u8],
}

impl Encoder {
    /// An encoder that has written nothing yet.
    pub fn new() -> Self {
        Self { front: [0; HEAD_LEN + Control::LEN_MAX], entries: [0; ENTRIES_MAX * ENTRY_LEN] }
    }

    /// Writes a frame: fills in what the header says of the payload, and seals it. `ethernet`:
    /// destination, source and EtherType; `data`: the pieces of the data section. Returns what
    /// `take` makes of the bytes, which are passed on rather than returned, as they are not small.
    ///
    /// # Panics
    /// If there are more than [`ENTRIES_MAX`] pieces.
    pub fn encode<'d, T>(
        &mut self,
        ethernet: (Mac, Mac, u16),
        header: &Header,
        content: &Content,
        protection: &impl Seal,
        data: impl IntoIterator<Item = &'d [u8]>,
        take: impl FnOnce(&Encoded<'_, 'd>) -> T,
    ) -> T {
        let (head, body) = self.front.split_first_chunk_mut().expect("longer than a head");
        let (mut body_len, mut entries_len) = (0, 0);
        let mut pieces = ArrayVec::<&'d [u8], ENTRIES_MAX>::new();
        pieces.extend(data);
        match content {
            Content::Empty => {}
            Content::Entries(entries) => {
                let (chunks, _) = self.entries.as_chunks_mut();
                entries.iter().zip(chunks).for_each(|(entry, chunk)| entry.emit(chunk));
                entries_len = entries.len() * ENTRY_LEN;
            }
            Content::Control(control) => {
                body_len = control.emit(body.first_chunk_mut().expect("room for a body"));
                if control.padding_len() > 0 {
                    pieces.push(&ZEROES[..control.padding_len()]);
                }
            }
            Content::Echo { echo, filling } => {
                pieces.push(&ZEROES[..*filling]);
                echo.emit(self.entries.first_chunk_mut().expect("room for an entry"));
                entries_len = ENTRY_LEN;
            }
        }
        let entries = &self.entries[..entries_len];
        let mut header = *header;
        header.entries = (entries_len / ENTRY_LEN) as u16;
        let data_len = body_len + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        header.data_len = u32::try_from(data_len).expect("a frame's worth of bytes");
        let covered = [&body[..body_len]].into_iter().chain(pieces.iter().copied());
        header.payload_crc = protection.seal(&header, covered, entries);
        ethernet::emit(ethernet.0, ethernet.1, ethernet.2, head);
        header.emit(head);
        take(&Encoded { front: &self.front[..HEAD_LEN + body_len], data: &pieces, entries })
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoded<'_, '_> {
    /// Bytes of the frame.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty: it has a head")]
    pub fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// The whole frame, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        [self.front].into_iter().chain(self.data.iter().copied()).chain([self.entries])
    }
}

static ZEROES: [u8; FRAME_LEN_MAX] = [0; FRAME_LEN_MAX];
