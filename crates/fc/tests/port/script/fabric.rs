//! Logins in a fabric: without FLOGI, and with what only a fabric has.

use super::*;

const FORWARDER: Mac = Mac([2, 0, 0, 0, 0x0f, 0]);

/// A port of our name in a fabric, with a neighbour of that name.
fn in_fabric(functions: Functions, wwpn: u64, theirs: Functions) -> Script {
    let mut script = script(functions, wwpn, theirs);
    script.neighbour(NeighbourEvent::Gone(neighbour(wwpn, theirs)));
    script.neighbour(NeighbourEvent::Released(OURS.0));
    let fabric =
        Fabric { forwarder: FORWARDER, payload_max: 2048, e_d_tov: ms(3_000), r_a_tov: ms(20_000) };
    let (id, mac) = (OURS.0, Mac::fpma(FcMap::FABRIC, OURS.0));
    script.address = Address { id, mac, fabric: Some(fabric) };
    script.neighbour(NeighbourEvent::Claimed(script.address));
    script.sent.clear();
    script.neighbour(NeighbourEvent::Appeared(there(wwpn, theirs)));
    script
}

fn there(wwpn: u64, functions: Functions) -> Neighbour {
    Neighbour { enode: FORWARDER, wwnn: None, ..neighbour(wwpn, functions) }
}

/// A target with an initiator that has logged in by the exchange of `script.next`.
fn served() -> Script {
    let mut script = in_fabric(TARGET, HIGHER, INITIATOR);
    assert_eq!(script.take_sent(), "", "the initiator asks");
    assert_eq!(script.ask(Request::Plogi(plogi(Wwn(HIGHER)))), "yes");
    assert_eq!(script.ask_again(Request::Prli(prli(FcpParameters::INITIATOR))), "yes");
    let [Event::LoggedIn(login)] = script.events()[..] else { panic!("{:?}", script.logins) };
    assert_eq!((login.mac, login.payload_max), (FORWARDER, 1452));
    assert_eq!((login.e_d_tov, login.r_a_tov), (ms(3_000), ms(20_000)));
    script
}

#[test]
fn an_initiator_begins_with_plogi_whatever_the_names() {
    for wwpn in [LOWER, HIGHER] {
        let mut script = in_fabric(INITIATOR, wwpn, TARGET);
        assert_eq!(script.take_sent(), "Plogi");
        assert_eq!(script.answer(Reply::PortLogin(plogi(Wwn(wwpn)))), "Prli");
    }
}

#[test]
fn a_repeated_plogi_is_of_the_same_login_only_at_once() {
    let mut script = served();
    script.wait(999);
    assert_eq!(script.ask_again(Request::Plogi(plogi(Wwn(HIGHER)))), "yes");
    assert_eq!(script.events(), []);
    script.wait(1);
    assert_eq!(script.ask_again(Request::Plogi(plogi(Wwn(HIGHER)))), "");
    let wwpn = Wwn(HIGHER);
    assert_eq!(script.events(), [Event::LoggedOut(wwpn, Cause::Anew)]);
    script.logins.drained(script.now, wwpn);
    script.drain();
    assert_eq!(script.take_sent(), "yes", "another login");
}

#[test]
fn a_login_that_is_not_completed_is_ended_by_logo() {
    let mut script = in_fabric(TARGET, HIGHER, INITIATOR);
    assert_eq!(script.ask(Request::Plogi(plogi(Wwn(HIGHER)))), "yes");
    assert_eq!(script.wait(20_000), "Logo");
    assert_eq!(script.sent_by_fip, None);
}

#[test]
fn a_doubtful_neighbour_is_asked_and_refuses_only_if_it_has_forgotten() {
    for forgotten in [false, true] {
        let mut script = served();
        script.sent.clear();
        script.neighbour(NeighbourEvent::Doubtful(there(HIGHER, INITIATOR)));
        assert_eq!(script.take_sent(), "Adisc");
        if forgotten {
            script.refuse(Rejection::UNABLE, Rejection::NOT_LOGGED_IN);
            let ended = Event::LoggedOut(Wwn(HIGHER), Cause::Anew);
            assert_eq!(script.events().last(), Some(&ended));
        } else {
            let (wwpn, wwnn, id) = (Wwn(HIGHER), Wwn(HIGHER), THEIRS);
            assert_eq!(script.answer(Reply::Adisc(Adisc { wwpn, wwnn, id })), "");
            assert_eq!(script.events(), []);
        }
    }
}

#[test]
fn a_neighbour_that_turns_out_to_be_a_target_is_asked_for_a_login() {
    let mut script = in_fabric(INITIATOR, HIGHER, INITIATOR);
    assert_eq!(script.take_sent(), "");
    script.neighbour(NeighbourEvent::Doubtful(there(HIGHER, TARGET)));
    assert_eq!(script.take_sent(), "Plogi");
}

#[test]
fn a_port_that_asks_about_exchanges_without_a_login_is_told_to_begin_anew() {
    let mut script = in_fabric(TARGET, HIGHER, INITIATOR);
    let exchange = Exchange { originator: THEIRS, ox_id: Xid(1), rx_id: Xid::NONE };
    let ask = |script: &mut Script| script.ask(Request::Rec(exchange));
    assert_eq!(ask(&mut script), "Logo");
    assert_eq!(ask(&mut script), "", "once is enough");
    script.wait(2_000);
    assert_eq!(ask(&mut script), "Logo");
}
