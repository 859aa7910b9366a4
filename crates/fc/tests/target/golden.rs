//! The frames that the lane sends are, byte for byte, the golden ones.

use tyche_fc::target::{Completion, Data};
use tyche_fc::wire::fcp::ResponseCode;
use tyche_testkit::golden::Golden;

use crate::rig::{HOST, Rig, config};

fn golden(name: &str) -> Vec<u8> {
    Golden { root: concat!(env!("CARGO_MANIFEST_DIR"), "/../fc-wire") }.frame(name)
}

#[test]
fn exchanges_consist_of_golden_frames() {
    let mut rig = Rig::new(config(16));
    assert_eq!(rig.receive(&golden("fcp-cmnd-read")), "offer 0");
    assert_eq!(rig.receive(&golden("fcp-cmnd-write")), "offer 1");
    rig.accept(1, Data::Out(4096));
    assert_eq!(rig.next_frame().unwrap(), golden("fcp-xfer-rdy"));
    rig.data(0x2b, 1, 0, (0, 2016), false);
    rig.data(0x2b, 1, 1, (2016, 2016), false);
    assert_eq!(rig.receive(&golden("fcp-data-write")), "place 1 4032+64, execute 1");
    assert!(rig.memory[&1][4032..].iter().all(|it| *it == 0xd7));
    rig.complete(1, 0);
    assert_eq!(rig.next_frame().unwrap(), golden("fcp-rsp"));
    assert_eq!(rig.receive(&golden("fcp-cmnd-reset")), "release 1");
    assert_eq!(rig.complete(0, 0), "release 0, manage 2 reset");
    rig.managed(2, ResponseCode::Complete);
    assert_eq!(rig.next_frame().unwrap(), golden("fcp-rsp-reset"));
}

#[test]
fn data_of_a_read_are_golden_frames() {
    let mut rig = Rig::new(config(16));
    rig.log_in(HOST, 128);
    rig.receive(&golden("fcp-cmnd-read"));
    rig.memory.insert(0, [[0x11; 128].as_slice(), &[1, 2, 3, 4, 5]].concat());
    let completion = Completion { len: 133, ..Completion::default() };
    rig.lane.complete(rig.now, 0, &completion);
    assert_eq!(rig.next_frame().unwrap(), golden("fcp-data-read"));
    assert_eq!(rig.next_frame().unwrap(), golden("fcp-data-fill"));
    assert_eq!(rig.receive(&golden("abts")), "release 0");
    assert_eq!(rig.next_frame().unwrap(), golden("ba-acc"));
}
