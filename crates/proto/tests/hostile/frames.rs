//! The bytes of frames: sealed as the engine does it, and mended as an adversary does it.

use tyche_proto::wire::{Checksum, ENTRY_LEN, ETHERNET_LEN, HEAD_LEN, Kind, Mac};
use tyche_proto::{Outgoing, Part};

/// The frame that was composed. `append` adds the bytes of a part of the data section.
pub(crate) fn seal(
    src: Mac,
    out: &Outgoing,
    mut append: impl FnMut(&Part, &mut Vec<u8>),
) -> Vec<u8> {
    let mut data = Vec::new();
    out.parts.iter().for_each(|part| append(part, &mut data));
    out.to_bytes(src, &data)
}

/// Splits a frame as a link hands it in; `None` if a link would not.
pub(crate) fn split(frame: &[u8]) -> Option<(&[u8; HEAD_LEN], &[u8])> {
    frame.split_first_chunk()
}

/// Bytes of a frame at a place, as a number; zero where there are none.
pub(crate) fn number<const N: usize>(frame: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(field) = frame.get(at..at + N) {
        bytes[..N].copy_from_slice(field);
    }
    u64::from_le_bytes(bytes)
}

pub(crate) fn put<const N: usize>(frame: &mut [u8], at: usize, number: u64) {
    if let Some(field) = frame.get_mut(at..at + N) {
        field.copy_from_slice(&number.to_le_bytes()[..N]);
    }
}

/// Where the header has its fields. PROTOCOL.md, "Header".
pub(crate) mod at {
    pub(crate) const KIND: usize = 15;
    pub(crate) const FLAGS: usize = 16;
    pub(crate) const CHANNEL: usize = 18;
    pub(crate) const COOKIE: usize = 20;
    pub(crate) const PACKET: usize = 28;
    pub(crate) const POSITION: usize = 36;
    pub(crate) const ACKS: [usize; 2] = [40, 44];
    pub(crate) const WINDOW: usize = 48;
    pub(crate) const ENTRIES: usize = 50;
    pub(crate) const DATA_LEN: usize = 52;
    pub(crate) const PAYLOAD_CRC: usize = 56;
    pub(crate) const HEADER_CRC: usize = 60;
    /// Of a connect's body, and of a hello's.
    pub(crate) const CONNECT_TICKET: usize = 64 + 8;
}

/// Makes lengths and checksums right again.
pub(crate) fn mend(frame: &mut [u8]) {
    let payload = frame.len() - HEAD_LEN;
    let entries = number::<2>(frame, at::ENTRIES) as usize;
    let tail = (entries * ENTRY_LEN).min(payload / ENTRY_LEN * ENTRY_LEN);
    put::<2>(frame, at::ENTRIES, (tail / ENTRY_LEN) as u64);
    put::<4>(frame, at::DATA_LEN, (payload - tail) as u64);
    let kind = frame[at::KIND];
    let is_bare = kind == Kind::Data as u8 && frame[at::FLAGS] & 1 == 0;
    let covered = if is_bare || kind == Kind::Echo as u8 { payload - tail } else { 0 };
    let crc = Checksum::of(&frame[HEAD_LEN + covered..]);
    put::<4>(frame, at::PAYLOAD_CRC, crc.into());
    mend_header(frame);
}

/// Makes the header's checksum right again, and nothing else.
pub(crate) fn mend_header(frame: &mut [u8]) {
    let crc = Checksum::of(&frame[ETHERNET_LEN..at::HEADER_CRC]);
    put::<4>(frame, at::HEADER_CRC, crc.into());
}
