//! The dissector for Wireshark, `packaging/wireshark/tyche.lua`, held against this crate by tshark:
//! each field of each golden frame, over Ethernet, UDP and TCP; codes; frames of fuzzers.

mod capture;
mod fields;
mod tshark;

use std::collections::BTreeSet;
use std::fmt::Debug;

use tyche_testkit::corpus::corpus;
use tyche_wire::*;

use crate::frames;
use capture::Capture;
use fields::{Field, Fields};
use tshark::{Packet, Shown, Tshark};

/// The port of a target over UDP, and one that nobody knows.
const PORTS: [u16; 2] = [8650, 7777];

/// tshark with the dissector, or the end of the test.
macro_rules! tshark {
    () => {
        match Tshark::find() {
            Some(tshark) => tshark,
            None => {
                println!("SKIPPED: no tshark");
                return;
            }
        }
    };
}

fn golden() -> Vec<Vec<u8>> {
    frames::GOLDEN.map(frames::golden).to_vec()
}

/// The only frame of a packet.
fn only(packet: &Packet) -> &Shown {
    let [shown] = &packet[..] else { panic!("not one frame: {packet:?}") };
    shown
}

fn check(what: &str, shown: &Shown, wanted: &Fields) {
    for (is, wanted) in shown.fields.iter().zip(&wanted.0) {
        assert_eq!(is, wanted, "{what}");
    }
    assert_eq!(shown.fields, wanted.0, "{what}");
}

/// Problems of golden frames: these requests have failed, and this channel is refused.
fn check_problems(what: &str, shown: &Shown) {
    let mut wrong = shown.problems.iter();
    let is_right = |problem: &String| match problem.as_str() {
        "failed" => matches!(what, "command-answers" | "command-times"),
        "refused" => what == "reject",
        problem => problem == "retransmission" && what == "data-stripped",
    };
    assert!(wrong.all(is_right), "{what}: {:?}", shown.problems);
}

#[test]
fn golden_frames_are_shown_field_by_field() {
    let tshark = tshark!();
    let frames = golden();
    let packets = tshark.packets(&Capture::of(frames.iter().map(Vec::as_slice)));
    assert_eq!(packets.len(), frames.len());
    for ((name, frame), packet) in frames::GOLDEN.iter().zip(&frames).zip(&packets) {
        check(name, only(packet), &Fields::of(frame));
        check_problems(name, only(packet));
    }
}

#[test]
fn frames_in_datagrams_are_shown_at_any_port() {
    let tshark = tshark!();
    let frames = golden();
    let mut capture = Capture::new();
    let mut wanted = Vec::new();
    for (port, padding) in [(PORTS[0], 0), (PORTS[1], 100)] {
        for (name, frame) in frames::GOLDEN.iter().zip(&frames) {
            capture.add_datagram(frame, port, padding);
            wanted.push((name, Fields::of(frame).in_datagram(frame, padding)));
        }
    }
    let packets = tshark.packets(&capture);
    assert_eq!(packets.len(), wanted.len());
    for (packet, (name, wanted)) in packets.iter().zip(&wanted) {
        check(name, only(packet), wanted);
        let is_fine = only(packet).problems.iter().all(|it| !it.contains("crc") && it != "length");
        assert!(is_fine, "{name}: {:?}", only(packet).problems);
    }
}

/// Datagrams that the kernel or a card cuts or has put together are captured as one.
#[test]
fn frames_in_trains_are_shown_one_by_one() {
    let tshark = tshark!();
    let frames = golden();
    let mine: Vec<&[u8]> =
        frames.iter().map(Vec::as_slice).filter(|frame| capture::is_to_target(frame)).collect();
    let longest = mine.iter().map(|frame| frame.len()).max().unwrap();
    for segment in [longest, longest + 77] {
        let mut capture = Capture::new();
        let mut wanted = Vec::new();
        for train in mine.chunks(12) {
            capture.add_train(train, segment, PORTS[1]);
            let padded =
                |frame: &&[u8]| Fields::of(frame).in_datagram(frame, segment - frame.len());
            wanted.extend(train.iter().map(padded));
        }
        let packets = tshark.packets(&capture);
        let shown: Vec<_> = packets.iter().flatten().collect();
        assert_eq!(shown.len(), wanted.len());
        for (shown, wanted) in shown.into_iter().zip(&wanted) {
            check("a train", shown, wanted);
        }
    }
}

/// Several frames in one segment, and frames over several segments.
#[test]
fn frames_in_streams_are_shown_wherever_segments_end() {
    let tshark = tshark!();
    let frames = golden();
    for segment in [1448, 333] {
        let mut capture = Capture::new();
        capture.add_streams(&frames, PORTS[1], segment);
        let packets = tshark.packets(&capture);
        let mut shown = packets.iter().flatten();
        for to_target in [true, false] {
            let named = frames::GOLDEN.iter().zip(&frames);
            for (name, frame) in named.filter(|it| capture::is_to_target(it.1) == to_target) {
                let shown = shown.next().unwrap_or_else(|| panic!("{name} is not shown"));
                check(name, shown, &Fields::of(frame).in_stream(frame));
            }
        }
        assert!(shown.next().is_none(), "segments of {segment} bytes");
    }
}

/// A golden frame with another packet number and position, and right checksums.
fn numbered(name: &str, packet: u8, position: u8) -> Vec<u8> {
    let mut frame = frames::golden(name);
    frame[28..36].copy_from_slice(&[packet, 0, 0, 0, 0, 0, 0, 0]);
    frame[36..40].copy_from_slice(&[position, 0, 0, 0]);
    frames::mend(&mut frame);
    frame
}

fn found(name: &str, value: &str) -> Field {
    (name.to_owned(), value.to_owned())
}

#[test]
fn answers_and_retransmissions_are_found() {
    let tshark = tshark!();
    let capture = [
        frames::golden("discover"),
        frames::golden("offer"),
        frames::golden("hello"),
        frames::golden("hello-reply"),
        frames::golden("connect"),
        frames::golden("connect"),
        frames::golden("accept"),
        numbered("data-write", 1, 0),
        numbered("data-write", 2, 0),
        // The answer to slot 10, generation 4.
        answer_to([10, 0, 4, 0]),
        numbered("fence", 3, 0),
        numbered("fenced", 2, 0),
        numbered("echo", 4, 0),
        numbered("echo-reply", 3, 0),
        numbered("disconnect", 5, 0),
        numbered("disconnect-reply", 4, 0),
    ];
    let packets = tshark.packets(&Capture::of(capture.iter().map(Vec::as_slice)));
    let found_of = |number: usize| only(&packets[number - 1]).found.clone();
    for (question, answer, time) in [
        (1, 2, "0.000010000"),
        (3, 4, "0.000010000"),
        (5, 7, "0.000020000"),
        (8, 10, "0.000020000"),
        (11, 12, "0.000010000"),
        (13, 14, "0.000010000"),
        (15, 16, "0.000010000"),
    ] {
        assert_eq!(found_of(question), [found("response_in", &answer.to_string())]);
        let wanted = [found("response_to", &question.to_string()), found("time", time)];
        assert_eq!(found_of(answer), wanted, "packet {answer}");
    }
    assert_eq!(found_of(6), [found("retransmission", "5")]);
    assert_eq!(found_of(9), [found("retransmission", "8")]);
    assert_eq!(only(&packets[8]).problems, ["retransmission"]);
}

/// Where the capture began too late, a tag tells whose answer it is, unless two channels between
/// the same addresses have it.
#[test]
fn answers_are_found_without_a_handshake_where_they_are_unique() {
    let tshark = tshark!();
    let request = numbered("data-write", 1, 0);
    let answer = answer_to([10, 0, 4, 0]);
    let mut other = request.clone();
    other[COOKIE_AT] ^= 1;
    frames::mend(&mut other);
    let unique = [&request[..], &answer];
    let ambiguous = [&request[..], &other, &answer];
    let packets = tshark.packets(&Capture::of(unique));
    assert_eq!(only(&packets[0]).found, [found("response_in", "2")]);
    let packets = tshark.packets(&Capture::of(ambiguous));
    assert!(packets.iter().all(|packet| only(packet).found.is_empty()));
}

/// The golden frame of answers, as the answer to the request with this tag alone.
fn answer_to(tag: [u8; 4]) -> Vec<u8> {
    let mut frame = numbered("command-answers", 1, 0);
    frame.truncate(HEAD_LEN + ENTRY_LEN);
    frame[frames::ENTRIES] = 1;
    frame[HEAD_LEN + 4..HEAD_LEN + 8].copy_from_slice(&tag);
    frames::mend(&mut frame);
    frame
}

#[test]
fn sealed_frames_are_shown_as_sealed() {
    let tshark = tshark!();
    let channel = ["data-write", "ack", "fence"].map(|name| {
        let mut frame = frames::golden(name);
        frame[frames::FLAGS] = 0;
        frame.extend([0x5e; TAG_LEN]);
        frame[frames::PAYLOAD_CRC..frames::HEADER_CRC].fill(0);
        let crc = Checksum::of(&frame[frames::VERSION..frames::HEADER_CRC]);
        frames::put_u32(&mut frame, frames::HEADER_CRC, crc);
        frame
    });
    let packets = tshark.packets(&Capture::of(channel.iter().map(Vec::as_slice)));
    for (packet, frame) in packets.iter().zip(&channel) {
        let mut wanted = Fields::default();
        let (payload, tag) = frame[HEAD_LEN..].split_at(frame.len() - HEAD_LEN - TAG_LEN);
        if !payload.is_empty() {
            wanted.bytes("sealed", payload);
        }
        wanted.bytes("seal_tag", tag);
        let fields = &only(packet).fields;
        let header = fields.iter().position(|(name, _)| name == "header_crc").unwrap();
        assert_eq!(fields[header + 1..], wanted.0);
        assert!(only(packet).problems.is_empty(), "{:?}", only(packet).problems);
    }
}

/// The EtherType is everybody's, and so is a port; over UDP at Tyche's own port a damaged header is
/// named.
#[test]
fn damaged_and_foreign_frames_are_told_apart() {
    let tshark = tshark!();
    let mut payload = frames::golden("data-read");
    *payload.last_mut().unwrap() ^= 1;
    let mut header = frames::golden("keepalive");
    header[frames::FLAGS] ^= 8;
    let mut other = frames::golden("discover");
    other[frames::VERSION] = 3;
    frames::mend(&mut other);
    let foreign = [&payload[..ETHERNET_LEN], &[0x17; 80]].concat();
    let mut capture = Capture::of([&payload[..], &header, &other, &foreign]);
    capture.add_datagram(&header, PORTS[0], 0);
    capture.add_datagram(&header, PORTS[1], 0);
    let packets = tshark.packets(&capture);
    assert_eq!(only(&packets[0]).problems, ["payload_crc"]);
    assert!(packets[1].is_empty());
    assert_eq!(only(&packets[2]).problems, ["version"]);
    let names: Vec<_> = only(&packets[2]).fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[2], "other_version");
    assert_eq!(names[names.len() - 3..], ["nonce", "version_min", "version_max"]);
    assert!(packets[3].is_empty());
    assert_eq!(only(&packets[4]).problems, ["header_crc"]);
    assert!(packets[5].is_empty());
}

/// Whatever comes, the script makes no error, and claims what has a right header, also if less was
/// captured than sent.
#[test]
fn frames_of_fuzzers_make_no_error() {
    let tshark = tshark!();
    let mut capture = Capture::new();
    let mut claimed = Vec::new();
    let mut add = |frame: &[u8], len: usize| {
        let is_there = frame.len() >= HEAD_LEN
            && Checksum::of(&frame[frames::VERSION..frames::HEADER_CRC])
                == frames::u32_at(frame, frames::HEADER_CRC);
        let kind = frame.get(frames::KIND).copied().unwrap_or_default();
        let is_known = frame.get(frames::VERSION) == Some(&VERSION)
            && Kind::ALL.iter().any(|&it| it as u8 == kind)
            || [1, 2, 6].contains(&kind);
        let is_ours = frame.get(12..ETHERNET_LEN) == Some(&ETHERTYPE.to_be_bytes()[..]);
        capture.add(frame, len);
        claimed.push(is_there && is_known && is_ours);
    };
    for mut input in corpus(env!("CARGO_MANIFEST_DIR"), "frame") {
        add(&input, input.len());
        if input.len() < HEAD_LEN {
            continue;
        }
        input[12..ETHERNET_LEN].copy_from_slice(&ETHERTYPE.to_be_bytes());
        frames::mend(&mut input);
        add(&input, input.len());
        for captured in [HEAD_LEN, HEAD_LEN + 5, HEAD_LEN + 100, input.len() - 1] {
            add(&input[..captured.min(input.len())], input.len());
        }
        frames::mend_len(&mut input);
        add(&input, input.len());
    }
    let packets = tshark.packets(&capture);
    let are_claimed: Vec<_> = packets.iter().map(|packet| !packet.is_empty()).collect();
    assert_eq!(are_claimed, claimed);
    assert!(claimed.iter().filter(|&&claimed| claimed).count() > 3 * frames::GOLDEN.len());
}

/// The same in datagrams and in streams, where lengths of the frames' surroundings are wrong, too.
#[test]
fn streams_of_fuzzers_make_no_error() {
    let tshark = tshark!();
    let mut capture = Capture::new();
    let mut all = Vec::new();
    for mut input in corpus(env!("CARGO_MANIFEST_DIR"), "frame") {
        if input.len() < HEAD_LEN || input.len() > 60_000 {
            continue;
        }
        input[11] = 1;
        frames::mend(&mut input);
        capture.add_datagram(&input, PORTS[0], 3);
        all.push(input);
    }
    capture.add_streams(&all, PORTS[1], 777);
    // Each stream ends at a wrong length.
    for (index, len) in [3_u32, 63, 65_550, u32::MAX].into_iter().enumerate() {
        let mut frames = vec![frames::golden("connect")];
        frames[0].extend(len.to_le_bytes());
        frames[0].extend([7; 200]);
        capture.add_streams(&frames, 9000 + index as u16, 500);
    }
    let packets = tshark.packets(&capture);
    assert!(packets.iter().flatten().count() > all.len());
}

/// Codes as `tshark -G values` prints them: field, code, name.
fn codes<T: Copy + Debug>(field: &str, all: &[T], code: impl Fn(T) -> u32) -> Vec<String> {
    all.iter().map(|&it| format!("tyche.{field} {} {it:?}", code(it))).collect()
}

/// So that no field is left out of these tests.
#[test]
fn all_fields_are_those_of_these_tests() {
    let tshark = tshark!();
    let printed = tshark.run(&["-G", "fields"]);
    let names = printed.lines().filter(|line| line.starts_with("F\t"));
    let names = names.filter_map(|line| line.split('\t').nth(2)?.strip_prefix("tyche."));
    let is: BTreeSet<_> =
        names.filter(|name| !name.starts_with("problem.")).map(str::to_owned).collect();
    let mut wanted: BTreeSet<_> = ["seal_tag", "sealed", "other_version"].map(str::to_owned).into();
    wanted.extend(tshark::FOUND.map(str::to_owned));
    for frame in golden() {
        let stream = Fields::of(&frame).in_stream(&frame);
        let datagram = Fields::of(&frame).in_datagram(&frame, 1);
        wanted.extend(stream.0.into_iter().chain(datagram.0).map(|(name, _)| name));
    }
    assert_eq!(is, wanted);
}

#[test]
fn codes_have_the_names_of_the_code() {
    let tshark = tshark!();
    let printed = tshark.run(&["-G", "values"]);
    let is: BTreeSet<String> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("V\ttyche."))
        .map(|line| {
            let parts: Vec<_> = line.split('\t').collect();
            let hexadecimal = parts[1].strip_prefix("0x").map(|it| u32::from_str_radix(it, 16));
            let code = hexadecimal.unwrap_or_else(|| parts[1].parse()).unwrap();
            format!("tyche.{} {code} {}", parts[0], parts[2])
        })
        .collect();
    let mut wanted = codes("kind", Kind::ALL, |it| it as u32);
    wanted.extend(codes("operation", Opcode::ALL, |it| it as u32));
    wanted.extend(codes("status", Status::ALL, |it| it as u32));
    wanted.extend(codes("outcome", Status::ALL, |it| it as u32));
    wanted.extend(codes("reason", Reason::ALL, |it| it as u32));
    let others = [
        "tyche.outcome 254 Unknown",
        "tyche.outcome 255 NotExecuted",
        "tyche.event 1 Resized",
        "tyche.event 2 Removed",
        "tyche.entry.kind 1 Command",
        "tyche.entry.kind 2 Completion",
        "tyche.entry.kind 3 Data",
        "tyche.entry.kind 4 Event",
        "tyche.entry.kind 5 Echo",
        "tyche.entry.kind 6 Credit",
    ];
    wanted.extend(others.map(str::to_owned));
    assert_eq!(is, wanted.into_iter().collect());
}
