//! Registration with the name server, and questions to it.

use tyche_fc::neighbour::{Event, Functions};
use tyche_fc::wire::ct::{NamedPort, Reply};
use tyche_fc::wire::els::{self, ChangedPort, Request, Rscn};
use tyche_fc::wire::{FCtl, Fc4, Fc4Functions, Header, Kind, PortId, Wwn, Xid};

use crate::offers::plogi;
use crate::script::{FCF, ID, SWITCH, Script, WWPN, ms};

const THERE: (PortId, Wwn) = (PortId::new(0x01_0202), Wwn(0x2000_0000_0000_0002));
const NO_PORT: Reply<'static> = Reply::Refused { reason: 9, explanation: 1 };

fn accept(script: &mut Script, reply: els::Reply) {
    script.answer(Kind::ElsReply, |payload| reply.emit(payload));
}

fn list(script: &mut Script, ports: &[(PortId, Wwn)]) {
    let last = ports.len() - 1;
    let ports = ports.iter().enumerate();
    let ports: Vec<_> = ports.map(|(at, it)| NamedPort::new(it.0, it.1, at == last)).collect();
    script.name(Reply::Ports(&ports));
}

/// A node that has registered, and asks for the list.
fn registered() -> Script {
    let mut script = Script::logged_in();
    accept(&mut script, els::Reply::PortLogin(plogi(SWITCH)));
    (0..3).for_each(|_| script.name(Reply::Registered));
    accept(&mut script, els::Reply::Accepted);
    script
}

/// A node that knows a target.
fn settled() -> Script {
    let mut script = registered();
    list(&mut script, &[(ID, WWPN), THERE]);
    script.name(Reply::Functions(Fc4Functions::fcp(Fc4::TARGET)));
    script.words();
    assert!(script.node.is_settled());
    script
}

fn tell_change(script: &mut Script, id: PortId) {
    let mut payload = [0; 116];
    let len = Request::Rscn(Rscn { ports: &[ChangedPort { flags: 0, id }] }).emit(&mut payload);
    let from = PortId::FABRIC_CONTROLLER;
    let header = Header::request(Kind::ElsRequest, from, ID, Xid(0x4000));
    assert!(script.deliver(header, &payload[..len]));
}

#[test]
fn a_port_registers_before_it_asks_and_leaves_itself_out() {
    let mut script = registered();
    list(&mut script, &[(ID, WWPN), THERE]);
    assert!(!script.node.is_settled());
    script.name(Reply::Functions(Fc4Functions::fcp(Fc4::TARGET)));
    let words = script.words();
    let wanted = "Solicitation LinkRequest Plogi RnnId RftId RffId Scr GpnFt GffId";
    assert_eq!(words, wanted);
    assert!(script.node.is_settled());
    let Event::Appeared(neighbour) = script.events[1] else { panic!("{:?}", script.events) };
    assert_eq!((neighbour.id, neighbour.wwpn, neighbour.enode), (THERE.0, THERE.1, FCF));
    assert_eq!(neighbour.functions, Functions { initiator: false, target: true });
}

#[test]
fn a_question_is_repeated_and_then_all_is_asked_anew() {
    let mut script = registered();
    script.words();
    for _ in 0..2 {
        script.advertise(FCF, 128, crate::script::USABLE, 0);
        script.run(ms(8_000));
    }
    assert_eq!(script.words(), "GpnFt KeepAlive GpnFt GpnFt KeepAlive Plogi");
}

#[test]
fn a_refused_login_with_the_name_server_is_repeated() {
    let mut script = Script::logged_in();
    script.words();
    script.run(ms(4_000));
    assert_eq!(script.sent.len(), 1);
    let refused = els::Rejection { reason: els::Rejection::BUSY, explanation: 0 };
    accept(&mut script, els::Reply::Refused(refused));
    script.run(ms(2_000));
    assert_eq!(script.words(), "Plogi Plogi");
}

#[test]
fn a_change_is_accepted_and_looked_at_once_for_many() {
    let mut script = settled();
    (0..50).for_each(|_| tell_change(&mut script, THERE.0));
    script.run(ms(200));
    assert_eq!(script.words(), ["ElsReply "; 50].concat() + "GpnFt");
    let events = script.events.len();
    script.run(ms(1));
    assert_eq!(script.events.len(), events, "nothing is known yet");
}

#[test]
fn a_port_that_may_have_begun_anew_is_doubtful_and_one_that_changed_says_so() {
    let mut script = settled();
    for functions in [Fc4::TARGET, Fc4::TARGET | Fc4::INITIATOR] {
        tell_change(&mut script, THERE.0);
        script.run(ms(200));
        list(&mut script, &[(ID, WWPN), THERE]);
        script.name(Reply::Functions(Fc4Functions::fcp(functions)));
        let Some(Event::Doubtful(neighbour)) = script.events.last() else {
            panic!("{:?}", script.events)
        };
        assert!(neighbour.functions.target);
        assert_eq!(neighbour.functions.initiator, functions != Fc4::TARGET);
    }
}

#[test]
fn a_port_that_is_missing_is_gone_unless_it_has_its_name() {
    let mut script = settled();
    for (answer, is_there) in [(Reply::Name(THERE.1), true), (NO_PORT, false)] {
        tell_change(&mut script, PortId::new(0x01_0303));
        script.run(ms(200));
        list(&mut script, &[(ID, WWPN)]);
        assert_eq!(script.sent.last().unwrap().word(), "GpnId");
        script.name(answer);
        assert_eq!(script.node.neighbours().count(), usize::from(is_there));
    }
    assert!(matches!(script.events.last(), Some(Event::Gone(it)) if it.wwpn == THERE.1));
}

#[test]
fn an_address_that_has_another_name_is_another_port() {
    let mut script = settled();
    tell_change(&mut script, THERE.0);
    script.run(ms(200));
    list(&mut script, &[(ID, WWPN), (THERE.0, Wwn(0x2000_0000_0000_0003))]);
    assert!(matches!(script.events.last(), Some(Event::Gone(it)) if it.wwpn == THERE.1));
    assert_eq!(script.sent.last().unwrap().word(), "GffId");
}

#[test]
fn a_login_introduces_its_sender_and_other_frames_do_not() {
    let mut script = settled();
    let (id, wwpn) = (PortId::new(0x01_0404), Wwn(0x2000_0000_0000_0004));
    let mut payload = [0; 116];
    for (request, count) in [(Request::Rtv, 1), (Request::Plogi(plogi(wwpn)), 2)] {
        let len = request.emit(&mut payload);
        let header = Header::request(Kind::ElsRequest, id, ID, Xid(1));
        assert!(!script.deliver(header, &payload[..len]), "others handle it");
        assert_eq!(script.node.neighbours().count(), count);
    }
    let Some(Event::Appeared(it)) = script.events.last() else { panic!("{:?}", script.events) };
    assert_eq!((it.id, it.wwpn, it.wwnn), (id, wwpn, Some(wwpn)));
    assert_eq!(it.functions, Functions { initiator: true, target: false });
    // It may be a target as well.
    assert_eq!(script.sent.last().unwrap().word(), "GffId");
    script.name(Reply::Functions(Fc4Functions::fcp(Fc4::TARGET | Fc4::INITIATOR)));
    assert!(matches!(script.events.last(), Some(Event::Doubtful(it)) if it.functions.target));
}

/// Its frames come in order; the last of them is beyond what is kept.
#[test]
fn of_a_list_that_is_too_long_the_first_ports_count() {
    let mut script = registered();
    let port = |it: u32| NamedPort::new(PortId::new(0x02_0000 + it), Wwn(it.into()), it == 1099);
    let ports: Vec<_> = (0..1100).map(port).collect();
    let mut payload = vec![0; 20_000];
    let len = Reply::Ports(&ports).emit(&mut payload);
    let asked = script.sent.last().unwrap().fc().header;
    let reply = asked.reply(Kind::CtReply, Xid(7));
    let parts: Vec<_> = payload[..len].chunks(2112).collect();
    for (index, part) in (0..).zip(&parts) {
        let is_last = usize::from(index) == parts.len() - 1;
        let f_ctl = if is_last { reply.f_ctl } else { FCtl::EX_CTX };
        script.deliver(Header { seq_cnt: index, f_ctl, ..reply }, part);
    }
    assert_eq!(script.sent.last().unwrap().word(), "GffId");
    assert_eq!(script.node.ignored().malformed, 0);
}

#[test]
fn without_changes_the_list_is_asked_for_every_half_minute() {
    let mut script = settled();
    for _ in 0..5 {
        script.advertise(FCF, 128, crate::script::USABLE, 0);
        script.run(ms(6_000));
    }
    let lists = script.sent.iter().filter(|it| it.word() == "GpnFt").count();
    assert_eq!(lists, 1);
}
