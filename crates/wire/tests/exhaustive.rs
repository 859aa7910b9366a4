//! Every small damage to every golden frame: cuts, additions, flipped bits, exchanged bytes. And
//! for every reason to reject a frame, the smallest change that causes it.

use crate::frames;
use crate::frames::{
    FLAGS, GOLDEN, HEADER_CRC, KIND, VERSION, golden, mend, mend_len, parse, u32_at,
};
use tyche_testkit::golden::Change;
use tyche_wire::{Discover, ENTRY_LEN, HEAD_LEN, Kind, Offer, Reject};

/// The data section of a frame, if its checksum does not cover it.
fn harmless(frame: &[u8]) -> std::ops::Range<usize> {
    if frames::is_unchecked(frame) { data_section(frame) } else { 0..0 }
}

/// The data section of a frame, if it has one.
fn data_section(frame: &[u8]) -> std::ops::Range<usize> {
    let has_one = matches!(frame[KIND], 0x11 | 0x16);
    let len = if has_one { u32_at(frame, frames::DATA_LEN) as usize } else { 0 };
    HEAD_LEN..HEAD_LEN + len
}

#[test]
fn every_cut_and_every_addition_is_a_wrong_length() {
    for name in GOLDEN {
        let frame = golden(name);
        for len in HEAD_LEN..frame.len() {
            assert_eq!(parse(&frame[..len]), Err(Reject::Length), "{name} cut to {len}");
        }
        for byte in 0..=0xff {
            let longer = [&frame[..], &[byte]].concat();
            assert_eq!(parse(&longer), Err(Reject::Length), "{name} and {byte:#04x}");
        }
    }
}

/// The same with a matching length in the header: the bodies and entries themselves have no other
/// length, but for the padding of a Discover and the key of an Offer.
#[test]
fn every_cut_and_every_addition_is_rejected_with_the_length_declared() {
    for name in GOLDEN {
        let frame = golden(name);
        let may_be_padded = frame[KIND] == Kind::Discover as u8;
        for len in HEAD_LEN..frame.len() {
            let mut shorter = frame[..len].to_vec();
            mend_len(&mut shorter);
            let becomes_an_ack = name == "nack" && len == HEAD_LEN;
            let loses_its_key = name == "offer-with-key" && len == frame.len() - Offer::KEY_LEN;
            let is_whole = may_be_padded && len >= HEAD_LEN + Discover::FIELDS_LEN;
            let expected = becomes_an_ack || loses_its_key || is_whole;
            assert_eq!(frames::check(&shorter), expected, "{name} cut to {len}");
        }
        for byte in 0..=0xff {
            let mut longer = [&frame[..], &[byte]].concat();
            mend_len(&mut longer);
            let expected = may_be_padded && byte == 0;
            assert_eq!(frames::check(&longer), expected, "{name} and {byte:#04x}");
        }
    }
}

#[test]
fn every_flipped_bit_is_rejected() {
    for name in GOLDEN {
        let mut frame = golden(name);
        let harmless = harmless(&frame);
        for offset in VERSION..frame.len() {
            for bit in 0..8 {
                frame[offset] ^= 1 << bit;
                let reject = match offset {
                    VERSION => Some(Reject::Version),
                    _ if offset < HEAD_LEN => Some(Reject::HeaderChecksum),
                    _ if harmless.contains(&offset) => None,
                    _ => Some(Reject::PayloadChecksum),
                };
                assert_eq!(parse(&frame).err(), reject, "{name}, bit {bit} of byte {offset}");
                frame[offset] ^= 1 << bit;
            }
        }
        assert_eq!(frame, golden(name));
    }
}

/// With correct checksums, so that the parsers themselves must find the fault. A frame that they
/// accept must be the only encoding of its meaning.
#[test]
fn every_other_value_of_every_byte_is_rejected_or_means_something_else() {
    let (mut accepted, mut rejected) = (0, 0);
    for name in GOLDEN {
        let original = golden(name);
        let data = data_section(&original);
        for offset in (KIND..original.len()).filter(|offset| !data.contains(offset)) {
            for difference in 1..=0xffu8 {
                // Checksums of pages are slow in a debug build: there, single bits suffice.
                if data.len() > 2048 && !difference.is_power_of_two() {
                    continue;
                }
                let mut frame = original.clone();
                frame[offset] ^= difference;
                mend(&mut frame);
                if (frames::PAYLOAD_CRC..HEAD_LEN).contains(&offset) {
                    assert_eq!(frame, original, "mending mends the checksums");
                }
                let counter = if frames::check(&frame) { &mut accepted } else { &mut rejected };
                *counter += 1;
            }
        }
    }
    assert!(accepted > 0 && rejected > 0, "{accepted} accepted, {rejected} rejected");
}

/// The fields that are corrected after a change to a golden frame.
#[derive(Clone, Copy, Debug)]
enum Mend {
    Nothing,
    Header,
    Checksums,
    LengthAndChecksums,
}

use Change::{Add, Cut, Put};
use Mend::{Checksums, Header, LengthAndChecksums, Nothing};

type Bad = (Reject, &'static str, &'static [Change], Mend);

/// The smallest faults, in the order of the checks.
const HEADERS: &[Bad] = &[
    (Reject::Version, "ack", &[Put(14, &[0])], Checksums),
    (Reject::Version, "ack", &[Put(14, &[3])], Checksums),
    (Reject::HeaderChecksum, "ack", &[Put(HEADER_CRC, &[0; 4])], Nothing),
    (Reject::HeaderChecksum, "ack", &[Put(20, &[0])], Nothing),
    (Reject::Kind, "ack", &[Put(KIND, &[0x00])], Checksums),
    (Reject::Kind, "ack", &[Put(KIND, &[0x0a])], Checksums),
    (Reject::Kind, "ack", &[Put(KIND, &[0x0f])], Checksums),
    (Reject::Kind, "ack", &[Put(KIND, &[0x19])], Checksums),
    (Reject::Flags, "discover", &[Put(FLAGS, &[1])], Checksums),
    (Reject::Flags, "hello", &[Put(FLAGS, &[3])], Checksums),
    (Reject::Flags, "connect", &[Put(FLAGS, &[2])], Checksums),
    (Reject::Flags, "command-answers", &[Put(FLAGS, &[1])], Checksums),
    (Reject::Flags, "data-read", &[Put(FLAGS, &[5])], Checksums),
    (Reject::Flags, "void-data", &[Put(FLAGS, &[5])], Checksums),
    (Reject::Flags, "ack", &[Put(FLAGS, &[8])], Checksums),
    (Reject::Flags, "keepalive", &[Put(FLAGS, &[2])], Checksums),
    (Reject::Flags, "disconnect", &[Put(FLAGS, &[8])], Checksums),
    (Reject::Flags, "echo", &[Put(FLAGS, &[1])], Checksums),
    (Reject::Flags, "data-read", &[Put(FLAGS, &[0x21])], Checksums),
    (Reject::Flags, "data-read", &[Put(FLAGS + 1, &[0x80])], Checksums),
    (Reject::EntryCount, "command-answers", &[Put(50, &[33]), Add(29 * 24)], Checksums),
    (Reject::EntryCount, "command-answers", &[Put(50, &[0xff, 0xff])], Checksums),
    (Reject::EntryCount, "command-answers", &[Put(50, &[0]), Cut(64)], Checksums),
    (Reject::EntryCount, "data-unchecked", &[Put(50, &[0]), Cut(576)], Checksums),
    (Reject::EntryCount, "data-stripped", &[Put(50, &[0]), Cut(64)], Checksums),
    (Reject::EntryCount, "keepalive", &[Put(50, &[1]), Add(24)], Checksums),
    (Reject::EntryCount, "reset", &[Put(50, &[1]), Add(24)], Checksums),
    (Reject::EntryCount, "echo", &[Put(50, &[0]), Cut(104)], Checksums),
    (Reject::EntryCount, "echo", &[Put(50, &[2]), Add(24)], Checksums),
    (Reject::EntryCount, "command-answers", &[Put(50, &[0, 0, 96])], Checksums),
    (Reject::EntryCount, "discover", &[Put(50, &[1])], Checksums),
    (Reject::Length, "ack", &[Put(52, &[1])], Checksums),
    (Reject::Length, "ack", &[Put(52, &[0xff; 4])], Checksums),
    (Reject::Length, "command-answers", &[Put(50, &[3])], Checksums),
    (Reject::PayloadChecksum, "ack", &[Put(56, &[1])], Header),
    (Reject::PayloadChecksum, "reset", &[Put(64, &[1])], Header),
    (Reject::PayloadChecksum, "data-read", &[Put(64, &[1])], Header),
    (Reject::PayloadChecksum, "data-unchecked", &[Put(580, &[1])], Header),
    (Reject::PayloadChecksum, "echo", &[Put(106, &[1])], Header),
    (Reject::Length, "command-answers", &[Add(24)], LengthAndChecksums),
    (Reject::Length, "void-command", &[Add(1)], LengthAndChecksums),
    (Reject::Length, "keepalive", &[Add(1)], LengthAndChecksums),
    (Reject::Length, "disconnect", &[Add(64)], LengthAndChecksums),
];

const BODIES: &[Bad] = &[
    (Reject::Length, "discover", &[Cut(64)], LengthAndChecksums),
    (Reject::Text, "discover", &[Put(128, &[b'x'; 64])], Checksums),
    (Reject::Text, "discover", &[Put(191, b"x")], Checksums),
    (Reject::Text, "discover", &[Put(128, &[0])], Checksums),
    (Reject::Text, "discover", &[Put(128, b"\x1f")], Checksums),
    (Reject::Text, "discover", &[Put(128, b"\x7f")], Checksums),
    (Reject::Text, "discover", &[Put(128, b"\xc2\x85")], Checksums),
    (Reject::Text, "discover", &[Put(128, b"\xc0\x80")], Checksums),
    (Reject::Text, "discover", &[Put(134, b"\xc3")], Checksums),
    (Reject::Text, "discover", &[Put(128, b"\xed\xa0\x80")], Checksums),
    (Reject::Range, "discover", &[Put(72, &[3])], Checksums),
    (Reject::Range, "discover", &[Put(72, &[0, 0])], Checksums),
    (Reject::Range, "discover", &[Put(72, &[3, 9])], Checksums),
    (Reject::Reserved, "discover", &[Put(76, &[1])], Checksums),
    (Reject::Reserved, "discover-padded", &[Put(192, &[1])], Checksums),
    (Reject::Reserved, "discover-padded", &[Put(303, &[0x80])], Checksums),
    (Reject::Length, "discover", &[Add(1025)], LengthAndChecksums),
    (Reject::Range, "offer", &[Put(162, &[11])], Checksums),
    (Reject::Range, "offer", &[Put(160, &[1])], Checksums),
    (Reject::Range, "offer", &[Put(160, &[0xff, 0xff])], Checksums),
    (Reject::Reserved, "offer", &[Put(166, &[1])], Checksums),
    (Reject::Reserved, "offer", &[Put(79, &[1])], Checksums),
    (Reject::Range, "offer", &[Put(72, &[3])], Checksums),
    (Reject::Length, "offer", &[Put(162, &[1])], Checksums),
    (Reject::Text, "offer", &[Put(168, &[0xff])], Checksums),
    (Reject::Range, "offer", &[Put(257, &[4])], Checksums),
    (Reject::Flags, "offer", &[Put(260, &[0x10])], Checksums),
    (Reject::Reserved, "offer", &[Put(271, &[1])], Checksums),
    (Reject::Length, "offer", &[Add(31)], LengthAndChecksums),
    (Reject::Length, "offer-with-key", &[Add(1)], LengthAndChecksums),
    (Reject::Length, "offer-with-key", &[Put(162, &[1])], Checksums),
    (Reject::Length, "hello", &[Put(112, &[127])], Checksums),
    (Reject::Length, "hello", &[Put(112, &[115]), Cut(115)], LengthAndChecksums),
    (Reject::Range, "hello", &[Put(112, &[0x0e, 0, 1])], Checksums),
    (Reject::Reserved, "hello", &[Put(88, &[1])], Checksums),
    (Reject::Reserved, "hello", &[Put(111, &[0x80])], Checksums),
    (Reject::Reserved, "hello", &[Put(116, &[1])], Checksums),
    (Reject::Reserved, "hello", &[Put(127, &[1])], Checksums),
    (Reject::Text, "connect", &[Put(176, &[0x0a])], Checksums),
    (Reject::Range, "connect", &[Put(240, &[0; 8])], Checksums),
    (Reject::Range, "connect", &[Put(248, &[0xff, 0xff])], Checksums),
    (Reject::Range, "connect", &[Put(250, &[0])], Checksums),
    (Reject::Range, "connect", &[Put(250, &[1, 4])], Checksums),
    (Reject::Range, "connect", &[Put(252, &[8, 0])], Checksums),
    (Reject::Range, "connect", &[Put(252, &[48, 0])], Checksums),
    (Reject::Range, "connect", &[Put(254, &[0, 0x20])], Checksums),
    (Reject::Range, "connect", &[Put(256, &[0xcf, 4, 0, 0])], Checksums),
    (Reject::Range, "connect", &[Put(256, &[0x0e, 0, 1, 0])], Checksums),
    (Reject::Flags, "connect", &[Put(264, &[0x20])], Checksums),
    (Reject::Range, "connect", &[Put(268, &[99, 0])], Checksums),
    (Reject::Range, "connect", &[Put(268, &[0x61, 0xea, 0, 0])], Checksums),
    (Reject::Range, "accept", &[Put(120, &[1])], Checksums),
    (Reject::Range, "accept", &[Put(128, &[0; 8])], Checksums),
    (Reject::Range, "accept", &[Put(136, &[0xff, 0xff])], Checksums),
    (Reject::Range, "accept", &[Put(138, &[0, 0])], Checksums),
    (Reject::Range, "accept", &[Put(140, &[17, 0])], Checksums),
    (Reject::Range, "accept", &[Put(142, &[0, 0])], Checksums),
    (Reject::Range, "accept", &[Put(148, &[0xff, 0])], Checksums),
    (Reject::Range, "accept", &[Put(148, &[1, 0, 0x10])], Checksums),
    (Reject::Range, "accept", &[Put(152, &[0, 4])], Checksums),
    (Reject::Flags, "accept", &[Put(156, &[0x80])], Checksums),
    (Reject::Reserved, "accept", &[Put(167, &[1])], Checksums),
    (Reject::Range, "reject", &[Put(73, &[1])], Checksums),
    (Reject::Code, "reject", &[Put(74, &[0])], Checksums),
    (Reject::Code, "reject", &[Put(74, &[14])], Checksums),
    (Reject::Reserved, "reject", &[Put(76, &[1])], Checksums),
    (Reject::Text, "reject", &[Put(96, &[b'x'; 128])], Checksums),
    (Reject::Range, "fence", &[Put(74, &[129])], Checksums),
    (Reject::Length, "fence", &[Put(74, &[4])], Checksums),
    (Reject::Length, "fence", &[Put(74, &[2])], Checksums),
    (Reject::Reserved, "fence", &[Put(76, &[1])], Checksums),
    (Reject::Range, "fenced", &[Put(75, &[1])], Checksums),
    (Reject::Reserved, "fenced", &[Put(79, &[1])], Checksums),
    (Reject::Code, "fenced", &[Put(84, &[7])], Checksums),
    (Reject::Code, "fenced", &[Put(84, &[0xfd])], Checksums),
    (Reject::Reserved, "fenced", &[Put(85, &[1])], Checksums),
    (Reject::Length, "ack", &[Add(15)], LengthAndChecksums),
    (Reject::Reserved, "nack", &[Put(76, &[1])], Checksums),
    (Reject::Range, "nack", &[Put(72, &[65]), Add(64 * 8)], LengthAndChecksums),
    (Reject::Length, "nack", &[Put(72, &[2])], Checksums),
    (Reject::Length, "nack", &[Put(74, &[1])], Checksums),
    (Reject::Reserved, "nack", &[Put(80, &[3])], Checksums),
    (Reject::Reserved, "nack", &[Put(88, &[0x15])], Checksums),
    (Reject::Range, "nack", &[Put(96, &[0])], Checksums),
    (Reject::Range, "nack", &[Put(80, &[0])], Checksums),
];

const ENTRIES: &[Bad] = &[
    (Reject::EntryKind, "command-requests", &[Put(64, &[0])], Checksums),
    (Reject::EntryKind, "command-requests", &[Put(64, &[5])], Checksums),
    (Reject::Opcode, "command-requests", &[Put(65, &[0])], Checksums),
    (Reject::Opcode, "command-requests", &[Put(65, &[7])], Checksums),
    (Reject::Flags, "command-requests", &[Put(66, &[1])], Checksums),
    (Reject::Flags, "command-requests", &[Put(90, &[2])], Checksums),
    (Reject::Flags, "command-requests", &[Put(114, &[1])], Checksums),
    (Reject::Flags, "command-requests", &[Put(138, &[2])], Checksums),
    (Reject::Flags, "command-requests", &[Put(162, &[4])], Checksums),
    (Reject::Flags, "command-requests", &[Put(163, &[0x80])], Checksums),
    // A read: not of whole sectors, of no bytes, too long, past the end of all disks.
    (Reject::Range, "command-requests", &[Put(72, &[1])], Checksums),
    (Reject::Range, "command-requests", &[Put(80, &[1])], Checksums),
    (Reject::Range, "command-requests", &[Put(80, &[0; 4])], Checksums),
    (Reject::Range, "command-requests", &[Put(80, &[0, 2, 0x10])], Checksums),
    (
        Reject::Range,
        "command-requests",
        &[Put(72, &[0, 0xe0, 255, 255, 255, 255, 255, 255])],
        Checksums,
    ),
    (Reject::Range, "command-requests", &[Put(104, &[0, 2, 0x10])], Checksums),
    // A flush of a range; a discard and a write of zeroes without a range, and with data.
    (Reject::Range, "command-requests", &[Put(121, &[2])], Checksums),
    (Reject::Range, "command-requests", &[Put(129, &[2])], Checksums),
    (Reject::Reserved, "command-requests", &[Put(132, &[1])], Checksums),
    (Reject::Range, "command-requests", &[Put(152, &[0; 4])], Checksums),
    (Reject::Reserved, "command-requests", &[Put(156, &[1])], Checksums),
    (Reject::Range, "command-requests", &[Put(176, &[0; 4])], Checksums),
    (Reject::Reserved, "command-requests", &[Put(180, &[1])], Checksums),
    (Reject::Flags, "command-requests", &[Put(186, &[1])], Checksums),
    (Reject::Range, "command-requests", &[Put(201, &[0x12])], Checksums),
    (Reject::Code, "command-answers", &[Put(65, &[7])], Checksums),
    (Reject::Code, "command-answers", &[Put(65, &[0xff])], Checksums),
    (Reject::Reserved, "command-answers", &[Put(66, &[1])], Checksums),
    (Reject::Reserved, "command-answers", &[Put(67, &[0x80])], Checksums),
    (Reject::Reserved, "command-times", &[Put(66, &[1])], Checksums),
    (Reject::Reserved, "command-credit", &[Put(65, &[1])], Checksums),
    (Reject::Reserved, "command-credit", &[Put(67, &[1])], Checksums),
    (Reject::Reserved, "command-credit", &[Put(71, &[1])], Checksums),
    (Reject::Reserved, "command-credit", &[Put(79, &[1])], Checksums),
    (Reject::Reserved, "command-credit", &[Put(83, &[1])], Checksums),
    (Reject::Range, "command-credit", &[Put(84, &[31, 0])], Checksums),
    (Reject::Range, "command-credit", &[Put(84, &[1, 0, 0x10])], Checksums),
    (Reject::Code, "command-answers", &[Put(113, &[0])], Checksums),
    (Reject::Code, "command-answers", &[Put(113, &[3])], Checksums),
    (Reject::Reserved, "command-answers", &[Put(114, &[1])], Checksums),
    (Reject::Reserved, "command-answers", &[Put(116, &[1])], Checksums),
    (Reject::Reserved, "command-answers", &[Put(128, &[1])], Checksums),
    (Reject::Reserved, "command-answers", &[Put(132, &[1])], Checksums),
    (Reject::Reserved, "command-answers", &[Put(144, &[1])], Checksums),
    (Reject::Reserved, "data-read", &[Put(1601, &[1])], Checksums),
    (Reject::Reserved, "data-read", &[Put(1602, &[1])], Checksums),
    // A part: empty, past its total, with a total of half a sector, with too large a total.
    (Reject::Range, "data-read", &[Put(1612, &[0; 4])], Checksums),
    (Reject::Range, "data-read", &[Put(1608, &[1])], Checksums),
    (Reject::Range, "data-read", &[Put(1632, &[0xe0, 1])], Checksums),
    (Reject::Range, "data-read", &[Put(1636, &[0xe0, 1])], Checksums),
    (Reject::Range, "data-read", &[Put(1608, &[0xff; 4])], Checksums),
    (Reject::Range, "data-read", &[Put(1616, &[0, 5])], Checksums),
    (Reject::Range, "data-read", &[Put(1616, &[0, 2, 0x10])], Checksums),
    // An echo: no entry of its own or another frame's, too many replies, too short, too long.
    (Reject::EntryKind, "echo", &[Put(104, &[4])], Checksums),
    (Reject::EntryKind, "command-answers", &[Put(64, &[5])], Checksums),
    (Reject::Reserved, "echo", &[Put(105, &[1])], Checksums),
    (Reject::Reserved, "echo", &[Put(127, &[1])], Checksums),
    (Reject::Range, "echo", &[Put(106, &[9])], Checksums),
    (Reject::Range, "echo", &[Put(107, &[1])], Checksums),
    (Reject::Range, "echo-reply", &[Put(130, &[0])], Checksums),
    (Reject::Range, "echo", &[Put(108, &[87])], Checksums),
    (Reject::Range, "echo", &[Put(108, &[0x0e, 0, 1])], Checksums),
    (Reject::Length, "echo-reply", &[Put(132, &[151])], Checksums),
    // The parts add up to less, or more, than the data section.
    (Reject::DataLength, "data-read", &[Put(1636, &[0xc0, 1])], Checksums),
    (Reject::DataLength, "data-read", &[Put(1632, &[0; 6]), Put(1637, &[4])], Checksums),
    (
        Reject::DataLength,
        "data-stripped",
        &[Add(24), Put(50, &[3]), Put(112, &[3]), Put(124, &[0, 2]), Put(128, &[0, 2])],
        Checksums,
    ),
    (
        Reject::DataLength,
        "command-answers",
        &[Put(64, &[3, 0]), Put(76, &[0, 2]), Put(80, &[0, 2])],
        Checksums,
    ),
];

/// The reasons that depend on the receiver's state.
const OF_STATE: [Reject; 16] = [
    Reject::Destination,
    Reject::Target,
    Reject::Ticket,
    Reject::Busy,
    Reject::Channel,
    Reject::Cookie,
    Reject::Source,
    Reject::Stale,
    Reject::Forged,
    Reject::Replayed,
    Reject::Unexpected,
    Reject::Window,
    Reject::Tag,
    Reject::AckOfUnsent,
    Reject::Mismatch,
    Reject::Placement,
];

fn apply(name: &str, changes: &[Change], how: Mend) -> Vec<u8> {
    let mut frame = golden(name);
    changes.iter().for_each(|change| change.apply(&mut frame));
    match how {
        Nothing => {}
        Header => {
            let crc = tyche_wire::Checksum::of(&frame[VERSION..HEADER_CRC]);
            frames::put_u32(&mut frame, HEADER_CRC, crc);
        }
        Checksums => mend(&mut frame),
        LengthAndChecksums => mend_len(&mut frame),
    }
    frame
}

#[test]
fn every_reason_is_found_and_is_the_right_one() {
    let mut missing: Vec<Reject> = Reject::ALL.to_vec();
    missing.retain(|reject| !OF_STATE.contains(reject));
    for &(reject, name, changes, how) in HEADERS.iter().chain(BODIES).chain(ENTRIES) {
        let frame = apply(name, changes, how);
        assert_eq!(parse(&frame).err(), Some(reject), "{name}: {changes:?}, {how:?}");
        missing.retain(|&other| other != reject);
    }
    assert_eq!(missing, [], "reasons without a bad frame");
}

/// The limits from the valid side.
#[test]
fn the_limits_themselves_are_accepted() {
    let good: &[(&str, &[Change])] = &[
        ("discover", &[Put(128, &[0; 64])]),
        ("discover", &[Put(128, &[b'x'; 63])]),
        ("discover", &[Add(1024)]),
        ("hello", &[Put(112, &[116]), Cut(116)]),
        ("hello", &[Put(112, &[0x0d, 0, 1]), Add(65549 - 128)]),
        ("connect", &[Put(250, &[1, 0, 16, 0, 0, 0x10, 0xd0, 4, 0, 0])]),
        ("connect", &[Put(250, &[0, 4, 0, 0x10, 16, 0, 0x0d, 0, 1, 0])]),
        ("connect", &[Put(268, &[100, 0, 0, 0])]),
        ("connect", &[Put(268, &[0x60, 0xea, 0, 0])]),
        ("accept", &[Put(148, &[0, 1, 0, 0, 0, 0x10])]),
        ("accept", &[Put(148, &[0, 0, 0x10, 0])]),
        ("connect", &[Put(264, &[0x1f])]),
        ("accept", &[Put(156, &[0x7f])]),
        ("reject", &[Put(96, &[b'x'; 127])]),
        ("fence", &[Put(74, &[128]), Add(125 * 4)]),
        ("fenced", &[Put(74, &[128]), Add(125 * 8)]),
        ("nack", &[Put(72, &[64, 0, 64, 0]), Add(125 * 8), Put(584, &[1]), Put(1096, &[1])]),
        ("command-requests", &[Put(80, &[0, 0, 0x10])]),
        ("command-requests", &[Put(72, &[0, 0xd0, 255, 255, 255, 255, 255, 255])]),
        ("command-requests", &[Put(152, &[0, 0xfe, 0xff, 0xff])]),
        ("command-answers", &[Put(72, &[0xff; 16])]),
        ("data-read", &[Put(1616, &[0, 0, 0x10])]),
        ("echo", &[Put(106, &[0, 0, 88, 0])]),
        ("echo", &[Put(106, &[8, 0, 0x0d, 0, 1])]),
    ];
    for &(name, changes) in good {
        let frame = apply(name, changes, LengthAndChecksums);
        assert_eq!(parse(&frame).err(), None, "{name}: {changes:?}");
        assert!(frames::check(&frame));
    }
    // The most entries of a frame.
    let changes: &[Change] = &[Put(50, &[32]), Add(28 * ENTRY_LEN)];
    let mut frame = apply("command-answers", changes, Nothing);
    for entry in frame[160..].chunks_mut(ENTRY_LEN) {
        entry[0] = 2;
    }
    mend(&mut frame);
    assert!(frames::check(&frame));
}

/// The vectors of the conformance suite are the frames of these tables. `TYCHE_BLESS=1` writes the
/// file.
#[test]
fn the_conformance_suite_has_these_frames() {
    let tables = HEADERS.iter().chain(BODIES).chain(ENTRIES);
    let vector = |&(reject, name, changes, how): &Bad| {
        let frame = apply(name, changes, how);
        let what = format!("{name}, {changes:?}, {how:?}");
        let reason = reject.name();
        let hex = runs(&frame);
        format!("{{\"reason\": \"{reason}\", \"what\": \"{what}\",\n  \"hex\": \"{hex}\"}}")
    };
    let vectors: Vec<String> = tables.map(vector).collect();
    let text = format!("[\n{}\n]\n", vectors.join(",\n"));
    let path = frames::path("../../conformance/single.json");
    if std::env::var_os("TYCHE_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the file can be written");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == text, "{} is not up to date: TYCHE_BLESS=1 writes it", path.display());
}

/// Bytes in hexadecimal; `00*57` stands for 57 zeroes.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b).map(|run| match run.len() {
        count @ 1..4 => format!("{:02x}", run[0]).repeat(count),
        count => format!(" {:02x}*{count} ", run[0]),
    });
    runs.collect::<String>().trim().to_owned()
}
