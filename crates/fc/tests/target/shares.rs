//! The costs for others of an initiator that sends no data, or asks for more than its share.

use std::time::Duration;

use tyche_fc::target_end::{Data, LaneConfig};
use tyche_fc::wire::fcp::{self, TaskManagement};

use crate::rig::{
    BURST_TIMES, E_D_TOV, HOST, OTHER, R_A_TOV, RESERVED, Rig, TURN, command, config,
};

/// The length of the writes of an initiator that sends no data.
const LONG: u32 = 64 << 10;

/// A lane with two initiators, and a ring of so many frames.
fn rig(frames_max: u32, exchanges: u16) -> Rig {
    let mut rig = Rig::new(LaneConfig { frames_max, ..config(exchanges) });
    rig.log_in(OTHER, 2112);
    rig
}

/// Has the host begin writes, of which it sends no data.
fn queue(rig: &mut Rig, count: u16) {
    for ox_id in 0..count {
        let exchange = rig.begin(ox_id, Data::Out(LONG));
        rig.accept(exchange, Data::Out(LONG));
    }
}

/// Has the other write a block; whether it was asked for the data at once.
fn writes(rig: &mut Rig, ox_id: u16) -> bool {
    let exchange = rig.begin_of(OTHER, ox_id, Data::Out(512));
    rig.accept(exchange, Data::Out(512));
    let is_asked = rig.sent().contains(&format!("{ox_id:x} ready 0+512"));
    if is_asked {
        let said = rig.data_of(OTHER, (ox_id, exchange), 0, (0, 512), true);
        assert!(said.ends_with(&format!("execute {exchange}")), "{said}");
        rig.complete(exchange, 0);
        assert!(rig.sent().contains(&format!("{ox_id:x} status 0")));
    }
    is_asked
}

#[test]
fn who_sends_no_data_holds_up_nobody() {
    let mut rig = rig(64, 256);
    queue(&mut rig, 100);
    let mut ox_id = 0x1000;
    // As long as it is logged in, and begins more.
    for round in 0..20 {
        for _ in 0..8 {
            ox_id += 1;
            assert!(writes(&mut rig, ox_id), "in round {round}");
            rig.wait(E_D_TOV / 4);
        }
        if round % 4 == 3 {
            queue(&mut rig, 20);
        }
    }
}

#[test]
fn writes_of_who_sends_no_data_end_together() {
    let mut rig = rig(64, 256);
    queue(&mut rig, 100);
    let asked = rig.sent();
    assert_eq!(asked.matches("ready").count(), 1, "half of the ring: {asked}");
    rig.wait(E_D_TOV);
    let ended = rig.sent();
    assert_eq!(ended.matches("status 2 b/4b/0").count(), 100, "{ended}");
    let ignored = rig.lane.ignored();
    assert_eq!((ignored.lost_data, ignored.not_asked), (1, 99));
    // Then it is asked for as much as tells whether it does.
    queue(&mut rig, 2);
    assert_eq!(rig.sent(), "0 ready 0+2048");
    // When it does, it has its share again, frame by frame.
    let exchange = *rig.memory.keys().next().unwrap();
    rig.data(0, exchange, 0, (0, 2048), true);
    assert_eq!(rig.sent(), "1 ready 0+4096");
}

#[test]
fn a_loss_is_no_silence() {
    let mut rig = rig(256, 64);
    for ox_id in 0..4 {
        rig.asked(ox_id, 4096);
    }
    rig.wait(E_D_TOV / 2);
    rig.data(3, 3, 0, (0, 2048), false);
    rig.data(3, 3, 1, (2048, 2048), true);
    for ox_id in 10..20 {
        let exchange = rig.begin(ox_id, Data::Out(LONG));
        rig.accept(exchange, Data::Out(LONG));
    }
    let asked = rig.sent().matches("ready").count();
    assert!((1..10).contains(&asked), "some wait: {asked}");
    rig.wait(E_D_TOV / 2);
    assert_eq!((rig.lane.ignored().lost_data, rig.lane.ignored().not_asked), (3, 0));
}

#[test]
fn a_burst_must_come_in_its_time_however_its_frames_are_spread() {
    let mut rig = rig(256, 64);
    let exchange = rig.asked(1, LONG);
    let step = E_D_TOV - Duration::from_millis(1);
    let mut offset = 0;
    for seq_cnt in 0..BURST_TIMES {
        rig.wait(step);
        let said = rig.data(1, exchange, seq_cnt as u16, (offset, 512), false);
        assert_eq!(said, format!("place {exchange} {offset}+512"));
        offset += 512;
        assert_eq!(rig.sent(), "");
    }
    rig.wait(BURST_TIMES * (E_D_TOV - step) - Duration::from_nanos(1));
    assert_eq!(rig.sent(), "");
    rig.wait(Duration::from_nanos(1));
    assert_eq!(rig.sent(), format!("1 status 2 b/4b/0, release {exchange}"));
}

#[test]
fn who_has_all_its_exchanges_leaves_room_for_others() {
    let mut rig = rig(64, RESERVED + 60);
    for ox_id in 0..30 {
        rig.begin(ox_id, Data::In(512));
    }
    assert_eq!(rig.send_command(HOST, 99, command(Data::In(512))), "");
    assert_eq!(rig.sent(), "63 status 28");
    for ox_id in 0..15 {
        rig.begin_of(OTHER, ox_id, Data::In(512));
    }
    assert_eq!(rig.send_command(OTHER, 99, command(Data::In(512))), "");
    assert_eq!(rig.sent(), "63 status 28", "it leaves some for a third");
    // A function of each is taken nevertheless, and no second one.
    for host in [HOST, OTHER] {
        let management = TaskManagement::ABORT_TASK_SET;
        let abort = || fcp::Command { management, ..command(Data::None) };
        assert_eq!(rig.send_command(host, 100, abort()), "");
        assert_eq!(rig.sent(), "");
        assert_eq!(rig.send_command(host, 101, abort()), "");
        assert_eq!(rig.sent(), "65 status 28");
    }
}

#[test]
fn who_reads_much_does_not_hold_up_who_reads_little() {
    let mut rig = rig(64, 256);
    for ox_id in 0..20 {
        let exchange = rig.at_work(ox_id, Data::In(1 << 20));
        rig.complete(exchange, 1 << 20);
    }
    for ox_id in 0x100..0x104 {
        let exchange = rig.begin_of(OTHER, ox_id, Data::In(512));
        rig.complete(exchange, 512);
    }
    let first: Vec<String> = (0..TURN + 8).filter_map(|_| rig.send_one()).collect();
    assert!(first[..TURN].iter().all(|it| it.starts_with("0 data")), "{first:?}");
    let others = first[TURN..].iter().filter(|it| it.starts_with("10")).count();
    assert_eq!(others, 8, "data and response of each: {first:?}");
    // Each of the long ones has its turn then.
    let next: Vec<String> = (0..TURN + 1).filter_map(|_| rig.send_one()).collect();
    assert!(next[..TURN].iter().all(|it| it.starts_with("1 data")), "{next:?}");
    assert!(next[TURN].starts_with("2 data"), "{next:?}");
}

#[test]
fn aborted_exchanges_are_those_of_their_initiator() {
    let mut rig = rig(64, RESERVED + 60);
    for ox_id in 0..60 {
        let exchange = rig.begin(ox_id, Data::None);
        rig.complete(exchange, 0);
        rig.sent();
    }
    let (mut accepted, mut refused) = (0, 0);
    for ox_id in 0..60 {
        rig.abort(ox_id, None);
        match rig.sent().as_str() {
            sent if sent.contains("accepted") => accepted += 1,
            sent => {
                assert!(sent.contains("rejected 9/0"), "{sent}");
                refused += 1;
            }
        }
    }
    assert_eq!((accepted, refused), (30, 30), "each waits for late frames");
    for ox_id in 0..15 {
        let exchange = rig.begin_of(OTHER, ox_id, Data::None);
        rig.complete(exchange, 0);
        rig.sent();
    }
    rig.wait(R_A_TOV);
    rig.abort(59, None);
    assert!(rig.sent().contains("accepted"), "when the others are forgotten");
}

#[test]
fn answers_to_one_do_not_crowd_out_those_to_another() {
    let mut rig = rig(64, 64);
    // Of exchanges that there are not: each has an answer, and nothing is sent meanwhile.
    for ox_id in 0..2000 {
        rig.abort(ox_id, None);
    }
    assert!(rig.lane.ignored().undrained > 0);
    let undrained = rig.lane.ignored().undrained;
    rig.abort_of(OTHER, 7, None);
    assert_eq!(rig.lane.ignored().undrained, undrained);
}
