//! The data of writes: bursts, and what becomes of lost, repeated and wrong frames.

use std::time::Duration;

use tyche_fc::target_end::{Data, LaneConfig};
use tyche_fc::wire::{FCtl, Header, Kind, Xid};

use crate::rig::{E_D_TOV, HOLES, HOST, OTHER, OURS, R_A_TOV, Rig, config, pattern, rig};

#[test]
fn a_write_is_executed_when_all_its_data_are_there_and_then_once() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::Out(4096));
    assert_eq!(rig.accept(exchange, Data::Out(4096)), "");
    assert_eq!(rig.sent(), "1 ready 0+4096");
    assert_eq!(rig.data(1, 0, 0, (0, 2048), false), "place 0 0+2048");
    assert_eq!(rig.data(1, 0, 1, (2048, 2048), true), "place 0 2048+2048, execute 0");
    assert!((0..4096).all(|at| rig.memory[&0][at as usize] == pattern(at)));
    assert_eq!(rig.data(1, 0, 1, (2048, 2048), true), "", "too late");
    assert_eq!(rig.complete(0, 0), "");
    assert_eq!(rig.sent(), "1 status 0, release 0");
    assert_eq!(rig.data(1, 0, 1, (2048, 2048), true), "");
    assert_eq!(rig.lane.ignored().unasked, 2);
    assert_eq!(rig.wait(Duration::from_secs(60)), "");
}

#[test]
fn frames_of_any_length_in_any_order_are_taken() {
    let mut rig = rig();
    rig.asked(1, 5001);
    assert_eq!(rig.data(1, 0, 1, (2112, 2112), false), "place 0 2112+2112");
    assert_eq!(rig.data(1, 0, 0, (0, 2112), false), "place 0 0+2112");
    assert_eq!(rig.data(1, 0, 2, (4224, 777), true), "place 0 4224+777, execute 0");
    assert!((0..5001).all(|at| rig.memory[&0][at as usize] == pattern(at)));
}

#[test]
fn a_long_write_is_asked_for_in_bursts() {
    let mut rig = Rig::new(LaneConfig { burst_len: 4096, ..config(16) });
    rig.asked(1, 10_000);
    rig.data(1, 0, 0, (0, 2048), false);
    assert_eq!(rig.sent(), "", "not before the burst is whole");
    rig.data(1, 0, 1, (2048, 2048), true);
    assert_eq!(rig.sent(), "1 ready 4096+4096");
    rig.data(1, 0, 0, (4096, 2048), false);
    rig.data(1, 0, 1, (6144, 2048), true);
    assert_eq!(rig.sent(), "1 ready 8192+1808");
    assert_eq!(rig.data(1, 0, 0, (8192, 1808), true), "place 0 8192+1808, execute 0");
}

#[test]
fn no_more_is_asked_for_than_the_ring_holds_and_all_get_their_turn() {
    let mut rig = Rig::new(LaneConfig { burst_len: 4096, frames_max: 10, ..config(16) });
    for ox_id in 1..=3 {
        let exchange = rig.begin(ox_id, Data::Out(8192));
        rig.accept(exchange, Data::Out(8192));
    }
    assert_eq!(rig.sent(), "1 ready 0+4096, 2 ready 0+4096");
    rig.data(1, 0, 0, (0, 2048), false);
    rig.data(1, 0, 1, (2048, 2048), true);
    assert_eq!(rig.sent(), "3 ready 0+4096");
    rig.data(3, 2, 0, (0, 2048), false);
    rig.data(3, 2, 1, (2048, 2048), true);
    assert_eq!(rig.sent(), "1 ready 4096+4096");
    rig.data(2, 1, 0, (0, 2048), false);
    rig.data(2, 1, 1, (2048, 2048), true);
    assert_eq!(rig.sent(), "3 ready 4096+4096");
}

#[test]
fn a_ring_that_is_smaller_than_a_burst_holds_part_of_it() {
    let mut rig = Rig::new(LaneConfig { frames_max: 6, ..config(16) });
    let exchange = rig.begin(1, Data::Out(1 << 16));
    rig.accept(exchange, Data::Out(1 << 16));
    assert_eq!(rig.sent(), "1 ready 0+6144");
}

#[test]
fn data_that_come_twice_count_once() {
    let mut rig = rig();
    rig.asked(1, 4096);
    assert_eq!(rig.data(1, 0, 0, (0, 2048), false), "place 0 0+2048");
    assert_eq!(rig.data(1, 0, 0, (0, 2048), false), "");
    assert_eq!(rig.data(1, 0, 0, (0, 2048), false), "");
    assert_eq!(rig.lane.ignored().repeated_data, 2);
    // Part of it has come before.
    assert_eq!(rig.data(1, 0, 1, (1024, 2048), false), "place 0 1024+2048");
    assert_eq!(rig.data(1, 0, 2, (3072, 1024), true), "place 0 3072+1024, execute 0");
}

#[test]
fn a_gap_fails_the_write_when_the_last_frame_has_come() {
    let mut rig = rig();
    rig.asked(1, 6144);
    rig.data(1, 0, 0, (0, 2048), false);
    assert_eq!(rig.data(1, 0, 2, (4096, 2048), true), "place 0 4096+2048");
    assert_eq!(rig.sent(), "1 status 2 b/4b/0, release 0");
    assert_eq!(rig.data(1, 0, 1, (2048, 2048), false), "", "too late");
    let ignored = rig.lane.ignored();
    assert_eq!((ignored.lost_data, ignored.unasked), (1, 1));
    assert_eq!(rig.wait(Duration::from_secs(60)), "");
}

#[test]
fn a_lost_end_fails_the_write_after_e_d_tov() {
    let mut rig = rig();
    rig.asked(1, 4096);
    rig.wait(E_D_TOV - Duration::from_nanos(1));
    rig.data(1, 0, 0, (0, 2048), false);
    rig.wait(E_D_TOV - Duration::from_nanos(1));
    assert_eq!(rig.sent(), "");
    rig.wait(Duration::from_nanos(1));
    assert_eq!(rig.sent(), "1 status 2 b/4b/0, release 0");
}

#[test]
fn a_request_for_data_that_is_lost_fails_the_write_after_e_d_tov() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::Out(512));
    rig.accept(exchange, Data::Out(512));
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.sent(), "1 ready 0+512", "not before it is sent");
    rig.wait(E_D_TOV - Duration::from_nanos(1));
    assert_eq!(rig.sent(), "");
    rig.wait(Duration::from_nanos(1));
    assert_eq!(rig.sent(), "1 status 2 b/4b/0, release 0");
}

#[test]
fn data_that_were_missed_and_come_late_are_those_of_no_other_write() {
    let mut rig = Rig::new(LaneConfig { frames_max: 4096, ..config(8) });
    rig.asked(1, 4096);
    rig.data(1, 0, 0, (0, 2048), false);
    rig.wait(E_D_TOV);
    assert_eq!(rig.sent(), "1 status 2 b/4b/0, release 0");
    for ox_id in 2..50 {
        let exchange = rig.begin(ox_id, Data::None);
        assert_ne!(exchange, 0, "it waits for late data");
        rig.complete(exchange, 0);
        rig.sent();
    }
    assert_eq!(rig.data(1, 0, 1, (2048, 2048), true), "");
    rig.wait(R_A_TOV);
    let is_used_again = (50..60).any(|ox_id| {
        let exchange = rig.begin(ox_id, Data::None);
        rig.complete(exchange, 0);
        rig.sent();
        exchange == 0
    });
    assert!(is_used_again);
}

#[test]
fn losses_halve_what_is_asked_for() {
    let mut rig = Rig::new(LaneConfig { frames_max: 16, ..config(16) });
    for ox_id in [1, 2] {
        let exchange = rig.asked(ox_id, 16_384);
        rig.data(ox_id, exchange, 1, (2048, 2048), true);
        let sent = format!("{ox_id} status 2 b/4b/0, release {exchange}");
        assert_eq!(rig.sent(), sent);
    }
    let exchange = rig.begin(3, Data::Out(16_384));
    rig.accept(exchange, Data::Out(16_384));
    assert_eq!(rig.sent(), "3 ready 0+8192");
    for seq_cnt in 0..4 {
        rig.data(3, exchange, seq_cnt, (u32::from(seq_cnt) * 2048, 2048), seq_cnt == 3);
    }
    // A whole burst adds a frame, but there are no more data.
    assert_eq!(rig.sent(), "3 ready 8192+8192");
}

#[test]
fn a_sequence_that_is_too_short_is_not_the_burst() {
    let mut rig = rig();
    rig.asked(1, 4096);
    rig.data(1, 0, 0, (0, 1024), false);
    rig.data(1, 0, 1, (1024, 1024), true);
    assert_eq!(rig.sent(), "1 status 0 code 1, release 0");
}

#[test]
fn data_beside_the_burst_are_dropped() {
    let mut rig = Rig::new(LaneConfig { burst_len: 4096, ..config(16) });
    let exchange = rig.begin(1, Data::Out(8192));
    rig.accept(exchange, Data::Out(8192));
    assert_eq!(rig.data(1, 0, 0, (0, 2048), false), "", "before it was asked for");
    assert_eq!(rig.sent(), "1 ready 0+4096");
    for (offset, len) in [(4096, 2048), (3072, 2048), (8192, 4), (u32::MAX - 3, 3)] {
        assert_eq!(rig.data(1, 0, 0, (offset, len), true), "", "{offset}");
    }
    let header = Header {
        f_ctl: FCtl::WRITE_DATA,
        rx_id: rig.rx_id(0),
        parameter: u32::MAX - 3,
        ..Header::request(Kind::FcpData, HOST.id, OURS, Xid(1))
    };
    assert_eq!(rig.frame(HOST, header, &[0; 8]), "", "past the end of numbers");
    let header = Header { f_ctl: FCtl::CONFIRMATION, parameter: 0, ..header };
    assert_eq!(rig.frame(HOST, header, &[0; 8]), "", "without a place");
    assert_eq!((rig.lane.ignored().unasked, rig.lane.ignored().malformed), (5, 2));
    assert_eq!(rig.sent(), "", "and none of it ends the burst");
    // A frame of the former burst is late.
    rig.data(1, 0, 0, (0, 2048), false);
    rig.data(1, 0, 1, (2048, 2048), true);
    assert_eq!(rig.sent(), "1 ready 4096+4096");
    assert_eq!(rig.data(1, 0, 1, (2048, 2048), true), "");
}

/// A frame with all data of a short write.
fn whole(rig: &Rig, ox_id: u16, exchange: u16, seq_id: u8) -> Header {
    let (f_ctl, rx_id) = (FCtl::WRITE_DATA_END, rig.rx_id(exchange));
    Header { f_ctl, rx_id, seq_id, ..Header::request(Kind::FcpData, HOST.id, OURS, Xid(ox_id)) }
}

#[test]
fn data_that_the_network_repeats_find_no_later_write() {
    let mut rig = rig();
    let exchange = rig.asked(0x300, 512);
    let former = whole(&rig, 0x300, exchange, 1);
    assert!(rig.frame(HOST, former, &[1; 512]).ends_with(&format!("execute {exchange}")));
    rig.complete(exchange, 0);
    rig.sent();
    // Its slot is used many times, by the same OX_ID, too.
    for _ in 0..100 {
        let exchange = rig.asked(0x300, 512);
        assert_eq!(rig.frame(HOST, former, &[1; 512]), "");
        let own = whole(&rig, 0x300, exchange, 1);
        assert!(rig.frame(HOST, own, &[2; 512]).ends_with(&format!("execute {exchange}")));
        assert_eq!(rig.memory[&exchange], [2; 512]);
        rig.complete(exchange, 0);
        rig.sent();
    }
    let ignored = rig.lane.ignored();
    assert_eq!(ignored.unknown + ignored.unasked, 100, "{ignored:?}");
}

#[test]
fn an_initiator_that_numbers_commands_counts_sequences() {
    let mut rig = Rig::new(LaneConfig { burst_len: 512, ..config(16) });
    let numbered = tyche_fc::wire::fcp::Command { crn: 9, ..crate::rig::command(Data::Out(1024)) };
    rig.send_command(HOST, 1, numbered);
    let exchange = rig.offered.pop().unwrap().exchange;
    rig.accept(exchange, Data::Out(1024));
    assert_eq!(rig.sent(), "1 ready 0+512");
    let data =
        |rig: &Rig, seq_id, parameter| Header { parameter, ..whole(rig, 1, exchange, seq_id) };
    for wrong in [0, 2, 255] {
        let header = data(&rig, wrong, 0);
        assert_eq!(rig.frame(HOST, header, &[1; 512]), "", "{wrong}");
    }
    let header = data(&rig, 1, 0);
    assert_eq!(rig.frame(HOST, header, &[1; 512]), "place 0 0+512");
    assert_eq!(rig.sent(), "1 ready 512+512");
    let header = data(&rig, 1, 512);
    assert_eq!(rig.frame(HOST, header, &[1; 512]), "", "that of the burst before");
    assert_eq!(rig.lane.ignored().other_sequence, 4);
    let header = data(&rig, 2, 512);
    assert_eq!(rig.frame(HOST, header, &[1; 512]), "place 0 512+512, execute 0");
}

#[test]
fn frames_of_a_burst_have_one_sequence() {
    let mut rig = rig();
    let exchange = rig.asked(1, 1024);
    let frame = |rig: &Rig, seq_id, parameter| {
        let f_ctl = FCtl::WRITE_DATA;
        Header { parameter, f_ctl, ..whole(rig, 1, exchange, seq_id) }
    };
    let header = frame(&rig, 77, 0);
    assert_eq!(rig.frame(HOST, header, &[1; 512]), "place 0 0+512");
    let header = frame(&rig, 78, 512);
    assert_eq!(rig.frame(HOST, header, &[1; 512]), "");
    assert_eq!(rig.lane.ignored().other_sequence, 1);
    let header = frame(&rig, 77, 512);
    assert_eq!(rig.frame(HOST, header, &[1; 512]), "place 0 512+512, execute 0");
}

#[test]
fn data_of_another_exchange_or_initiator_are_dropped() {
    let mut rig = rig();
    rig.log_in(OTHER, 2112);
    rig.asked(1, 4096);
    let right = Header {
        f_ctl: FCtl::WRITE_DATA,
        rx_id: rig.rx_id(0),
        ..Header::request(Kind::FcpData, HOST.id, OURS, Xid(1))
    };
    let strange = rig.rx_id(1);
    let wrong = [
        (HOST, Header { ox_id: Xid(2), ..right }),
        (HOST, Header { rx_id: strange, ..right }),
        (HOST, Header { rx_id: Xid::NONE, ..right }),
        (OTHER, Header { s_id: OTHER.id, ..right }),
        (OTHER, right),
    ];
    for (host, header) in wrong {
        assert_eq!(rig.frame(host, header, &[0; 512]), "", "{header:?}");
    }
    assert_eq!(rig.lane.ignored().unknown, wrong.len() as u64);
    assert_eq!(rig.frame(HOST, right, &[0; 512]), "place 0 0+512");
}

#[test]
fn a_damaged_frame_is_as_good_as_lost() {
    let mut rig = rig();
    rig.asked(1, 4096);
    let header = Header {
        f_ctl: FCtl::WRITE_DATA,
        rx_id: rig.rx_id(0),
        ..Header::request(Kind::FcpData, HOST.id, OURS, Xid(1))
    };
    let ethernet = tyche_fc::wire::Ethernet {
        destination: crate::rig::mac(OURS),
        source: crate::rig::mac(HOST.id),
    };
    let mut buffer = [0; tyche_fc::wire::FRAME_LEN_MAX];
    let frame = tyche_fc::wire::Frame { ethernet, header, payload: &[1; 512] };
    let len = frame.emit(&mut buffer);
    buffer[100] ^= 1;
    assert_eq!(rig.receive(&buffer[..len]), "damaged");
    assert!(rig.memory[&0].iter().all(|it| *it == 0));
}

#[test]
fn too_many_holes_are_a_loss() {
    let mut rig = rig();
    rig.asked(1, 4096);
    for hole in 0..HOLES + 4 {
        rig.data(1, 0, hole, (u32::from(hole) * 8, 4), false);
    }
    assert_eq!(rig.lane.ignored().scattered, 4);
    rig.data(1, 0, HOLES + 4, (4092, 4), true);
    assert_eq!(rig.sent(), "1 status 2 b/4b/0, release 0");
}
