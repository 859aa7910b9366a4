//! Reads: data and responses in any order, and the room for them.

use tyche_fc::initiator::{Data, Failure, LaneConfig, Refused, Taken};
use tyche_fc::wire::fcp::{Residual, Response};
use tyche_fc::wire::{FCtl, Header, Kind, Xid};

use crate::script::{FRAME, R_A_TOV, REC_TOV, Script, config, header};

#[test]
fn a_read_ends_with_its_response() {
    let mut script = Script::new();
    let name = script.read(5000);
    assert_eq!(script.sent(), "command 002a");
    for (offset, len) in [(0, FRAME), (FRAME, FRAME), (2 * FRAME, 5000 - 2 * FRAME)] {
        assert!(script.ends().is_empty());
        assert!(script.data(0x2a, offset, len));
    }
    script.good(0x2a);
    assert_eq!(script.ends(), [(name, Ok(0))]);
    assert!(script.is_whole(name));
    assert_eq!((script.lane.commands(), script.sent()), (0, String::new()));
    script.lane.handle_timeout(script.now + crate::script::ms(60_000));
    assert_eq!(script.lane.poll_timeout(), None);
}

#[test]
fn data_may_come_in_any_order_and_after_the_response() {
    let mut script = Script::new();
    let name = script.read(3 * FRAME);
    assert!(script.data(0x2a, 2 * FRAME, FRAME));
    script.good(0x2a);
    assert!(script.data(0x2a, 0, FRAME));
    assert!(script.ends().is_empty());
    assert!(script.data(0x2a, FRAME, FRAME));
    assert_eq!(script.ends(), [(name, Ok(0))]);
    assert!(script.is_whole(name));
}

#[test]
fn data_that_come_twice_do_not_stand_in_for_those_that_are_missing() {
    let mut script = Script::new();
    let name = script.read(2 * FRAME);
    assert!(script.data(0x2a, 0, FRAME) && !script.data(0x2a, 0, FRAME));
    script.good(0x2a);
    assert!(script.ends().is_empty());
    script.good(0x2a);
    assert_eq!(script.lane.ignored().duplicate, 2);
    assert!(script.data(0x2a, FRAME, FRAME));
    assert_eq!(script.ends(), [(name, Ok(0))]);
}

#[test]
fn data_that_are_missing_a_millisecond_after_the_response_are_lost() {
    let mut script = Script::new();
    let name = script.read(2 * FRAME);
    script.data(0x2a, FRAME, FRAME);
    script.good(0x2a);
    script.now = script.now.plus_ns(999_999);
    script.lane.handle_timeout(script.now);
    script.drain();
    assert!(script.ends().is_empty());
    script.wait(1);
    assert_eq!(script.ends(), [(name, Err(Failure::DataLost))]);
    assert!(!script.data(0x2a, 0, FRAME), "it is late");
    assert_eq!((script.lane.ignored().late, script.lane.repairs().data_lost), (1, 1));
    // Its XID comes back last, and not before R_A_TOV.
    for index in 1..0x80 {
        let name = script.flush();
        assert_eq!(script.sent(), format!("command {}", Xid(0x2a + index)));
        script.good(0x2a + index);
        assert_eq!(script.ends(), [(name, Ok(0))]);
    }
    script.flush();
    assert_eq!(script.sent(), "command 002b");
    script.wait(R_A_TOV);
    assert_eq!(script.lane.handle_frame(script.now, &frame_of(0x2a)), Taken::Done);
    assert_eq!(script.lane.ignored().no_exchange, 1);
}

fn frame_of(ox_id: u16) -> tyche_fc::wire::Frame<'static> {
    let (ours, theirs) = (crate::script::OURS, crate::script::THEIRS);
    let (destination, source) = (crate::script::mac(ours), crate::script::mac(theirs));
    let ethernet = tyche_fc::wire::Ethernet { destination, source };
    tyche_fc::wire::Frame { ethernet, header: header(Kind::FcpData, ox_id), payload: &[1; 4] }
}

#[test]
fn fewer_data_than_asked_for_are_all_if_the_response_says_so() {
    let mut script = Script::new();
    let name = script.read(4096);
    script.data(0x2a, 0, 36);
    script.respond(0x2a, &Response { residual: Residual::Under(4060), ..Response::GOOD });
    assert_eq!(script.ends[0].end.unwrap().residual, Residual::Under(4060));
    assert_eq!(script.ends(), [(name, Ok(0))]);
    let name = script.read(4096);
    script.respond(0x2b, &Response { residual: Residual::Under(4096), ..Response::GOOD });
    assert_eq!(script.ends(), [(name, Ok(0))]);
    script.read(4096);
    script.respond(0x2c, &Response { residual: Residual::Under(4097), ..Response::GOOD });
    assert_eq!((script.ends(), script.lane.ignored().malformed), (vec![], 1));
}

#[test]
fn a_status_ends_a_read_without_its_data() {
    let mut script = Script::new();
    let name = script.read(4096);
    script.data(0x2a, 0, FRAME);
    let sense = [0x70, 0, 3, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0];
    script.respond(0x2a, &Response { status: 2, sense: &sense, ..Response::GOOD });
    assert_eq!(script.ends[0].end.unwrap().sense[..], sense);
    assert_eq!(script.ends(), [(name, Ok(2))]);
    assert!(!script.data(0x2a, FRAME, FRAME));
    assert_eq!(script.lane.ignored().late, 1, "its XID is quarantined");
    let name = script.read(4096);
    let long = [0x55; 252];
    script.respond(0x2b, &Response { status: 2, sense: &long, ..Response::GOOD });
    assert_eq!(script.ends[0].end.unwrap().sense[..], [0x55; 96], "the first bytes");
    assert_eq!(script.ends(), [(name, Ok(2))]);
    let name = script.read(4096);
    script.respond(0x2c, &Response { code: Some(2), ..Response::GOOD });
    assert_eq!(script.ends(), [(name, Err(Failure::Refused(2)))]);
}

#[test]
fn data_behind_the_end_and_of_no_offset_have_no_effect() {
    let mut script = Script::new();
    script.read(4096);
    assert!(!script.data(0x2a, 4095, 2) && !script.data(0x2a, 4096, 4));
    assert!(!script.data(0x2a, u32::MAX - 3, 4), "nor does the sum overflow");
    assert_eq!((script.lane.ignored().beyond, script.lane.ignored().malformed), (2, 1));
    let none = Header { f_ctl: FCtl::EX_CTX, ..header(Kind::FcpData, 0x2a) };
    assert_eq!(script.receive(none, &[1; 4]), Taken::Done);
    assert_eq!(script.lane.ignored().malformed, 2);
    assert!(script.data(0x2a, 4095, 1));
}

#[test]
fn frames_of_others_have_no_effect() {
    let mut script = Script::new();
    let name = script.read(4096);
    script.data(0x2a, 0, FRAME);
    let data = header(Kind::FcpData, 0x2a);
    let data = Header { parameter: FRAME, ..data };
    let ids = [
        Header { s_id: crate::script::OURS, ..data },
        Header { d_id: crate::script::THEIRS, ..data },
        Header { rx_id: Xid(7), ..data },
        Header { ox_id: Xid(0x2b), ..data },
        Header { kind: Kind::FcpXferRdy, ..data },
        Header { kind: Kind::ElsReply, ..data },
        Header { kind: Kind::FcpCmnd, ..data },
        Header { kind: Kind::BaAcc, ..data },
        Header { kind: Kind::BaRjt, ..data },
    ];
    for header in ids {
        assert_eq!(script.receive(header, &[0; 32]), Taken::Done, "{header:?}");
    }
    let ignored = script.lane.ignored();
    assert_eq!((ignored.stranger, ignored.other_rx_id, ignored.no_exchange), (2, 1, 1));
    assert_eq!((ignored.unexpected, ignored.malformed), (5, 0));
    let not_ours = [
        Header { f_ctl: FCtl::REL_OFF, ..data },
        Header { ox_id: Xid(0x29), ..data },
        Header { ox_id: Xid(0xaa), ..data },
        Header { ox_id: Xid::NONE, ..data },
    ];
    for header in not_ours {
        assert_eq!(script.receive(header, &[0; 32]), Taken::NotOurs, "{header:?}");
    }
    let mut frame = frame_of(0x2a);
    frame.ethernet.source.0[0] = 2;
    assert_eq!(script.receive_frame(&frame), Taken::Done);
    assert_eq!(script.lane.ignored().stranger, 3);
    script.data(0x2a, FRAME, FRAME);
    script.data(0x2a, 2 * FRAME, 4096 - 2 * FRAME);
    script.good(0x2a);
    assert_eq!(script.ends(), [(name, Ok(0))]);
    assert!(script.is_whole(name));
}

#[test]
fn reads_wait_in_order_until_the_ring_has_room_for_their_frames() {
    let mut script = Script::with(LaneConfig { read_frames: 8, ..config() });
    let [large, huge, small] = [5, 20, 1].map(|frames| script.read(frames * FRAME));
    script.write(100 * FRAME);
    assert_eq!(script.sent(), "command 002a, command 002d", "six frames, and a write");
    script.wait(100);
    for index in 0..5 {
        script.data(0x2a, index * FRAME, FRAME);
    }
    script.good(0x2a);
    assert_eq!(script.sent(), "command 002b", "more than there is room for, but alone");
    for index in 0..20 {
        script.data(0x2b, index * FRAME, FRAME);
    }
    script.good(0x2b);
    assert_eq!(script.sent(), "command 002c");
    script.data(0x2c, 0, FRAME);
    script.good(0x2c);
    assert_eq!(script.ends(), [(large, Ok(0)), (huge, Ok(0)), (small, Ok(0))]);
}

#[test]
fn a_read_that_is_aborted_makes_room_for_others() {
    let mut script = Script::with(LaneConfig { read_frames: 8, ..config() });
    script.read(5 * FRAME);
    script.read(5 * FRAME);
    assert_eq!(script.sent(), "command 002a");
    assert_eq!(script.wait(4 * REC_TOV), "ask 002a, ask 002a, ask 002a, abort 002a, command 002b");
    script.accept_abort(0x2a);
    script.read(5 * FRAME);
    assert_eq!(script.sent(), "", "it has made room once");
}

#[test]
fn losses_halve_the_room_and_what_goes_well_widens_it() {
    let mut script = Script::with(LaneConfig { read_frames: 100, ..config() });
    let lose = |script: &mut Script, ox_ids: [u16; 3]| {
        for _ in ox_ids {
            script.read(FRAME);
        }
        ox_ids.iter().for_each(|ox_id| script.good(*ox_id));
        script.wait(1);
    };
    lose(&mut script, [0x2a, 0x2b, 0x2c]);
    assert_eq!(script.lane.frames()[0], 50, "once for all that were on the way");
    script.wait(10);
    lose(&mut script, [0x2d, 0x2e, 0x2f]);
    assert_eq!(script.lane.frames()[0], 25);
    script.ends();
    for (index, frames) in (0..4).zip([25, 57, 89, 100]) {
        assert_eq!(script.lane.frames()[0], frames);
        script.wait(10);
        script.read(FRAME);
        script.read(FRAME);
        for ox_id in [0x30 + 2 * index, 0x31 + 2 * index] {
            script.data(ox_id, 0, FRAME);
            script.good(ox_id);
        }
    }
    assert_eq!(script.ends().len(), 8);
}

#[test]
fn there_are_no_more_commands_than_the_depth_and_the_xids() {
    let mut script = Script::new();
    for _ in 0..32 {
        script.flush();
    }
    assert_eq!(script.try_submit(0x91, Data::None), Err(Refused::Full));
    assert_eq!(script.lane.repairs().no_xid, 0);
    (0x2a..0x4a).for_each(|ox_id| script.good(ox_id));
    assert_eq!(script.ends().len(), 32);
    // Of 128 XIDs, 16 are kept for questions.
    for index in 0..112 {
        let name = script.read(FRAME);
        script.good(0x4a + index - if index >= 0x60 { 0x80 } else { 0 });
        script.wait(1);
        assert_eq!(script.ends(), [(name, Err(Failure::DataLost))], "{index}");
    }
    assert_eq!(script.try_submit(0x91, Data::None), Err(Refused::Full));
    assert_eq!(script.lane.repairs().no_xid, 1);
    script.wait(R_A_TOV);
    script.flush();
}
