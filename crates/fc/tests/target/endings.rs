//! ABTS, task management and logout, in every state of an exchange.

use std::time::Duration;

use tyche_fc::target_end::{Data, Function};
use tyche_fc::wire::Wwn;
use tyche_fc::wire::els::Request;
use tyche_fc::wire::fcp::{self, ResponseCode, TaskManagement};

use crate::rig::{E_D_TOV, HOST, Host, LUN, MANAGEMENT, OTHER, R_A_TOV, Rig, about, command, rig};

fn manage(rig: &mut Rig, host: Host, ox_id: u16, management: TaskManagement) -> String {
    rig.send_command(host, ox_id, fcp::Command { management, ..command(Data::None) })
}

#[test]
fn an_unknown_exchange_is_not_aborted() {
    let mut rig = rig();
    rig.abort(1, None);
    rig.abort(1, Some(0));
    assert_eq!(rig.sent(), "1 rejected, 1 rejected");
    let exchange = rig.begin(1, Data::In(512));
    rig.abort(1, Some(exchange + 1));
    assert_eq!(rig.sent(), "1 rejected");
    rig.complete(exchange, 512);
    assert_eq!(rig.sent(), "1 data 0+512 end, 1 status 0, release 0");
}

#[test]
fn an_abort_before_the_data_is_accepted_at_once_and_data_are_dropped() {
    for rx_id in [None, Some(0)] {
        let mut rig = rig();
        rig.asked(1, 4096);
        rig.data(1, 0, 0, (0, 2048), false);
        assert_eq!(rig.abort(1, rx_id), "release 0");
        assert_eq!(rig.sent(), "1 accepted");
        assert_eq!(rig.data(1, 0, 1, (2048, 2048), true), "");
        assert_eq!(rig.send_command(HOST, 1, command(Data::Out(4096))), "", "it was repeated");
        assert_eq!(rig.lane.ignored().aborted, 2);
        assert_eq!(rig.wait(E_D_TOV), "");
        // The answer was lost.
        assert_eq!((rig.abort(1, rx_id).as_str(), rig.sent().as_str()), ("", "1 accepted"));
    }
}

#[test]
fn an_abort_of_a_write_that_waits_for_its_burst_is_accepted_at_once() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::Out(4096));
    rig.accept(exchange, Data::Out(4096));
    assert_eq!(rig.abort(1, None), "release 0");
    assert_eq!(rig.sent(), "1 accepted", "and nothing is asked for");
}

#[test]
fn an_abort_waits_for_the_store() {
    let mut rig = rig();
    for (ox_id, data) in [(1, Data::Out(512)), (2, Data::In(512)), (3, Data::None)] {
        let exchange = rig.at_work(ox_id, data);
        assert_eq!(rig.abort(ox_id, Some(exchange)), "");
        assert_eq!(rig.abort(ox_id, Some(exchange)), "", "again");
        assert_eq!(rig.sent(), "");
        assert_eq!(rig.complete(exchange, 0), format!("release {exchange}"));
        assert_eq!(rig.sent(), format!("{ox_id} accepted"), "and no response");
    }
}

#[test]
fn an_abort_before_the_command_has_begun_keeps_it_from_the_store() {
    let mut rig = rig();
    for data in [Data::Out(512), Data::In(512), Data::None] {
        let exchange = rig.begin(1, data);
        assert_eq!(rig.abort(1, None), "");
        assert_eq!(rig.sent(), "");
        assert_eq!(rig.accept(exchange, data), format!("release {exchange}"));
        assert_eq!(rig.sent(), "1 accepted");
        assert_eq!(rig.ask(Request::Rrq(about(1))), "777 yes");
    }
}

#[test]
fn an_abort_while_data_go_out_stops_them() {
    let mut rig = rig();
    let exchange = rig.at_work(1, Data::In(8192));
    rig.complete(exchange, 8192);
    assert_eq!(rig.send_one().unwrap(), "1 data 0+2112");
    assert_eq!(rig.abort(1, None), "release 0");
    assert_eq!(rig.sent(), "1 accepted");
}

#[test]
fn an_abort_after_the_response_is_accepted() {
    let mut rig = rig();
    let exchange = rig.begin(1, Data::None);
    rig.complete(exchange, 0);
    assert_eq!(rig.sent(), "1 status 0, release 0");
    assert_eq!(rig.abort(1, Some(exchange)), "");
    assert_eq!(rig.sent(), "1 accepted");
    assert_eq!(rig.send_command(HOST, 1, command(Data::None)), "");
    assert_eq!(rig.lane.ignored().aborted, 1);
}

#[test]
fn rrq_or_r_a_tov_frees_the_numbers() {
    let mut rig = rig();
    for is_asked in [true, false] {
        rig.asked(1, 512);
        rig.abort(1, None);
        rig.sent();
        if is_asked {
            assert_eq!(rig.ask(Request::Rrq(about(1))), "777 yes");
            assert_eq!(rig.ask(Request::Rrq(about(1))), "777 no 3/17");
        } else {
            rig.wait(R_A_TOV);
        }
        assert_eq!(rig.abort(1, None), "");
        assert_eq!(rig.sent(), "1 rejected");
    }
    rig.begin(1, Data::None);
    assert_eq!(rig.ask(Request::Rrq(about(1))), "777 no 3/17", "it is not aborted");
}

#[test]
fn a_reset_ends_all_tasks_and_waits_for_the_store() {
    let mut rig = rig();
    rig.log_in(OTHER, 2112);
    let at_work = rig.at_work(1, Data::Out(512));
    let asked = rig.asked(2, 512);
    let sending = rig.at_work(3, Data::In(8192));
    rig.complete(sending, 8192);
    rig.send_one();
    let others = rig.begin_of(OTHER, 4, Data::In(512));
    rig.accept(others, Data::In(512));
    let waiting = rig.begin_of(OTHER, 5, Data::Out(512));
    rig.accept(waiting, Data::Out(512));
    let elsewhere = fcp::Command { lun: [0; 8], ..command(Data::None) };
    rig.send_command(HOST, 6, elsewhere);

    let said = manage(&mut rig, HOST, 9, TaskManagement::LU_RESET);
    assert_eq!(said, format!("release {asked}, release {sending}"));
    let sent = format!("5 status 40, release {waiting}");
    assert_eq!(rig.sent(), sent, "no response before all have ended");
    assert_eq!(manage(&mut rig, HOST, 9, TaskManagement::LU_RESET), "", "repeated");
    assert_eq!(rig.complete(at_work, 0), format!("release {at_work}"));
    assert_eq!(rig.sent(), "");
    assert_eq!(rig.complete(others, 0), "manage 6 reset");
    assert_eq!(rig.sent(), format!("4 status 40, release {others}"));
    assert_eq!(rig.managed(6, ResponseCode::Complete), "");
    assert_eq!(rig.sent(), "9 status 0 code 0");
    assert_eq!(rig.complete(5, 0), "", "that of the other logical unit goes on");
    assert_eq!(rig.sent(), "6 status 0, release 5");
}

#[test]
fn functions_are_about_their_tasks() {
    use TaskManagement as Is;
    let rows = [
        (Is::ABORT_TASK_SET, "abort task set", [true, false, false]),
        (Is::CLEAR_TASK_SET, "clear task set", [true, true, false]),
        (Is::LU_RESET, "reset", [true, true, false]),
        (Is::TARGET_RESET, "reset all", [true, true, true]),
    ];
    for (management, name, ends) in rows {
        let mut rig = rig();
        rig.log_in(OTHER, 2112);
        rig.begin(0, Data::In(512));
        rig.begin_of(OTHER, 1, Data::In(512));
        // The same logical unit in the other form, and another.
        let flat = fcp::Command { lun: [0x40, 3, 0, 0, 0, 0, 0, 0], ..command(Data::None) };
        rig.send_command(HOST, 2, flat);
        let elsewhere = fcp::Command { lun: [0; 8], ..command(Data::None) };
        rig.send_command(HOST, 3, elsewhere);
        assert_eq!(manage(&mut rig, HOST, 9, management), "");
        let expected = [ends[0], ends[1], ends[0], ends[2]];
        let mut left = expected.iter().filter(|it| **it).count();
        for (exchange, ended) in (0..).zip(expected) {
            let said = rig.accept(exchange, Data::None);
            assert_eq!(!said.contains("execute"), ended, "{name} {exchange}: {said}");
            left -= usize::from(ended);
            let is_managed = said.contains(&format!("manage 4 {name}"));
            assert_eq!(is_managed, ended && left == 0, "{name} {exchange}: {said}");
        }
    }
}

#[test]
fn functions_that_there_are_not_are_rejected() {
    let mut rig = rig();
    use TaskManagement as Is;
    let missing =
        [Is::QUERY_TASK_SET, Is::QUERY_ASYNCHRONOUS_EVENT, Is::CLEAR_ACA, Is::TERMINATE_TASK];
    for management in missing {
        assert_eq!(manage(&mut rig, HOST, 1, management), "");
        assert_eq!(rig.sent(), "1 status 0 code 4");
    }
    assert_eq!(manage(&mut rig, HOST, 1, Is::LU_RESET), "manage 4 reset");
    rig.managed(4, ResponseCode::LunInvalid);
    assert_eq!(rig.sent(), "1 status 0 code 9");
}

#[test]
fn a_function_that_is_aborted_is_done_nevertheless() {
    let mut rig = rig();
    let at_work = rig.at_work(1, Data::Out(512));
    manage(&mut rig, HOST, 2, TaskManagement::LU_RESET);
    rig.abort(2, None);
    rig.abort(1, None);
    assert_eq!(rig.sent(), "");
    assert_eq!(rig.complete(at_work, 0), "release 0, manage 1 reset");
    assert_eq!(rig.sent(), "1 accepted");
    rig.managed(1, ResponseCode::Complete);
    assert_eq!(rig.sent(), "2 accepted");
}

#[test]
fn two_functions_wait_for_the_same_task() {
    let mut rig = rig();
    let at_work = rig.at_work(1, Data::Out(512));
    manage(&mut rig, HOST, 2, TaskManagement::ABORT_TASK_SET);
    manage(&mut rig, HOST, 3, TaskManagement::LU_RESET);
    let said = rig.complete(at_work, 0);
    assert_eq!(said, "release 0, manage 1 abort task set, manage 2 reset");
}

#[test]
fn a_function_of_another_lane_ends_tasks_here() {
    let mut rig = rig();
    rig.log_in(OTHER, 2112);
    let at_work = rig.at_work(1, Data::Out(512));
    let asked = rig.asked(2, 512);
    let others = rig.begin_of(OTHER, 3, Data::In(512));
    assert_eq!(rig.lane.end_tasks(LUN, Function::LuReset, None), [at_work, others]);
    assert!(rig.lane.is_ending(at_work) && rig.lane.is_ending(others));
    assert!(!rig.lane.is_ending(asked), "it waits for data, and never gets them");
    assert_eq!(rig.accept(others, Data::In(512)), "");
    let sent = format!("2 status 40, 3 status 40, release {asked}, release {others}");
    assert_eq!(rig.sent(), sent);
    assert_eq!(rig.data(2, asked, 0, (0, 512), true), "");
    assert!(rig.lane.is_ending(at_work) && !rig.lane.is_ending(others));
    assert_eq!(rig.complete(at_work, 0), "");
    assert!(!rig.lane.is_ending(at_work));
    // The initiator may have another port, and has not heard of it at this one.
    assert_eq!(rig.sent(), format!("1 status 40, release {at_work}"));
    let elsewhere = [0, 9, 0, 0, 0, 0, 0, 0];
    let at_work = rig.at_work(4, Data::Out(512));
    assert_eq!(rig.lane.end_tasks(elsewhere, Function::ClearTaskSet, None), [0; 0]);
    assert_eq!(rig.lane.end_tasks(elsewhere, Function::TargetReset, None), [at_work]);
}

#[test]
fn an_initiator_that_has_asked_another_lane_of_its_port_is_not_told_of_its_own_tasks() {
    let mut rig = rig();
    rig.log_in(OTHER, 2112);
    let at_work = rig.at_work(1, Data::Out(512));
    let asked = rig.asked(2, 512);
    let others = rig.begin_of(OTHER, 3, Data::In(512));
    let by = Some(HOST.wwpn);
    assert_eq!(rig.lane.end_tasks(LUN, Function::AbortTaskSet, by), [at_work]);
    assert_eq!(rig.sent(), "", "nothing is said of the one that waits for data");
    assert_eq!(rig.lane.end_tasks(LUN, Function::AbortTaskSet, None), [0; 0], "of nobody");
    assert_eq!(rig.lane.end_tasks(LUN, Function::ClearTaskSet, by), [at_work, others]);
    assert!(rig.lane.is_ending(at_work) && !rig.lane.is_ending(asked));
    let ended = format!("release {asked}, release {at_work}");
    assert_eq!(rig.complete(at_work, 0), ended);
    assert_eq!(rig.sent(), "");
    assert_eq!(rig.accept(others, Data::In(512)), "");
    assert_eq!(rig.sent(), format!("3 status 40, release {others}"), "the other is told");
}

#[test]
fn a_function_that_takes_too_long_has_failed() {
    let mut rig = rig();
    let at_work = rig.at_work(1, Data::Out(512));
    assert_eq!(manage(&mut rig, HOST, 2, TaskManagement::LU_RESET), "");
    assert_eq!(rig.wait(MANAGEMENT - Duration::from_nanos(1)), "");
    assert_eq!(rig.wait(Duration::from_nanos(1)), "unmanage 1");
    assert_eq!(rig.sent(), "2 status 0 code 5");
    assert_eq!(rig.complete(at_work, 0), format!("release {at_work}"), "it has ended the write");
    // While the user is at it, who is to forget it.
    assert_eq!(manage(&mut rig, HOST, 3, TaskManagement::LU_RESET), "manage 2 reset");
    assert_eq!(rig.wait(MANAGEMENT), "unmanage 2");
    assert_eq!(rig.sent(), "3 status 0 code 5");
    // Its initiator has given it up.
    assert_eq!(manage(&mut rig, HOST, 4, TaskManagement::LU_RESET), "manage 3 reset");
    assert_eq!(rig.abort(4, None), "");
    assert_eq!(rig.wait(MANAGEMENT), "unmanage 3");
    assert_eq!(rig.sent(), "4 accepted");
    assert_eq!(rig.lane.ignored().management_failed, 3);
    // In time.
    assert_eq!(manage(&mut rig, HOST, 5, TaskManagement::LU_RESET), "manage 4 reset");
    assert_eq!(rig.managed(4, ResponseCode::Complete), "");
    assert_eq!(rig.wait(2 * MANAGEMENT), "");
    assert_eq!(rig.sent(), "5 status 0 code 0");
}

#[test]
fn a_logout_ends_all_exchanges_and_is_drained_when_the_store_is_done() {
    let mut rig = rig();
    rig.log_in(OTHER, 2112);
    let offered = rig.begin(1, Data::Out(512));
    let asked = rig.asked(2, 4096);
    let at_work = rig.at_work(3, Data::Out(512));
    let sending = rig.at_work(4, Data::In(8192));
    rig.asked(5, 512);
    rig.abort(5, None);
    rig.sent();
    let aborting = rig.at_work(6, Data::Out(512));
    rig.abort(6, None);
    let others = rig.begin_of(OTHER, 1, Data::In(512));
    rig.complete(sending, 8192);
    rig.send_one();
    manage(&mut rig, HOST, 7, TaskManagement::QUERY_TASK_SET);

    assert_eq!(rig.log_out(HOST), format!("release {asked}, release {sending}"));
    assert_eq!(rig.sent(), "", "not even what was to be sent");
    // A write whose data are not there is never executed.
    assert_eq!(rig.data(2, asked, 0, (0, 2048), false), "");
    assert_eq!(rig.send_command(HOST, 9, command(Data::None)), "");
    assert_eq!(rig.abort(3, None), "");
    assert_eq!(rig.accept(offered, Data::Out(512)), format!("release {offered}"));
    assert_eq!(rig.complete(at_work, 0), format!("release {at_work}"));
    assert_eq!(rig.complete(aborting, 0), format!("release {aborting}, drained a01"));
    assert_eq!(rig.sent(), "");
    rig.complete(others, 512);
    assert_eq!(rig.sent(), format!("1 data 0+512 end, 1 status 0, release {others}"));

    // The next login knows nothing of it.
    rig.log_in(HOST, 2112);
    assert_eq!(rig.rec(2), "777 no 3/17");
    rig.begin(5, Data::None);
    rig.wait(R_A_TOV);
    rig.abort(5, None);
}

#[test]
fn a_logout_without_exchanges_is_drained_at_once() {
    let mut rig = rig();
    assert_eq!(rig.log_out(HOST), "drained a01");
    assert_eq!(rig.log_out(HOST), "drained a01", "unknown");
    assert_eq!(rig.send_command(HOST, 1, command(Data::None)), "");
    assert_eq!(rig.lane.ignored().stranger, 1);
}

#[test]
fn a_logout_waits_for_a_function_and_the_function_for_its_tasks() {
    let mut rig = rig();
    let at_work = rig.at_work(1, Data::Out(512));
    manage(&mut rig, HOST, 2, TaskManagement::LU_RESET);
    assert_eq!(rig.log_out(HOST), "");
    assert_eq!(rig.complete(at_work, 0), "release 0, manage 1 reset");
    assert_eq!(rig.managed(1, ResponseCode::Complete), "drained a01");
    assert_eq!(rig.sent(), "");
}

#[test]
fn a_login_that_is_repeated_ends_nothing() {
    let mut rig = rig();
    let exchange = rig.at_work(1, Data::In(4096));
    rig.log_in(HOST, 1024);
    rig.complete(exchange, 2048);
    assert_eq!(rig.sent(), "1 data 0+1024, 1 data 1024+1024 end, 1 status 0 under 2048, release 0");
}

#[test]
fn an_n_port_id_may_be_anothers_while_commands_of_the_former_port_are_at_work() {
    let mut rig = rig();
    let former = rig.at_work(1, Data::Out(512));
    assert_eq!(rig.log_out(HOST), "");
    let other = Host { wwpn: Wwn(HOST.wwpn.0 + 7), ..HOST };
    rig.log_in(other, 2112);
    // Its first command is lost, and it aborts what it has never sent.
    assert_eq!(rig.abort(1, None), "");
    assert_eq!(rig.sent(), "1 rejected");
    let exchange = rig.begin_of(other, 1, Data::None);
    assert_ne!(exchange, former);
    assert_eq!(rig.complete(exchange, 0), "");
    assert_eq!(rig.sent(), format!("1 status 0, release {exchange}"));
    let drained = format!("release {former}, drained {:x}", HOST.wwpn.0 & 0xffff);
    assert_eq!(rig.complete(former, 0), drained);
}
