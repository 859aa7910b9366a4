//! Literal frames: those that the lane sends, and those that it takes.

use tyche_fc::initiator::{Command, Data};
use tyche_fc::wire::fcp::Response;
use tyche_testkit::golden::Golden;

use crate::script::{FRAME, OURS_TO_GO_ON, R_A_TOV, REC_TOV, Script, byte, parse};

const FILES: Golden = Golden { root: concat!(env!("CARGO_MANIFEST_DIR"), "/../fc-wire") };

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x} ")).collect()
}

/// Checks a frame. OX_ID and CRC may differ, if it is not the first exchange.
#[track_caller]
fn assert_frame(script: &Script, name: &str, is_first: bool) {
    let golden = FILES.frame(name);
    let [sent] = &script.seen[..] else { panic!("{} frames", script.seen.len()) };
    let crc = golden.len() - 8;
    if is_first {
        assert_eq!(hex(sent), hex(&golden), "{name}");
    } else {
        assert_eq!(hex(&sent[..44]), hex(&golden[..44]), "{name}");
        assert_eq!(hex(&sent[46..crc]), hex(&golden[46..crc]), "{name}");
    }
}

/// Gives the lane a golden frame.
fn receive(script: &mut Script, name: &str) -> String {
    let bytes = FILES.frame(name);
    let _ = script.receive_frame(&parse(&bytes));
    script.sent()
}

/// The read of the golden frames, of which some data have come.
fn read(script: &mut Script) -> u16 {
    let cdb = [0x88, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0, 0];
    let unit = script.unit;
    let data = Data::In(4096);
    let command = Command { unit, cdb, data, modifies: false, hears_attentions: true };
    let name = script.submit_command(&command).unwrap();
    script.sent();
    assert_frame(script, "fcp-cmnd-read", true);
    receive(script, "fcp-data-read");
    assert_eq!(script.buffers[&name][..129], [[0x11; 128].as_slice(), &[0xa5]].concat());
    name
}

#[test]
fn a_read_and_the_end_of_its_exchange_have_these_bytes() {
    let mut script = Script::new();
    read(&mut script);
    receive(&mut script, "fcp-data-fill");
    assert_eq!(script.buffers[&0][127..134], [0x11, 1, 2, 3, 4, 5, 0xa5], "without the fill");
    assert_eq!(script.wait(REC_TOV), "ask 002a");
    assert_frame(&script, "rec", false);
    assert_eq!(script.state(0x2a, OURS_TO_GO_ON), "abort 002a");
    assert_frame(&script, "abts", true);
    assert_eq!(receive(&mut script, "ba-acc"), "");
    assert_eq!(script.wait(R_A_TOV - 1), "");
    assert_eq!(script.wait(1), "release 002a");
    assert_frame(&script, "rrq", false);
}

#[test]
fn a_write_has_these_bytes() {
    let mut script = Script::new();
    script.flush();
    script.good(0x2a);
    script.sent();
    let name = script.write(4096);
    script.sent();
    let (command, golden) = (script.seen.pop().unwrap(), FILES.frame("fcp-cmnd-write"));
    assert_eq!(hex(&command[..60]), hex(&golden[..60]));
    assert_eq!(command[60..64], [0, 0, 0, 1], "no CRN, simple, WRDATA");
    assert_eq!(hex(&command[80..84]), hex(&golden[80..84]));
    let sent = "data 002b 0+2016, data 002b 2016+2016, data 002b 4032+64!";
    assert_eq!(receive(&mut script, "fcp-xfer-rdy"), sent);
    let (last, golden) = (&script.seen[2], FILES.frame("fcp-data-write"));
    assert_eq!(hex(&last[..52]), hex(&golden[..52]));
    let data: Vec<u8> = (2 * FRAME..4096).map(byte).collect();
    assert_eq!((hex(&last[52..116]), hex(&last[120..])), (hex(&data), hex(&golden[120..])));
    script.good(0x2b);
    assert_eq!(script.ends(), [(0, Ok(0)), (name, Ok(0))]);
}

#[test]
fn a_response_is_confirmed_if_the_target_asks_for_it() {
    let mut script = Script::new();
    let name = script.flush();
    script.sent();
    script.respond(0x2a, &Response { confirm: true, ..Response::GOOD });
    assert_eq!((script.ends(), script.sent()), (vec![(name, Ok(0))], "confirm 002a".into()));
    assert_frame(&script, "fcp-conf", true);
    script.good(0x2a);
    assert_eq!(script.lane.ignored().no_exchange, 1, "that was its last frame");
}

#[test]
fn a_status_without_data_is_confirmed_and_its_xid_quarantined() {
    let mut script = Script::new();
    let name = script.read(4096);
    script.sent();
    script.respond(0x2a, &Response { status: 2, confirm: true, ..Response::GOOD });
    assert_eq!((script.ends(), script.sent()), (vec![(name, Ok(2))], "confirm 002a".into()));
    script.data(0x2a, 0, 4);
    assert_eq!(script.lane.ignored().late, 1);
}

#[test]
fn the_xid_of_a_command_that_was_not_begun_is_free() {
    for status in [0x08, 0x18, 0x28] {
        let mut script = Script::new();
        let name = script.read(4096);
        script.sent();
        script.respond(0x2a, &Response { status, ..Response::GOOD });
        assert_eq!(script.ends(), [(name, Ok(status))]);
        script.data(0x2a, 0, 4);
        let ignored = script.lane.ignored();
        assert_eq!((ignored.late, ignored.no_exchange), (0, 1), "it is not quarantined");
    }
}
