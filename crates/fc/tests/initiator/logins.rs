//! Logins that end and begin while commands are on the way.

use tyche_fc::initiator::{Command, Data, Failure, LaneConfig, Refused};
use tyche_fc::neighbour::Functions;
use tyche_fc::port::Login;
use tyche_fc::wire::{PortId, Wwn};

use crate::script::{FRAME, LUN, OURS, R_A_TOV, REC_TOV, Script, WWPN, config, login, mac, parse};

fn log_out(script: &mut Script) {
    script.lane.logged_out(script.now, WWPN);
    script.drain();
}

fn log_in(script: &mut Script, login: &Login) {
    let nexus = script.lane.logged_in(script.now, (OURS, mac(OURS)), login);
    assert_eq!(nexus, Some(script.nexus));
}

#[test]
fn a_logout_ends_all_commands_and_says_which_may_still_be_executed() {
    let mut script = Script::with(LaneConfig { read_frames: 3, ..config() });
    let read = script.read(2 * FRAME);
    let waiting = script.read(2 * FRAME);
    let whole = script.write(FRAME);
    let partial = script.write(2 * FRAME);
    let [flush, zeroes] = [0x91, 0x93].map(|cdb| script.try_submit(cdb, Data::None).unwrap());
    assert_eq!(script.sent().matches("command").count(), 5);
    script.ask_for(0x2c, 0, FRAME);
    script.ask_for(0x2d, 0, FRAME);
    log_out(&mut script);
    let ends = script.ends();
    let may_modify: Vec<_> = ends
        .iter()
        .map(|(name, end)| match end {
            Err(Failure::LoggedOut { may_modify }) => (*name, *may_modify),
            end => panic!("{end:?}"),
        })
        .collect();
    let expected = [
        (read, false),
        (waiting, false),
        (whole, true),
        (partial, false),
        (flush, false),
        (zeroes, true),
    ];
    assert_eq!(may_modify, expected);
    assert_eq!((script.lane.commands(), script.sent()), (0, String::new()));
    assert_eq!(script.try_submit(0x91, Data::None), Err(Refused::LoggedOut));
    script.good(0x2c);
    assert_eq!((script.ends(), script.lane.ignored().late), (vec![], 1));
    assert_eq!(script.wait(R_A_TOV), "");
    assert_eq!(script.lane.poll_timeout(), None);
}

#[test]
fn what_was_not_sent_before_a_logout_is_not_sent_after_it() {
    let mut script = Script::new();
    let unit = script.unit;
    let (cdb, data) = ([0x93; 16], Data::None);
    let command = Command { unit, cdb, data, modifies: true, hears_attentions: true };
    script.lane.submit(&command).unwrap();
    log_out(&mut script);
    assert_eq!(script.ends(), [(0, Err(Failure::LoggedOut { may_modify: false }))]);
    log_in(&mut script, &login());
    script.drain();
    assert_eq!(script.sent(), "");
}

#[test]
fn a_new_login_with_other_numbers_reaches_the_same_units() {
    let mut script = Script::new();
    script.flush();
    script.good(0x2a);
    log_out(&mut script);
    let id = PortId::new(0x0c03);
    log_in(&mut script, &Login { id, mac: mac(id), payload_max: 1024, ..login() });
    assert_eq!(script.lane.unit(script.nexus, LUN), Some(script.unit));
    script.sent();
    script.write(2048);
    script.sent();
    let command = parse(&script.seen[0]);
    assert_eq!((command.header.d_id, command.ethernet.destination), (id, mac(id)));
    assert_eq!(command.payload[..8], LUN);
    script.good(0x2b);
    assert_eq!(script.lane.ignored().stranger, 1, "from the former number");
}

#[test]
fn more_that_is_agreed_ends_nothing_and_another_login_does() {
    let mut script = Script::new();
    script.flush();
    log_in(&mut script, &Login { r_a_tov: 2 * login().r_a_tov, ..login() });
    assert!(script.ends().is_empty());
    let id = PortId::new(0x0c03);
    log_in(&mut script, &Login { id, mac: mac(id), ..login() });
    script.drain();
    assert_eq!(script.ends(), [(0, Err(Failure::LoggedOut { may_modify: false }))]);
    let functions = Functions { initiator: true, target: false };
    let none = Login { id, functions, ..login() };
    assert_eq!(script.lane.logged_in(script.now, (OURS, mac(OURS)), &none), None);
    assert_eq!(script.try_submit(0x91, Data::None), Err(Refused::LoggedOut));
}

#[test]
fn a_logout_ends_questions_and_aborts() {
    let mut script = Script::new();
    script.read(FRAME);
    script.write(FRAME);
    script.sent();
    assert_eq!(script.wait(REC_TOV), "ask 002a, ask 002b");
    log_out(&mut script);
    assert_eq!(script.ends().len(), 2);
    assert_eq!(script.unknown(), "");
    assert_eq!(script.lane.ignored().late, 1);
    log_in(&mut script, &login());
    assert_eq!(script.wait(100_000), "");
    script.flush();
    assert_eq!(script.sent(), "command 002e");
    assert!(script.restarts.is_empty());
}

#[test]
fn targets_are_apart_and_there_are_not_more_than_there_may_be() {
    let mut script = Script::new();
    let id = PortId::new(0x0c03);
    let second = Login { wwpn: Wwn(2), id, mac: mac(id), ..login() };
    let nexus = script.lane.logged_in(script.now, (OURS, mac(OURS)), &second).unwrap();
    let third = Login { wwpn: Wwn(3), ..second };
    assert_eq!(script.lane.logged_in(script.now, (OURS, mac(OURS)), &third), None);
    let unit = script.lane.unit(nexus, LUN).unwrap();
    assert_ne!(unit, script.unit);
    script.flush();
    script.unit = unit;
    let name = script.flush();
    log_out(&mut script);
    assert_eq!(script.ends(), [(0, Err(Failure::LoggedOut { may_modify: false }))]);
    script.good(0x2b);
    assert_eq!(script.lane.ignored().stranger, 1, "from the other target");
    assert_eq!((script.lane.commands(), name), (1, 1));
    for lun in 1..3 {
        assert!(script.lane.unit(nexus, [lun; 8]).is_some());
    }
    assert_eq!(script.lane.unit(nexus, [9; 8]), None);
}

#[test]
fn commands_are_numbered_for_each_target() {
    let mut script = Script::new();
    let other = PortId::new(0x0c03);
    let other = Login { wwpn: Wwn(0xc03), id: other, mac: mac(other), ..login() };
    let nexus = script.lane.logged_in(script.now, (OURS, mac(OURS)), &other).unwrap();
    let unit = script.lane.unit(nexus, LUN).unwrap();
    script.lane.number_commands(unit, true);
    script.lane.number_commands(script.unit, true);
    let (cdb, data) = ([0x91; 16], Data::None);
    let command = Command { unit, cdb, data, modifies: false, hears_attentions: true };
    script.submit_command(&command).unwrap();
    assert_eq!(script.sent(), "command 002a");
    assert_eq!(parse(&script.seen[0]).payload[8], 1);
    script.lane.logged_out(script.now, other.wwpn);
    script.drain();
    script.wait(R_A_TOV);
    script.ends.clear();
    // Its XID is the last to be used.
    for ox_id in (0x2b..=0xa9).chain([0x2a]) {
        script.flush();
        assert_eq!(script.sent(), format!("command {ox_id:04x}"));
        assert_eq!(parse(&script.seen[0]).payload[8], 1, "the first with this XID");
        script.good(ox_id);
        script.ends.clear();
    }
}
