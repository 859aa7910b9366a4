//! The frames that the lane sends are, byte for byte, the golden ones.

use tyche_fc::target_end::{Completion, Data};
use tyche_fc::wire::fcp::ResponseCode;
use tyche_fc::wire::{FRAME_LEN_MAX, Frame, HEAD_LEN};
use tyche_testkit::golden::Golden;

use crate::rig::{HOST, Rig, config};

fn golden(name: &str) -> Vec<u8> {
    Golden { root: concat!(env!("CARGO_MANIFEST_DIR"), "/../fc-wire") }.frame(name)
}

/// Compares a frame with a golden one, but for RX_ID and CRC.
#[track_caller]
fn assert_golden(mut sent: Vec<u8>, name: &str) {
    let mut golden = golden(name);
    let end = golden.len();
    let mut rx_ids = vec![46..48, end - 8..end - 4];
    if name == "ba-acc" {
        rx_ids.push(58..60);
    }
    for place in rx_ids {
        sent[place.clone()].fill(0);
        golden[place].fill(0);
    }
    assert_eq!(sent, golden, "{name}");
}

/// A golden frame of the host, with the RX_ID that an exchange has here.
fn of_host(rig: &Rig, name: &str, exchange: u16) -> Vec<u8> {
    let bytes = golden(name);
    let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
    let mut frame = Frame::parse(head, rest).unwrap();
    frame.header.rx_id = rig.rx_id(exchange);
    let mut buffer = [0; FRAME_LEN_MAX];
    let len = frame.emit(&mut buffer);
    buffer[..len].to_vec()
}

#[test]
fn exchanges_consist_of_golden_frames() {
    let mut rig = Rig::new(config(16));
    assert_eq!(rig.receive(&golden("fcp-cmnd-read")), "offer 0");
    assert_eq!(rig.receive(&golden("fcp-cmnd-write")), "offer 1");
    rig.accept(1, Data::Out(4096));
    assert_golden(rig.next_frame().unwrap(), "fcp-xfer-rdy");
    rig.data(0x2b, 1, 0, (0, 2016), false);
    rig.data(0x2b, 1, 1, (2016, 2016), false);
    let last = of_host(&rig, "fcp-data-write", 1);
    assert_eq!(rig.receive(&last), "place 1 4032+64, execute 1");
    assert!(rig.memory[&1][4032..].iter().all(|it| *it == 0xd7));
    rig.complete(1, 0);
    assert_golden(rig.next_frame().unwrap(), "fcp-rsp");
    assert_eq!(rig.receive(&golden("fcp-cmnd-reset")), "release 1");
    assert_eq!(rig.complete(0, 0), "release 0, manage 2 reset");
    rig.managed(2, ResponseCode::Complete);
    assert_golden(rig.next_frame().unwrap(), "fcp-rsp-reset");
}

#[test]
fn data_of_a_read_are_golden_frames() {
    let mut rig = Rig::new(config(16));
    rig.log_in(HOST, 128);
    rig.receive(&golden("fcp-cmnd-read"));
    rig.memory.insert(0, [[0x11; 128].as_slice(), &[1, 2, 3, 4, 5]].concat());
    let completion = Completion { len: 133, ..Completion::default() };
    rig.lane.complete(rig.now, 0, &completion);
    assert_golden(rig.next_frame().unwrap(), "fcp-data-read");
    assert_golden(rig.next_frame().unwrap(), "fcp-data-fill");
    let abts = of_host(&rig, "abts", 0);
    assert_eq!(rig.receive(&abts), "release 0");
    assert_golden(rig.next_frame().unwrap(), "ba-acc");
}
