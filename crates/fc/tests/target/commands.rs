//! Commands without lost frames: reads, answers, and those that the device server does not get.

use tyche_fc::port::Login;
use tyche_fc::target_end::{Completion, Data};
use tyche_fc::wire::fcp::{self, ResponseCode, TaskManagement};
use tyche_fc::wire::{Header, Kind, PortId, Wwn, Xid};

use crate::rig::{
    HOST, Host, LUN, OTHER, OURS, RESERVED, Rig, TURN, command, config, login, mac, rig,
};

#[test]
fn a_read_is_executed_and_its_data_sent_from_where_they_lie() {
    let mut rig = rig();
    let said = rig.send_command(
        HOST,
        0x10,
        fcp::Command { cdb: [7; 16], attribute: 2, ..command(Data::In(4096)) },
    );
    let offered = rig.offered.pop().unwrap();
    assert_eq!((said.as_str(), offered.cdb, offered.lun), ("offer 0", [7; 16], LUN));
    assert_eq!((offered.initiator, offered.attribute), (HOST.wwpn, 2));
    assert_eq!(rig.accept(0, Data::In(4096)), "execute 0");
    assert_eq!(rig.sent(), "");
    assert_eq!(rig.complete(0, 4096), "");
    let sent = "10 data 0+2112, 10 data 2112+1984 end, 10 status 0, release 0";
    assert_eq!(rig.sent(), sent);
    assert_eq!(rig.lane.ignored(), Default::default());
}

#[test]
fn frames_are_no_longer_than_agreed() {
    let mut rig = rig();
    rig.log_in(OTHER, 1452);
    let exchange = rig.begin_of(OTHER, 1, Data::In(3000));
    rig.complete(exchange, 3000);
    assert_eq!(
        rig.sent(),
        "1 data 0+1452, 1 data 1452+1452, 1 data 2904+96 end, 1 status 0, release 0"
    );
}

#[test]
fn an_answer_of_the_device_server_is_sent_at_once() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::In(255));
    assert_eq!(rig.complete(exchange, 36), "");
    assert_eq!(rig.sent(), "1 data 0+36 end, 1 status 0 under 219, release 0");
    let exchange = rig.begin(2, Data::None);
    rig.complete(exchange, 0);
    assert_eq!(rig.sent(), "2 status 0, release 1");
}

#[test]
fn lengths_that_differ_leave_a_residual() {
    let mut rig = rig();
    // The initiator has no room for all of it.
    let exchange = rig.begin(1, Data::In(512));
    rig.accept(exchange, Data::In(4096));
    rig.complete(exchange, 4096);
    assert_eq!(rig.sent(), "1 data 0+512 end, 1 status 0 over 3584, release 0");
    // It has room, but for nothing.
    let exchange = rig.begin(2, Data::In(0));
    rig.complete(exchange, 8);
    assert_eq!(rig.sent(), "2 status 0 over 8, release 1");
    let exchange = rig.begin(3, Data::None);
    rig.complete(exchange, 8);
    assert_eq!(rig.sent(), "3 status 0 over 8, release 2");
    // It would send more than the command takes.
    let exchange = rig.begin(4, Data::Out(4096));
    rig.accept(exchange, Data::Out(512));
    assert_eq!(rig.sent(), "4 ready 0+512");
    rig.data(4, exchange, 0, (0, 512), true);
    rig.complete(exchange, 0);
    assert_eq!(rig.sent(), "4 status 0 under 3584, release 3");
    let exchange = rig.begin(5, Data::Out(24));
    rig.complete(exchange, 0);
    assert_eq!(rig.sent(), "5 status 0 under 24, release 4");
}

#[test]
fn a_write_with_too_few_data_is_not_executed() {
    let mut rig = rig();
    for (ox_id, data) in [(1, Data::Out(512)), (2, Data::Out(0)), (3, Data::None)] {
        let exchange = rig.begin(ox_id, data);
        assert_eq!(rig.accept(exchange, Data::Out(4096)), "");
        let over = if ox_id == 1 { 3584 } else { 4096 };
        let sent = format!("{ox_id} status 2 5/e/3 over {over}, release {exchange}");
        assert_eq!(rig.sent(), sent);
    }
}

#[test]
fn data_in_the_other_direction_are_refused() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::Out(512));
    assert_eq!(rig.accept(exchange, Data::In(512)), "");
    assert_eq!(rig.sent(), "1 status 0 code 2, release 0");
    let exchange = rig.begin(2, Data::In(512));
    assert_eq!(rig.accept(exchange, Data::Out(512)), "");
    assert_eq!(rig.sent(), "2 status 0 code 2, release 1");
    let exchange = rig.begin(3, Data::Out(36));
    assert_eq!(rig.complete(exchange, 36), "");
    assert_eq!(rig.sent(), "3 status 0 code 2, release 2");
}

#[test]
fn fields_that_no_target_takes_are_refused_before_the_device_server_sees_them() {
    let mut rig = rig();
    let both = fcp::Command { reads: true, ..command(Data::Out(512)) };
    let long = fcp::Command { more_cdb: &[0; 8], ..command(Data::None) };
    let management = TaskManagement::LU_RESET.with(TaskManagement::ABORT_TASK_SET);
    let many = fcp::Command { management, ..command(Data::None) };
    for (ox_id, command) in [(1, both), (2, long), (3, many)] {
        assert_eq!(rig.send_command(HOST, ox_id, command), "");
        assert_eq!(rig.sent(), format!("{ox_id} status 0 code 2"));
    }
}

#[test]
fn a_failure_has_its_status_and_sense_data() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::In(4096));
    rig.accept(exchange, Data::In(4096));
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[12]) = (0x70, 3, 0x11);
    let completion = Completion { status: 2, sense: &sense, ..Completion::default() };
    rig.lane.complete(rig.now, exchange, &completion);
    assert_eq!(rig.sent(), "1 status 2 3/11/0 under 4096, release 0");
}

#[test]
fn the_user_hears_that_a_response_has_come_if_the_initiator_confirms() {
    let confirmed = Completion { status: 2, confirm: true, ..Completion::default() };
    let conf = |rig: &Rig, ox_id, exchange| {
        let header = Header::request(Kind::FcpConf, HOST.id, OURS, Xid(ox_id));
        Header { rx_id: rig.rx_id(exchange), ..header }
    };
    let mut rig = rig();
    let exchange = rig.begin(1, Data::None);
    rig.lane.complete(rig.now, exchange, &confirmed);
    assert_eq!(rig.frame(HOST, conf(&rig, 1, exchange), &[]), "", "it has not been sent");
    assert_eq!(rig.sent(), "1 status 2 confirm, release 0");
    assert_eq!(rig.frame(HOST, conf(&rig, 2, exchange), &[]), "", "another OX_ID");
    assert_eq!(rig.frame(HOST, conf(&rig, 1, exchange + 1), &[]), "", "another RX_ID");
    assert_eq!(rig.frame(HOST, conf(&rig, 1, exchange), &[]), "confirmed 0");
    assert_eq!(rig.frame(HOST, conf(&rig, 1, exchange), &[]), "", "once");
    assert_eq!(rig.lane.ignored().unexpected, 4);

    let exchange = rig.begin(3, Data::None);
    rig.complete(exchange, 0);
    assert_eq!(rig.sent(), format!("3 status 0, release {exchange}"));
    assert_eq!(rig.frame(HOST, conf(&rig, 3, exchange), &[]), "", "it was not asked for");

    let login = Login { confirms: false, ..login(HOST, 2112) };
    rig.lane.logged_in((OURS, mac(OURS)), &login);
    let exchange = rig.begin(4, Data::None);
    rig.lane.complete(rig.now, exchange, &confirmed);
    assert_eq!(rig.sent(), format!("4 status 2, release {exchange}"), "it does not confirm");
}

#[test]
fn a_command_that_comes_twice_is_executed_once() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::In(512));
    assert_eq!(rig.send_command(HOST, 1, command(Data::In(512))), "", "offered");
    rig.accept(exchange, Data::In(512));
    assert_eq!(rig.send_command(HOST, 1, command(Data::In(512))), "", "at work");
    rig.complete(exchange, 512);
    assert_eq!(rig.send_command(HOST, 1, command(Data::In(512))), "", "being sent");
    assert_eq!(rig.sent(), "1 data 0+512 end, 1 status 0, release 0");
    assert_eq!(rig.lane.ignored().repeated_command, 3);
    // The number is used again.
    assert_eq!(rig.begin(1, Data::In(512)), 1);
    // It is another initiator's.
    rig.log_in(OTHER, 2112);
    assert_eq!(rig.begin_of(OTHER, 1, Data::In(512)), 2);
}

#[test]
fn the_initiators_count_tells_a_late_repetition_from_another_command() {
    let mut rig = rig();
    let counted = |crn| fcp::Command { crn, ..command(Data::None) };
    assert_eq!(rig.send_command(HOST, 1, counted(7)), "offer 0");
    rig.complete(0, 0);
    assert_eq!(rig.sent(), "1 status 0, release 0");
    assert_eq!(rig.send_command(HOST, 1, counted(7)), "");
    assert_eq!(rig.send_command(HOST, 1, counted(8)), "offer 1");
    rig.complete(1, 0);
    assert_eq!(rig.send_command(HOST, 1, counted(7)), "", "it is older");
    // Even if the exchange has been forgotten.
    for ox_id in 2..20 {
        assert!(rig.send_command(HOST, ox_id, counted(1)).starts_with("offer"));
        let exchange = rig.offered.pop().unwrap().exchange;
        rig.complete(exchange, 0);
        rig.sent();
    }
    assert_eq!(rig.send_command(HOST, 1, counted(8)), "");
    // Neither number: it was sent before there were any. Functions have none.
    assert_eq!(rig.send_command(HOST, 30, counted(0)), "");
    let answer = rig.next_frame().unwrap();
    assert_eq!(answer[46..48], [0xff, 0xff], "no exchange: a host of ours takes it for none");
    assert_eq!(rig.send_command(HOST, 30, counted(0)), "");
    assert_eq!(rig.sent(), "30 status 0 code 2".replace("30", "1e"));
    let management = TaskManagement::LU_RESET;
    let function = fcp::Command { management, ..counted(0) };
    let managed = rig.send_command(HOST, 31, function);
    let exchange = managed.split(' ').nth(1).unwrap().parse().unwrap();
    assert_eq!(managed, format!("manage {exchange} reset"));
    rig.managed(exchange, ResponseCode::Complete);
    rig.sent();
    assert_eq!(rig.lane.ignored().repeated_command, 5);
    // The count goes on from 255 to 1, and some commands were lost.
    for crn in [130, 255, 1, 7] {
        assert!(rig.send_command(HOST, 1, counted(crn)).starts_with("offer"), "{crn}");
        let exchange = rig.offered.pop().unwrap().exchange;
        rig.complete(exchange, 0);
        rig.sent();
    }
    // What is new of a login does not make it another, but another does.
    rig.log_in(HOST, 2112);
    assert_eq!(rig.send_command(HOST, 1, counted(7)), "");
    rig.log_out(HOST);
    rig.log_in(HOST, 2112);
    assert!(rig.send_command(HOST, 1, counted(7)).starts_with("offer"));
}

#[test]
fn a_command_that_was_refused_is_not_executed_when_it_comes_again() {
    let mut rig = Rig::new(config(RESERVED + 1));
    let exchange = rig.begin(1, Data::In(512));
    let counted = fcp::Command { crn: 1, ..command(Data::None) };
    assert_eq!(rig.send_command(HOST, 2, counted), "");
    assert_eq!(rig.sent(), "2 status 28");
    rig.complete(exchange, 512);
    rig.sent();
    assert_eq!(rig.send_command(HOST, 2, counted), "");
    assert_eq!(rig.lane.ignored().repeated_command, 1);
}

#[test]
fn a_full_lane_refuses_commands_and_takes_functions() {
    // An initiator alone may have half of them.
    let mut rig = Rig::new(config(RESERVED + 8));
    for ox_id in 0..4 {
        rig.begin(ox_id, Data::In(512));
    }
    assert_eq!(rig.send_command(HOST, 9, command(Data::In(512))), "");
    assert_eq!(rig.sent(), "9 status 28");
    assert_eq!(rig.lane.ignored().no_room, 1);
    let management = TaskManagement::LU_RESET;
    assert_eq!(rig.send_command(HOST, 10, fcp::Command { management, ..command(Data::None) }), "");
    rig.complete(0, 512);
    rig.complete(1, 512);
    assert_eq!(rig.begin(11, Data::None), 5, "there is room again");
}

#[test]
fn a_long_read_does_not_hold_up_a_short_one() {
    let mut rig = rig();
    let long = rig.at_work(1, Data::In(1 << 20));
    let short = rig.at_work(2, Data::In(512));
    rig.complete(long, 1 << 20);
    rig.complete(short, 512);
    let frames: Vec<String> = std::iter::from_fn(|| rig.send_one()).collect();
    let at = frames.iter().position(|it| it == "2 status 0").unwrap();
    assert_eq!(at, TURN + 1, "after about 64 KiB, and its own data");
    assert_eq!(frames.len(), (1_usize << 20).div_ceil(2112) + 3);
    assert_eq!(frames.last().unwrap(), "1 status 0");
}

#[test]
fn strangers_are_not_answered() {
    let mut rig = rig();
    let stranger = Host { id: PortId::new(5), wwpn: Wwn(5) };
    assert_eq!(rig.send_command(stranger, 1, command(Data::None)), "");
    // The right number from another address.
    let header = Header::request(Kind::FcpCmnd, HOST.id, OURS, Xid(1));
    assert_eq!(rig.frame(stranger, header, &[0; 32]), "");
    // To another port.
    let header = Header::request(Kind::FcpCmnd, HOST.id, PortId::new(6), Xid(1));
    assert_eq!(rig.frame(HOST, header, &[0; 32]), "");
    assert_eq!((rig.lane.ignored().stranger, rig.sent().as_str()), (3, ""));
    // One that is logged in, but not to ask.
    let mut login = login(OTHER, 2112);
    login.functions.initiator = false;
    rig.lane.logged_in((OURS, mac(OURS)), &login);
    assert_eq!(rig.send_command(OTHER, 1, command(Data::None)), "");
    assert_eq!(rig.lane.ignored().stranger, 4);
}

#[test]
fn what_cannot_be_read_is_counted() {
    let mut rig = rig();
    let header = Header::request(Kind::FcpCmnd, HOST.id, OURS, Xid(1));
    assert_eq!(rig.frame(HOST, header, &[0; 28]), "");
    let header = Header::request(Kind::FcpConf, HOST.id, OURS, Xid(1));
    assert_eq!(rig.frame(HOST, header, &[]), "");
    let ignored = rig.lane.ignored();
    assert_eq!((ignored.malformed, ignored.unexpected), (1, 1));
}
