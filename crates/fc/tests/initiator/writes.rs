//! Writes: data go out as they are asked for, once.

use tyche_fc::initiator::{Failure, LaneConfig};
use tyche_fc::wire::fcp::{Residual, Response};
use tyche_fc::wire::{Header, Kind, Xid};

use crate::script::{
    FRAME, OURS, OURS_TO_GO_ON, REC_TOV, Script, WWPN, config, header, login, mac, parse,
};

#[test]
fn bursts_are_sent_as_they_are_asked_for_in_any_order() {
    let mut script = Script::new();
    let name = script.write(3 * FRAME);
    assert_eq!(script.sent(), "command 002a");
    assert_eq!(script.ask_for(0x2a, 2 * FRAME, FRAME), "data 002a 4032+2016!");
    let sent = "data 002a 0+2016, data 002a 2016+2016!";
    assert_eq!(script.ask_for(0x2a, 0, 2 * FRAME), sent);
    let places: Vec<_> = script.seen.iter().map(|it| parse(it).header).collect();
    let places: Vec<_> = places.iter().map(|it| (it.seq_id, it.seq_cnt)).collect();
    assert_eq!(places, [(2, 0), (2, 1)], "each burst is a sequence");
    script.good(0x2a);
    assert_eq!(script.ends(), [(name, Ok(0))]);
}

#[test]
fn frames_of_a_burst_follow_one_another_and_commands_overtake_them() {
    let mut script = Script::new();
    script.write(3 * FRAME);
    script.write(2 * FRAME);
    script.sent();
    script.is_full = true;
    script.ask_for(0x2a, 0, 3 * FRAME);
    script.ask_for(0x2b, 0, 2 * FRAME);
    script.is_full = false;
    let mut frame = tyche_fc::Outgoing::new();
    assert!(script.lane.poll_transmit(script.now, &mut frame));
    assert_eq!(frame.part().unwrap().exchange, 0);
    script.flush();
    let sent = "command 002c, data 002a 2016+2016, data 002a 4032+2016!, \
                data 002b 0+2016, data 002b 2016+2016!";
    assert_eq!(script.sent(), sent);
}

#[test]
fn a_request_for_data_during_another_burst_is_a_fault() {
    let mut script = Script::new();
    script.write(3 * FRAME);
    assert_eq!(script.sent(), "command 002a");
    script.is_full = true;
    script.ask_for(0x2a, 0, FRAME);
    script.ask_for(0x2a, FRAME, FRAME);
    script.is_full = false;
    script.drain();
    assert_eq!(script.sent(), "abort 002a");
    let mut script = Script::new();
    script.write(3 * FRAME);
    script.is_full = true;
    script.ask_for(0x2a, 0, 3 * FRAME);
    script.ask_for(0x2a, 3 * FRAME, 4);
    script.good(0x2a);
    assert_eq!((script.ends(), script.lane.ignored().premature), (vec![], 1), "nothing was sent");
}

#[test]
fn commands_are_numbered_for_each_xid_if_the_user_wants_it() {
    let mut script = Script::new();
    let mut crns = Vec::new();
    script.lane.number_commands(script.unit, true);
    for index in 0..256 * 0x80 + 1 {
        script.flush();
        script.sent();
        let command = parse(&script.seen[0]);
        if command.header.ox_id.0 == 0x2a {
            crns.push(command.payload[8]);
        }
        // A target of ours gives each use of an OX_ID a later number.
        let header = header(Kind::FcpRsp, 0x2a + index % 0x80);
        let header = Header { rx_id: Xid(header.rx_id.0 + index / 0x80), ..header };
        respond(&mut script, header);
        script.ends.clear();
    }
    let expected: Vec<u8> = (1..=255).chain([1, 2]).collect();
    assert_eq!(crns, expected);
    script.lane.number_commands(script.unit, false);
    script.flush();
    script.sent();
    assert_eq!(parse(&script.seen[0]).payload[8], 0);
}

fn respond(script: &mut Script, header: Header) {
    let mut payload = [0; 64];
    let len = Response::GOOD.emit(&mut payload);
    let _ = script.receive(header, &payload[..len]);
}

#[test]
fn an_answer_that_the_network_repeats_is_none_to_a_later_command() {
    let mut script = Script::new();
    script.lane.number_commands(script.unit, true);
    let former = header(Kind::FcpRsp, 0x2a);
    for index in 0..0x80 {
        script.flush();
        respond(&mut script, header(Kind::FcpRsp, 0x2a + index));
    }
    script.ends();
    let name = script.flush();
    script.sent();
    assert_eq!(parse(&script.seen[script.seen.len() - 1]).header.ox_id, Xid(0x2a), "again");
    let earlier = Header { rx_id: Xid(former.rx_id.0 - 1), ..former };
    let without = Header { rx_id: Xid::NONE, ..former };
    for wrong in [former, earlier, without] {
        respond(&mut script, wrong);
        assert_eq!(script.ends(), [], "{wrong:?}");
    }
    assert_eq!(script.lane.ignored().other_rx_id, 3);
    respond(&mut script, Header { rx_id: Xid(former.rx_id.0 + 1), ..former });
    assert_eq!(script.ends(), [(name, Ok(0))]);
}

#[test]
fn a_target_that_begins_anew_may_begin_its_numbers_anew() {
    let mut script = Script::new();
    script.lane.number_commands(script.unit, true);
    for index in 0..0x80 {
        script.flush();
        respond(&mut script, header(Kind::FcpRsp, 0x2a + index));
    }
    script.lane.logged_out(script.now, WWPN);
    script.lane.logged_in(script.now, (OURS, mac(OURS)), &login()).unwrap();
    script.ends();
    let name = script.flush();
    let first = header(Kind::FcpRsp, 0x2a);
    respond(&mut script, Header { rx_id: Xid(first.rx_id.0 - 7), ..first });
    assert_eq!(script.ends(), [(name, Ok(0))]);
}

#[test]
fn sequences_of_numbered_commands_count_on_from_their_number() {
    let mut script = Script::new();
    script.lane.number_commands(script.unit, true);
    let sequences = |script: &mut Script| {
        script.write(3 * FRAME);
        script.sent();
        let mut seq_ids = vec![parse(&script.seen[0]).header.seq_id];
        for (offset, len) in [(0, 2 * FRAME), (2 * FRAME, FRAME)] {
            script.ask_for(0x2a, offset, len);
            seq_ids.extend(script.seen.iter().map(|it| parse(it).header.seq_id));
        }
        seq_ids
    };
    assert_eq!(sequences(&mut script), [1, 2, 2, 3]);
    let mut script = Script::new();
    assert_eq!(sequences(&mut script), [0, 1, 1, 2], "as Linux counts them");
}

#[test]
fn the_same_data_are_never_sent_twice() {
    let mut script = Script::new();
    let name = script.write(3 * FRAME);
    assert_eq!(script.sent(), "command 002a");
    assert_eq!(script.ask_for(0x2a, 0, FRAME), "data 002a 0+2016!");
    assert_eq!(script.ask_for(0x2a, 0, FRAME), "", "repeated by the network");
    assert_eq!(script.lane.ignored().duplicate, 1);
    let sent = "data 002a 2016+2016, data 002a 4032+2016!";
    assert_eq!(script.ask_for(0x2a, FRAME, 2 * FRAME), sent);
    script.good(0x2a);
    assert_eq!(script.ends(), [(name, Ok(0))]);
}

#[test]
fn data_that_there_are_not_or_overlap_are_not_sent() {
    for (offset, len) in [(3 * FRAME, 1), (0, 4 * FRAME), (u32::MAX - 1, 1), (FRAME - 4, 8)] {
        let mut script = Script::new();
        let name = script.write(3 * FRAME);
        script.ask_for(0x2a, 0, FRAME);
        assert_eq!(script.ask_for(0x2a, offset, len), "abort 002a", "{offset}+{len}");
        assert_eq!(script.ask_for(0x2a, FRAME, FRAME), "");
        assert_eq!((script.lane.ignored().beyond, script.lane.ignored().late), (1, 1));
        assert!(script.ends().is_empty());
        script.accept_abort(0x2a);
        assert_eq!(script.ends(), [(name, Err(Failure::Aborted))]);
    }
    let mut script = Script::new();
    script.write(3 * FRAME);
    assert_eq!(script.sent(), "command 002a");
    assert_eq!(script.ask_for(0x2a, 0, 0), "");
    let short = header(Kind::FcpXferRdy, 0x2a);
    let _ = script.receive(short, &[0; 11]);
    assert_eq!(script.lane.ignored().malformed, 2);
    assert_eq!(script.ask_for(0x2a, u32::MAX, 2), "", "a sum that is no number");
    assert_eq!(script.lane.ignored().malformed, 3);
}

#[test]
fn a_good_end_before_the_data_is_one_of_another_time() {
    let mut script = Script::new();
    let name = script.write(2 * FRAME);
    script.good(0x2a);
    script.ask_for(0x2a, 0, FRAME);
    script.good(0x2a);
    assert_eq!((script.ends(), script.lane.ignored().premature), (vec![], 2));
    script.ask_for(0x2a, FRAME, FRAME);
    script.good(0x2a);
    assert_eq!(script.ends(), [(name, Ok(0))]);
    let name = script.write(2 * FRAME);
    script.ask_for(0x2b, 0, FRAME);
    script.respond(0x2b, &Response { residual: Residual::Under(FRAME), ..Response::GOOD });
    assert_eq!(script.ends(), [(name, Ok(0))], "it wants no more");
}

#[test]
fn a_status_ends_a_write_before_its_data() {
    let mut script = Script::new();
    let name = script.write(2 * FRAME);
    script.respond(0x2a, &Response { status: 8, qualifier: 3, ..Response::GOOD });
    let answer = script.ends[0].end.unwrap();
    assert_eq!((answer.qualifier, script.ends()), (3, vec![(name, Ok(8))]));
    assert_eq!(script.sent(), "command 002a");
    assert_eq!(script.ask_for(0x2a, 0, FRAME), "");
    assert_eq!(script.lane.ignored().no_exchange, 1, "it was not begun");
}

#[test]
fn data_are_not_sent_any_more_after_a_status() {
    for confirm in [true, false] {
        let mut script = Script::new();
        script.write(2 * FRAME);
        assert_eq!(script.sent(), "command 002a");
        script.is_full = true;
        script.ask_for(0x2a, 0, 2 * FRAME);
        script.respond(0x2a, &Response { status: 2, confirm, ..Response::GOOD });
        assert_eq!(script.ends(), [(0, Ok(2))]);
        script.is_full = false;
        script.drain();
        assert_eq!(script.sent(), if confirm { "confirm 002a" } else { "" });
        script.good(0x2a);
        assert_eq!(script.lane.ignored().late, 1, "quarantined");
    }
}

#[test]
fn a_target_that_fails_a_write_may_have_missed_data_that_come_late() {
    let mut script = Script::new();
    script.write(FRAME);
    script.ask_for(0x2a, 0, FRAME);
    script.respond(0x2a, &Response { status: 2, ..Response::GOOD });
    assert_eq!(script.ends(), [(0, Ok(2))]);
    script.good(0x2a);
    assert_eq!(script.lane.ignored().late, 1, "its XID is quarantined");
}

#[test]
fn writes_wait_in_order_until_there_is_room_for_their_frames() {
    let mut script = Script::with(LaneConfig { write_frames: 8, ..config() });
    let [large, huge, small] = [5, 20, 1].map(|frames| script.write(frames * FRAME));
    script.read(100 * FRAME);
    assert_eq!(script.sent(), "command 002a, command 002d", "five frames, and a read");
    let write = |script: &mut Script, ox_id, frames| {
        script.ask_for(ox_id, 0, frames * FRAME);
        script.good(ox_id);
        script.sent()
    };
    assert_eq!(write(&mut script, 0x2a, 5), "command 002b", "alone, it has all room");
    assert_eq!(write(&mut script, 0x2b, 20), "command 002c");
    write(&mut script, 0x2c, 1);
    assert_eq!(script.ends(), [(large, Ok(0)), (huge, Ok(0)), (small, Ok(0))]);
}

#[test]
fn data_that_a_target_has_missed_halve_the_room() {
    let sense = [0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x4b, 0, 0, 0, 0, 0];
    for (sense, room) in [(&sense[..], 50), (&[], 100)] {
        let mut script = Script::with(LaneConfig { write_frames: 100, ..config() });
        script.write(FRAME);
        script.wait(10);
        script.ask_for(0x2a, 0, FRAME);
        script.respond(0x2a, &Response { status: 2, sense, ..Response::GOOD });
        assert_eq!(script.lane.frames()[1], room);
    }
    let mut script = Script::with(LaneConfig { write_frames: 100, ..config() });
    script.write(FRAME);
    script.ask_for(0x2a, 0, FRAME);
    script.wait(REC_TOV);
    script.state(0x2a, OURS_TO_GO_ON);
    assert_eq!(script.lane.frames()[1], 50, "the target waits for what we have sent");
}

#[test]
fn data_for_a_write_and_requests_for_data_of_a_read_have_no_effect() {
    let mut script = Script::new();
    script.write(2 * FRAME);
    script.read(2 * FRAME);
    assert!(!script.data(0x2a, 0, FRAME));
    script.sent();
    assert_eq!(script.ask_for(0x2b, 0, FRAME), "");
    script.flush();
    assert!(!script.data(0x2c, 0, FRAME));
    assert_eq!(script.lane.ignored().unexpected, 3);
    let odd = Header { seq_id: 77, ..header(Kind::FcpXferRdy, 0x2a) };
    let _ = script.receive(odd, &[0; 4]);
    assert_eq!(script.lane.ignored().malformed, 1);
}
