//! Shared by the tests of frames: re-emission, corrected checksums, and the golden frames.

#![allow(dead_code, reason = "each test, and the fuzzer, uses a part")]

use std::path::{Path, PathBuf};

use tyche_testkit::golden::Golden;
use tyche_wire::{
    Body, Checksum, Checksums, Content, Control, ENTRY_LEN, Echo, Encoded, Encoder, Entry, Frame,
    HEAD_LEN, Header, Mac, Reject,
};

/// Offsets of the header's fields in the frame.
pub(crate) const VERSION: usize = 14;
pub(crate) const KIND: usize = 15;
pub(crate) const FLAGS: usize = 16;
pub(crate) const ENTRIES: usize = 50;
pub(crate) const DATA_LEN: usize = 52;
pub(crate) const PAYLOAD_CRC: usize = 56;
pub(crate) const HEADER_CRC: usize = 60;

/// Every golden frame, in the order of docs/golden-frames.md.
pub(crate) const GOLDEN: [&str; 31] = [
    "discover",
    "discover-padded",
    "offer",
    "offer-with-key",
    "hello",
    "hello-reply",
    "connect",
    "accept",
    "reject",
    "reset",
    "sealed-connect",
    "sealed-answer",
    "command-requests",
    "command-answers",
    "command-credit",
    "command-times",
    "data-write",
    "data-read",
    "data-unchecked",
    "data-stripped",
    "void-command",
    "void-data",
    "ack",
    "nack",
    "keepalive",
    "disconnect",
    "disconnect-reply",
    "echo",
    "echo-reply",
    "fence",
    "fenced",
];

/// A path in this crate.
pub(crate) fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// The golden frames of this crate.
pub(crate) const FILES: Golden = Golden { root: env!("CARGO_MANIFEST_DIR") };

/// The bytes of a golden frame.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    FILES.frame(name)
}

/// Parses a frame in one piece, of at least 64 bytes.
pub(crate) fn parse(frame: &[u8]) -> Result<Frame<'_>, Reject> {
    let (head, payload) = split(frame);
    Frame::parse(head, payload)
}

/// Head and payload of a frame.
pub(crate) fn split(frame: &[u8]) -> (&[u8; HEAD_LEN], &[u8]) {
    frame.split_first_chunk().expect("a frame has at least 64 bytes")
}

/// The contents of a frame with its data section, owned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Payload {
    content: Content,
    data: Vec<u8>,
}

impl Payload {
    pub(crate) fn empty() -> Self {
        Self { content: Content::Empty, data: Vec::new() }
    }

    pub(crate) fn control(control: Control) -> Self {
        Self { content: Content::Control(control), data: Vec::new() }
    }

    pub(crate) fn entries(data: Vec<u8>, entries: impl IntoIterator<Item = Entry>) -> Self {
        Self { content: Content::Entries(entries.into_iter().collect()), data }
    }

    /// An echo whose filling may be any bytes, as those of others may.
    pub(crate) fn echo(filling: Vec<u8>, echo: Echo) -> Self {
        Self { content: Content::Echo { echo, filling: 0 }, data: filling }
    }
}

impl From<&Body<'_>> for Payload {
    fn from(body: &Body<'_>) -> Self {
        match body {
            Body::Empty => Self::empty(),
            Body::Control(pdu) => Self::control(pdu.decode()),
            Body::Entries { entries, data } => {
                Self::entries(data.unwrap_or_default().to_vec(), entries.iter())
            }
            Body::Echo { echo, filling } => Self::echo(filling.to_vec(), *echo),
        }
    }
}

/// Writes a frame with the Ethernet header of `ethernet`; its data in pieces, like the parts of
/// several requests.
pub(crate) fn emit(header: &Header, payload: &Payload, ethernet: &[u8; HEAD_LEN]) -> Vec<u8> {
    let ethertype = u16::from_be_bytes([ethernet[12], ethernet[13]]);
    let ethernet = (Mac::destination(ethernet), Mac::source(ethernet), ethertype);
    let Payload { content, data } = payload;
    let pieces = data.chunks(data.len().div_ceil(20).max(1));
    let take = |frame: &Encoded<'_, '_>| frame.pieces().flatten().copied().collect();
    Encoder::new().encode(ethernet, header, content, &Checksums, pieces, take)
}

/// Whether the payload's checksum excludes the data section.
pub(crate) fn is_unchecked(frame: &[u8]) -> bool {
    match frame[KIND] {
        0x11 => frame[FLAGS] & 1 == 0,
        kind => kind == 0x16,
    }
}

/// Corrects both checksums of any frame.
pub(crate) fn mend(frame: &mut [u8]) {
    let skipped = if is_unchecked(frame) { u32_at(frame, DATA_LEN) as usize } else { 0 };
    let covered = frame[HEAD_LEN..].get(skipped..).unwrap_or(&[]);
    put_u32(frame, PAYLOAD_CRC, Checksum::of(covered));
    put_u32(frame, HEADER_CRC, Checksum::of(&frame[VERSION..HEADER_CRC]));
}

/// Sets `data_len` to match the payload's length, as far as the entry count allows, and then the
/// checksums.
pub(crate) fn mend_len(frame: &mut [u8]) {
    let entries = usize::from(u16::from_le_bytes([frame[ENTRIES], frame[ENTRIES + 1]]));
    let data_len = (frame.len() - HEAD_LEN).saturating_sub(entries * ENTRY_LEN);
    put_u32(frame, DATA_LEN, u32::try_from(data_len).expect("frames of tests are short"));
    mend(frame);
}

/// Checks the rule for every frame: it is rejected, or it is the only encoding of its meaning.
/// Returns whether it was accepted.
pub(crate) fn check(frame: &[u8]) -> bool {
    let (head, payload) = split(frame);
    let Ok(parsed) = Frame::parse(head, payload) else { return false };
    let again = emit(&parsed.header, &Payload::from(&parsed.body), head);
    assert!(again == frame, "a second encoding of {parsed}");
    // Any frame must have a text.
    assert!(!parsed.to_string().is_empty());
    true
}

/// Checks `input` unchanged, with the checksums corrected, and with the length corrected too: a
/// fuzzer does not get past a checksum by itself. Returns how many of the three were accepted.
pub(crate) fn check_all(input: &[u8]) -> usize {
    if input.len() < HEAD_LEN {
        return 0;
    }
    let mut frame = input.to_vec();
    let mut accepted = usize::from(check(&frame));
    mend(&mut frame);
    accepted += usize::from(check(&frame));
    mend_len(&mut frame);
    accepted + usize::from(check(&frame))
}

pub(crate) fn u32_at(frame: &[u8], offset: usize) -> u32 {
    let field = frame[offset..].first_chunk().expect("within the header");
    u32::from_le_bytes(*field)
}

pub(crate) fn put_u32(frame: &mut [u8], offset: usize, value: u32) {
    frame[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}
