//! Every small damage to every golden frame: cuts, additions, flipped bits, exchanged bytes. And
//! for every reason to reject a frame, the smallest change that causes it.

use crate::frames::{Any, GOLDEN, Payload, check, golden, is_fip, mend, parse};
use tyche_fc_wire::{HEAD_LEN, Reject, TAIL_LEN, fip};
use tyche_testkit::golden::Change::{self, Add, Cut, Put};

/// The end of what a golden frame says: padding and reserved bytes may follow.
fn end(frame: &[u8]) -> usize {
    if is_fip(frame) {
        let words = u16::from_be_bytes([frame[20], frame[21]]);
        fip::HEADER_LEN + usize::from(words) * 4
    } else {
        frame.len()
    }
}

/// The first fault of a frame, or of its payload in every meaning that it can have.
fn fault(frame: &[u8]) -> Option<Reject> {
    let (header, payload) = match parse(frame) {
        Err(reject) => return Some(reject),
        Ok(Any::Fip(_)) => return None,
        Ok(Any::Fc(frame)) => (frame.header, frame.payload),
    };
    let meanings = Payload::parse(&header, payload).into_iter();
    let faults: Option<Vec<Reject>> = meanings.map(Result::err).collect();
    faults?.pop()
}

#[test]
fn cuts_are_faults_unless_they_cut_padding() {
    for name in GOLDEN {
        let frame = golden(name);
        for len in 0..frame.len() {
            let is_padding = is_fip(&frame) && len >= end(&frame);
            assert_eq!(check(&frame[..len]), is_padding, "{name} cut to {len}");
        }
    }
}

#[test]
fn additions_are_faults_unless_they_are_padding() {
    for name in GOLDEN {
        let frame = golden(name);
        for len in 1..=8 {
            for byte in [0, 0x42, 0xff] {
                let longer = [&frame[..], &vec![byte; len]].concat();
                assert_eq!(check(&longer), is_fip(&frame), "{name} and {len} of {byte:#04x}");
            }
        }
    }
}

/// The payload of a frame that is cut is shorter than its PDU, or a whole PDU again.
#[test]
fn cut_payloads_are_faults_or_mean_something_else() {
    for name in GOLDEN.iter().filter(|name| !is_fip(&golden(name))) {
        let frame = golden(name);
        for words in 1..=(frame.len() - HEAD_LEN - TAIL_LEN) / 4 {
            let end = frame.len() - TAIL_LEN;
            let mut shorter = [&frame[..end - 4 * words], &frame[end..]].concat();
            shorter[39] &= !3; // no fill
            mend(&mut shorter);
            let may_be_shorter = name.starts_with("fcp-data-")
                // The last 12 bytes may be left out; answers that need no more than their code.
                || *name == "fcp-rsp" && words <= 3
                || name.ends_with("-acc") || *name == "ls-rjt" || name.starts_with("ct-");
            let accepted = check(&shorter);
            assert!(may_be_shorter || !accepted, "{name} without {words} words");
        }
    }
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    for name in GOLDEN.iter().filter(|name| !is_fip(&golden(name))) {
        let mut frame = golden(name);
        let tail = frame.len() - TAIL_LEN;
        for offset in 0..frame.len() {
            for bit in 0..8 {
                frame[offset] ^= 1 << bit;
                let found = parse(&frame).err();
                let expected = match offset {
                    12 | 13 => Some(Reject::EtherType),
                    14 if bit >= 4 => Some(Reject::Version),
                    ..27 => None,
                    27 => found.filter(|it| matches!(it, Reject::Sof | Reject::Class)),
                    _ if offset < tail + 4 => Some(Reject::Crc),
                    _ if offset == tail + 4 => found
                        .filter(|it| matches!(it, Reject::Eof | Reject::Class | Reject::Aborted)),
                    _ => None,
                };
                assert_eq!(found, expected, "{name}, bit {bit} of byte {offset}");
                frame[offset] ^= 1 << bit;
            }
        }
        assert_eq!(frame, golden(name));
    }
}

/// With a correct CRC, so that the parsers themselves must find the fault.
#[test]
fn every_other_value_of_every_byte_is_rejected_or_means_something() {
    let (mut accepted, mut rejected) = (0, 0);
    for name in GOLDEN {
        let original = golden(name);
        for offset in 12..end(&original) {
            for difference in 1..=0xffu8 {
                // Answers have as many meanings as there are requests: there, single bits suffice.
                if offset >= HEAD_LEN && !difference.is_power_of_two() {
                    continue;
                }
                let mut frame = original.clone();
                frame[offset] ^= difference;
                mend(&mut frame);
                let counter = if check(&frame) { &mut accepted } else { &mut rejected };
                *counter += 1;
            }
        }
    }
    assert!(accepted > 0 && rejected > 0, "{accepted} accepted, {rejected} rejected");
}

type Bad = (Reject, &'static str, &'static [Change]);

/// The smallest faults of frames.
const FRAMES: &[Bad] = &[
    (Reject::Length, "fcp-conf", &[Cut(59)]),
    (Reject::Length, "fcp-conf", &[Cut(40)]),
    (Reject::Length, "fcp-conf", &[Add(2)]),
    (Reject::Length, "fcp-data-read", &[Add(1992)]),
    (Reject::EtherType, "fcp-conf", &[Put(13, &[0x07])]),
    (Reject::Version, "fcp-conf", &[Put(14, &[0x10])]),
    (Reject::Sof, "fcp-conf", &[Put(27, &[0x2f])]),
    (Reject::Class, "fcp-conf", &[Put(27, &[0x2d])]),
    (Reject::Class, "fcp-conf", &[Put(27, &[0x28])]),
    (Reject::Eof, "fcp-conf", &[Put(56, &[0x40])]),
    (Reject::Class, "fcp-conf", &[Put(56, &[0x46])]),
    (Reject::Aborted, "fcp-conf", &[Put(56, &[0x49])]),
    (Reject::Aborted, "fcp-conf", &[Put(56, &[0x50])]),
    (Reject::Kind, "fcp-conf", &[Put(28, &[0x04])]),
    (Reject::Kind, "fcp-conf", &[Put(36, &[0x01])]),
    (Reject::Kind, "abts", &[Put(36, &[0x08])]),
    (Reject::OptionalHeaders, "fcp-conf", &[Put(41, &[0x10])]),
    (Reject::Fill, "fcp-conf", &[Put(39, &[0x01])]),
];

/// The smallest faults of FIP.
const FIP: &[Bad] = &[
    (Reject::Length, "beacon", &[Cut(23)]),
    (Reject::Length, "beacon", &[Put(21, &[11])]),
    (Reject::Length, "beacon", &[Put(20, &[0xff])]),
    (Reject::Version, "beacon", &[Put(14, &[0x20])]),
    (Reject::Operation, "beacon", &[Put(16, &[1])]),
    (Reject::Operation, "beacon", &[Put(17, &[6])]),
    (Reject::Operation, "beacon", &[Put(19, &[0])]),
    (Reject::Operation, "beacon", &[Put(19, &[6])]),
    (Reject::Operation, "keep-alive", &[Put(19, &[3])]),
    (Reject::Descriptor, "beacon", &[Put(24, &[16])]),
    (Reject::Descriptor, "beacon", &[Put(24, &[127])]),
    (Reject::Descriptor, "beacon", &[Put(24, &[12])]),
    (Reject::Descriptor, "keep-alive", &[Put(19, &[2]), Put(24, &[3])]),
    (Reject::DescriptorLength, "beacon", &[Put(25, &[0])]),
    (Reject::DescriptorLength, "beacon", &[Put(25, &[1])]),
    (Reject::DescriptorLength, "beacon", &[Put(25, &[3])]),
    (Reject::DescriptorLength, "beacon", &[Put(45, &[6])]),
    (Reject::DescriptorLength, "beacon", &[Put(24, &[200, 11])]),
    (Reject::DescriptorLength, "fip-flogi", &[Put(25, &[6])]),
    (Reject::DescriptorCount, "vlan-notification", &[Put(32, &[2, 2])]),
    (Reject::DescriptorCount, "keep-alive-port", &[Put(21, &[12]), Put(52, &[11, 5]), Add(20)]),
    (Reject::DescriptorMissing, "beacon", &[Put(24, &[200])]),
    (Reject::DescriptorMissing, "beacon", &[Put(21, &[5])]),
    (Reject::DescriptorMissing, "keep-alive", &[Put(21, &[0])]),
    (Reject::DescriptorMissing, "fip-flogi", &[Put(21, &[36])]),
    (Reject::DescriptorMissing, "claim-response", &[Put(21, &[51])]),
    (Reject::Kind, "fip-flogi", &[Put(28, &[0x23])]),
    (Reject::Kind, "fip-flogi", &[Put(36, &[0x08])]),
    (Reject::OptionalHeaders, "fip-flogi", &[Put(41, &[0x01])]),
];

/// The smallest faults of payloads.
const PAYLOADS: &[Bad] = &[
    (Reject::Code, "rtv", &[Put(52, &[0x0d])]),
    (Reject::Code, "rtv", &[Put(52, &[0x02])]),
    (Reject::Code, "logo-acc", &[Put(52, &[0x03])]),
    (Reject::Range, "prli", &[Put(53, &[12])]),
    (Reject::Range, "prli", &[Put(56, &[9])]),
    (Reject::Length, "prli", &[Put(55, &[21])]),
    (Reject::Length, "prli", &[Put(54, &[1])]),
    (Reject::Range, "rscn", &[Put(53, &[8])]),
    (Reject::Range, "rscn", &[Put(55, &[4])]),
    (Reject::Length, "rscn", &[Put(55, &[13])]),
    (Reject::Length, "rscn", &[Put(55, &[16])]),
    (Reject::Length, "fcp-cmnd-read", &[Put(63, &[6])]),
    (Reject::Range, "fcp-xfer-rdy", &[Put(56, &[0; 4])]),
    (Reject::Range, "fcp-xfer-rdy", &[Put(52, &[0xff; 4])]),
    (Reject::Offset, "fcp-data-read", &[Put(39, &[0])]),
    (Reject::Range, "fcp-data-read", &[Put(48, &[0xff; 4])]),
    (Reject::Range, "fcp-rsp-sense", &[Put(62, &[0x0e])]),
    (Reject::Length, "fcp-rsp-sense", &[Put(71, &[21])]),
    (Reject::Range, "fcp-rsp-reset", &[Put(75, &[5])]),
    (Reject::Length, "fcp-rsp-reset", &[Put(72, &[1])]),
    (Reject::Version, "ct-gpn-id", &[Put(52, &[2])]),
    (Reject::Code, "ct-gpn-id", &[Put(56, &[0xfa])]),
    (Reject::Code, "ct-gpn-id", &[Put(57, &[3])]),
    (Reject::Code, "ct-gpn-id", &[Put(61, &[0x11])]),
    (Reject::Code, "ct-rjt", &[Put(61, &[0x03])]),
    (Reject::Length, "ct-rspn-id", &[Put(72, &[8])]),
];

/// The reasons that depend on the receiver's state, and the CRC, which has a test of its own.
const OF_STATE: [Reject; 4] =
    [Reject::Crc, Reject::Destination, Reject::Exchange, Reject::Sequence];

#[test]
fn every_reason_is_found_and_is_the_right_one() {
    let mut missing: Vec<Reject> = Reject::ALL.to_vec();
    missing.retain(|reject| !OF_STATE.contains(reject));
    for &(reject, name, changes) in FRAMES.iter().chain(FIP).chain(PAYLOADS) {
        let mut frame = golden(name);
        assert_eq!(fault(&frame), None, "{name}");
        changes.iter().for_each(|change| change.apply(&mut frame));
        mend(&mut frame);
        assert_eq!(fault(&frame), Some(reject), "{name}: {changes:?}");
        missing.retain(|&other| other != reject);
    }
    assert_eq!(missing, [], "reasons without a bad frame");
}

/// The limits from the valid side, and what is ignored.
#[test]
fn the_limits_themselves_and_reserved_bits_are_accepted() {
    let good: &[(&str, &[Change])] = &[
        ("beacon", &[Put(15, &[0xff]), Put(18, &[0xff]), Put(23, &[0x40])]),
        ("beacon", &[Put(34, &[0xff, 0xff])]),
        ("keep-alive", &[Cut(32)]),
        ("claim-response", &[Put(2171, &[1])]),
        ("vlan-notification", &[Put(34, &[0xf0])]),
        ("fcp-conf", &[Put(15, &[0xff; 12]), Put(57, &[0xff; 3])]),
        ("fcp-conf", &[Put(27, &[0x36]), Put(56, &[0x41])]),
        ("fcp-conf", &[Put(32, &[0x55]), Put(37, &[0xd9])]),
        ("fcp-data-read", &[Put(39, &[0x0b])]),
        ("plogi", &[Put(56, &[0xff; 4]), Put(88, &[0xff; 32])]),
        ("plogi", &[Put(122, &[0xff; 2]), Put(136, &[0xff; 32])]),
        ("prli", &[Put(57, &[0xff]), Put(59, &[0xff; 9])]),
        ("fcp-rsp", &[Put(52, &[0xff; 8]), Put(64, &[0xff; 12])]),
        ("ct-gpn-id", &[Put(53, &[0xff; 3]), Put(58, &[0xff; 2]), Put(62, &[0xff; 3])]),
    ];
    for &(name, changes) in good {
        let mut frame = golden(name);
        changes.iter().for_each(|change| change.apply(&mut frame));
        mend(&mut frame);
        assert_eq!(fault(&frame), None, "{name}: {changes:?}");
        assert!(check(&frame));
    }
}
