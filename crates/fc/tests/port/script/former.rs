//! Neighbours whose N_Port_ID another port may still hold.

use super::*;

/// Another port than the script's, with the same N_Port_ID.
fn other() -> Neighbour {
    Neighbour { enode: OTHER_NODE, ..neighbour(HIGHER + 1, INITIATOR) }
}

/// A port that was logged in, and whose N_Port_ID another port has claimed.
fn displaced() -> Script {
    let mut script = logged_in();
    script.neighbour(NeighbourEvent::Gone(neighbour(HIGHER, INITIATOR)));
    script.logins.drained(script.now, Wwn(HIGHER));
    assert_eq!(script.events(), [Event::LoggedOut(Wwn(HIGHER), Cause::Gone)]);
    script.take_sent();
    script.neighbour(NeighbourEvent::Appeared(other()));
    assert_eq!(script.take_sent(), "Logo");
    assert_eq!((script.asked.unwrap().1, script.sent_to), (Some(Service::Logo), THEIR_NODE));
    script
}

/// The other port logs in: from now on all frames are between us and it.
fn log_in(script: &mut Script) {
    assert_eq!(script.sent_to, OTHER_NODE);
    (script.wwpn, script.node) = (other().wwpn, OTHER_NODE);
    assert_eq!(script.answer(Reply::FabricLogin(script.flogi())), "");
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "yes");
    assert_eq!(script.ask(Request::Prli(prli(FcpParameters::INITIATOR))), "yes");
    assert!(matches!(script.events()[..], [Event::LoggedIn(login)] if login.wwpn == script.wwpn));
}

#[test]
fn whoever_had_an_n_port_id_is_logged_out_before_another_logs_in_with_it() {
    let mut script = displaced();
    assert_eq!(script.wait(5_000), "Logo, Logo", "until it answers");
    let logo = script.asked;
    script.node = OTHER_NODE;
    script.wwpn = other().wwpn;
    assert_eq!(script.ask(Request::Flogi(script.flogi())), "no 20", "not yet");
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "");
    script.asked = logo;
    assert_eq!(script.answer(Reply::Accepted), "", "the answer of another interface");
    script.node = THEIR_NODE;
    assert_eq!(script.answer(Reply::Accepted), "Flogi");
    log_in(&mut script);
    assert_eq!(script.wait(60_000), "");
}

#[test]
fn a_refused_logout_is_as_good() {
    let mut script = displaced();
    assert_eq!(script.refuse(Rejection::UNABLE, Rejection::NOT_LOGGED_IN), "Flogi");
    log_in(&mut script);
}

#[test]
fn whoever_claims_another_n_port_id_has_its_logins_there() {
    let mut script = displaced();
    let elsewhere = Neighbour { id: PortId::new(0x0303), ..neighbour(HIGHER, TARGET) };
    script.neighbour(NeighbourEvent::Appeared(elsewhere));
    assert_eq!(script.take_sent(), "Flogi, Flogi");
}

#[test]
fn whoever_does_not_hear_us_forgets_us() {
    let mut script = displaced();
    let logos = ["Logo"; 13].join(", ");
    assert_eq!(script.wait(27_999), logos);
    assert_eq!(script.wait(1), "Flogi");
    log_in(&mut script);
}

#[test]
fn the_same_port_under_its_former_n_port_id_is_not_held_up() {
    let mut script = displaced();
    script.neighbour(NeighbourEvent::Gone(other()));
    script.neighbour(NeighbourEvent::Appeared(neighbour(HIGHER, INITIATOR)));
    assert_eq!(script.take_sent(), "Flogi");
    assert_eq!(script.wait(1_000), "", "and nobody is asked to log out any more");
}

#[test]
fn nobody_is_asked_for_a_port_that_has_gone_meanwhile() {
    let mut script = displaced();
    script.neighbour(NeighbourEvent::Gone(other()));
    assert_eq!(script.wait(60_000), "");
    assert_eq!(script.logins.poll_timeout(), None);
}
