//! One port, and another end that follows a script.

mod fabric;
mod former;

use tyche_fc::exchange::Xids;
use tyche_fc::neighbour::{
    Address, Event as NeighbourEvent, Fabric, Functions, Interface, Neighbour,
};
use tyche_fc::port::{Carrier, Cause, Event, Failure, Logins, LoginsConfig};
use tyche_fc::wire::els::{
    Adisc, Class3, Code, Exchange, FabricLogin, FcpParameters, Features, Logo, PortLogin, Process,
    Rejection, Reply, Request, Timeouts,
};
use tyche_fc::wire::fip::{self, Flags, LinkService, Message, Service};
use tyche_fc::wire::{
    Ethernet, FRAME_LEN_MAX, FcMap, Frame, HEAD_LEN, Header, Kind, Mac, PortId, Wwn, Xid,
};
use tyche_time::Instant;

use crate::air::ms;
use crate::network::{BOTH, INITIATOR, TARGET};
use crate::offers::{CLASS3, flogi_reply, plogi};

const OURS: (PortId, Wwn) = (PortId::new(0x0101), Wwn(0x2000_0000_0000_0005));
/// Names of the other end.
const LOWER: u64 = OURS.1.0 - 1;
const HIGHER: u64 = OURS.1.0 + 1;
const THEIRS: PortId = PortId::new(0x0202);
const THEIR_NODE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OTHER_NODE: Mac = Mac([2, 0, 0, 0, 0, 3]);

struct Script {
    logins: Logins,
    /// Our address.
    address: Address,
    now: Instant,
    wwpn: Wwn,
    /// The interface of the other end.
    node: Mac,
    /// Where the last frame of FIP went.
    sent_to: Mac,
    /// The last request that we have sent, and its service if it was by FIP.
    asked: Option<(Header, Option<Service>)>,
    /// The FLOGI, or answer to one, that we have sent last.
    fabric_login: Option<FabricLogin>,
    /// The service of what was sent last, if it was by FIP.
    sent_by_fip: Option<Service>,
    /// The codes of what was sent, with `yes` and `no` for answers, since the last look.
    sent: Vec<String>,
    next: u16,
}

/// A port of our name with a neighbour of that name.
fn script(functions: Functions, wwpn: u64, theirs: Functions) -> Script {
    let (id, own) = OURS;
    let logins = Logins::new(LoginsConfig {
        wwpn: own,
        wwnn: own,
        functions,
        retries: true,
        e_d_tov: ms(2_000),
        r_a_tov: ms(10_000),
        exchanges: Xids::new((0x100, 0x4ff), 0, 0),
        seed: 0,
    });
    let mut script = Script {
        logins,
        address: Address::chosen(id),
        now: Instant(1),
        wwpn: Wwn(wwpn),
        node: THEIR_NODE,
        sent_to: THEIR_NODE,
        asked: None,
        fabric_login: None,
        sent_by_fip: None,
        sent: Vec::new(),
        next: 0x7000,
    };
    script.neighbour(NeighbourEvent::Claimed(script.address));
    script.neighbour(NeighbourEvent::Appeared(neighbour(wwpn, theirs)));
    script
}

fn neighbour(wwpn: u64, functions: Functions) -> Neighbour {
    let (wwpn, wwnn) = (Wwn(wwpn), Some(Wwn(wwpn)));
    Neighbour { wwpn, wwnn, id: THEIRS, enode: THEIR_NODE, fcoe_len_max: 2158, functions }
}

impl Script {
    fn neighbour(&mut self, event: NeighbourEvent) {
        let interface = Interface { mac: Mac([2, 0, 0, 0, 0, 1]), mtu: 1500 };
        self.logins.handle_neighbour(self.now, event, interface);
        self.drain();
    }

    fn drain(&mut self) {
        let mut buffer = [0; FRAME_LEN_MAX];
        while let Some((carrier, len)) = self.logins.poll_transmit(&mut buffer) {
            let frame = &buffer[..len];
            let (by_fip, header, payload) = if carrier == Carrier::Fip {
                let frame = fip::Frame::parse(frame).unwrap();
                self.sent_to = frame.ethernet.destination;
                assert!([THEIR_NODE, OTHER_NODE].contains(&self.sent_to));
                let (Message::LinkRequest(it) | Message::LinkReply(it)) = frame.message else {
                    panic!("{frame:?}")
                };
                (Some(it.service), it.header, it.payload)
            } else {
                let (head, rest) = frame.split_first_chunk::<HEAD_LEN>().unwrap();
                let frame = Frame::parse(head, rest).unwrap();
                let to = self.address.of_other(frame.header.d_id);
                assert_eq!(
                    (frame.ethernet.source, frame.ethernet.destination),
                    (self.address.mac, to)
                );
                (None, frame.header, frame.payload)
            };
            self.sent_by_fip = by_fip;
            if let Ok(Request::Flogi(login)) = Request::parse(payload) {
                self.fabric_login = Some(login);
            } else if let Ok(Reply::FabricLogin(login)) = Reply::parse(Code::Flogi, payload) {
                self.fabric_login = Some(login);
            }
            if header.kind == Kind::ElsRequest {
                self.asked = Some((header, by_fip));
                self.sent.push(format!("{:?}", Code::from_wire(payload[0]).unwrap()));
            } else {
                let is_refused = payload[0] == Code::LsRjt.to_wire();
                self.sent.push(if is_refused {
                    format!("no {:x}", payload[5])
                } else {
                    "yes".into()
                });
            }
        }
    }

    fn take_sent(&mut self) -> String {
        std::mem::take(&mut self.sent).join(", ")
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.logins.poll_event()).collect()
    }

    fn receive(&mut self, by_fip: Option<Service>, header: Header, payload: &[u8]) {
        let from = THEIRS;
        if let Some(service) = by_fip {
            let mac = (payload[0] != Code::LsRjt.to_wire()).then(|| Mac::fpma(FcMap::VN2VN, from));
            let service = LinkService { service, header, payload, mac };
            let message = match header.kind {
                Kind::ElsRequest => Message::LinkRequest(service),
                _ => Message::LinkReply(service),
            };
            let ethernet = Ethernet { destination: Mac([2, 0, 0, 0, 0, 1]), source: self.node };
            let frame = fip::Frame::new(ethernet, Flags::EMPTY, message);
            assert!(self.logins.handle_fip(self.now, &frame));
        } else {
            let (destination, source) = (self.address.mac, self.address.of_other(from));
            let ethernet = Ethernet { destination, source };
            assert!(self.logins.handle_frame(self.now, &Frame { ethernet, header, payload }));
        }
        self.drain();
    }

    /// Has the other end ask; returns what is sent then.
    fn ask(&mut self, request: Request<'_>) -> String {
        self.next += 1;
        self.ask_again(request)
    }

    /// The same in the exchange of the last request.
    fn ask_again(&mut self, request: Request<'_>) -> String {
        self.ask_by((request.code() == Code::Flogi).then_some(Service::Flogi), request)
    }

    fn ask_by(&mut self, by_fip: Option<Service>, request: Request<'_>) -> String {
        let mut payload = [0; 116];
        let len = request.emit(&mut payload);
        let header = Header::request(Kind::ElsRequest, THEIRS, OURS.0, Xid(self.next));
        self.sent.clear();
        self.receive(by_fip, header, &payload[..len]);
        self.take_sent()
    }

    /// Has the other end answer our last request; returns what is sent then.
    fn answer(&mut self, reply: Reply) -> String {
        let mut payload = [0; 116];
        let len = reply.emit(&mut payload);
        let (header, by_fip) = self.asked.unwrap();
        let header = header.reply(Kind::ElsReply, Xid::NONE);
        self.sent.clear();
        self.receive(by_fip, header, &payload[..len]);
        self.take_sent()
    }

    fn refuse(&mut self, reason: u8, explanation: u8) -> String {
        self.answer(Reply::Refused(Rejection { reason, explanation }))
    }

    fn wait(&mut self, time: u64) -> String {
        self.sent.clear();
        let end = self.now + ms(time);
        while let Some(at) = self.logins.poll_timeout().filter(|at| *at <= end) {
            self.now = at;
            self.logins.handle_timeout(at);
            self.drain();
        }
        self.now = end;
        self.sent.join(", ")
    }

    fn flogi(&self) -> FabricLogin {
        flogi_reply(self.wwpn, Features::EMPTY)
    }

    fn plogi(&self) -> PortLogin {
        plogi(self.wwpn)
    }
}

fn prli(function: FcpParameters) -> Process {
    let parameters = function.with(FcpParameters::READ_XFER_RDY_DISABLED);
    Process { image_pair: true, response: Process::EXECUTED, parameters }
}

/// An initiator with the higher name whose FLOGI has been accepted.
fn higher() -> Script {
    let mut script = script(INITIATOR, LOWER, TARGET);
    assert_eq!(script.answer(Reply::FabricLogin(script.flogi())), "Plogi");
    script
}

/// A target with the lower name that waits for PLOGI.
fn lower() -> Script {
    let mut script = script(TARGET, HIGHER, INITIATOR);
    assert_eq!(script.answer(Reply::FabricLogin(script.flogi())), "");
    script
}

#[test]
fn the_lower_name_does_not_get_through_with_its_plogi_while_ours_is_on_the_way() {
    let mut script = higher();
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "no e");
    assert_eq!(script.answer(Reply::PortLogin(script.plogi())), "Prli");
    assert_eq!(script.answer(Reply::Process(prli(FcpParameters::TARGET))), "Rtv");
    assert!(script.events().is_empty(), "not before the end");
    let timeouts = Timeouts { r_a_tov_ms: u32::MAX, e_d_tov: 4_200_000_000, e_d_tov_ns: true };
    assert_eq!(script.answer(Reply::Timeouts(timeouts)), "");
    let events = script.events();
    let [Event::LoggedIn(login)] = events[..] else { panic!("{events:?}") };
    assert_eq!((login.functions, login.payload_max), (TARGET, 1452), "of an MTU of 1500");
    assert_eq!((login.e_d_tov, login.r_a_tov), (ms(4_000), ms(60_000)), "the larger, bounded");
    assert!(!login.retries, "only if both ends do");
    assert_eq!(script.wait(90_000), "");
    assert_eq!(script.logins.poll_timeout(), None);
}

#[test]
fn a_login_begins_with_flogi_for_plogi_may_be_for_another_port_with_our_n_port_id() {
    let mut script = script(TARGET, HIGHER, INITIATOR);
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "no 5");
    assert_eq!(script.refuse(Rejection::FIP, Rejection::UNKNOWN_NEIGHBOUR), "");
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "no 5");
    assert_eq!(script.ask(Request::Flogi(script.flogi())), "yes");
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "yes");
}

#[test]
fn only_answers_to_flogi_say_timeouts_and_what_class_3_takes() {
    let mut script = script(INITIATOR, LOWER, TARGET);
    let asked = script.fabric_login.take().unwrap();
    assert_eq!((asked.receive_len, asked.r_a_tov_ms, asked.e_d_tov), (1452, 0, 0));
    let nothing = Class3 { receive_len: 0, sequences: 0, open_sequences: 0 };
    assert_eq!(asked.class3, Some(nothing));
    script.ask(Request::Flogi(script.flogi()));
    let answered = script.fabric_login.unwrap();
    assert_eq!((answered.r_a_tov_ms, answered.e_d_tov), (10_000, 2_000));
    assert_eq!(answered.class3, Some(Class3 { receive_len: 1452, ..CLASS3 }));
}

#[test]
fn payloads_are_no_longer_than_class_3_takes() {
    let mut script = higher();
    let class3 = Some(Class3 { receive_len: 1024, ..CLASS3 });
    script.answer(Reply::PortLogin(PortLogin { class3, ..script.plogi() }));
    script.answer(Reply::Process(prli(FcpParameters::TARGET)));
    script.refuse(Rejection::UNSUPPORTED, 0);
    let events = script.events();
    let [Event::LoggedIn(login)] = events[..] else { panic!("{events:?}") };
    assert_eq!(login.payload_max, 1024);
}

#[test]
fn a_refused_question_for_timeouts_is_no_reason_against_a_login() {
    let mut script = higher();
    script.answer(Reply::PortLogin(script.plogi()));
    script.answer(Reply::Process(prli(FcpParameters::TARGET)));
    script.refuse(Rejection::UNSUPPORTED, 0);
    assert!(matches!(script.events()[..], [Event::LoggedIn(_)]));
}

#[test]
fn a_crossing_that_we_lose_has_us_wait_for_the_other_plogi() {
    let mut script = higher();
    assert_eq!(script.refuse(Rejection::IN_PROGRESS, 0), "");
    assert_eq!(script.wait(15_000), "", "no repetition");
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "yes, Prli");
    let mut script = higher();
    script.refuse(Rejection::IN_PROGRESS, 0);
    assert_eq!(script.wait(20_000), "Flogi", "it has not come");
}

#[test]
fn a_plogi_repeated_by_the_network_is_answered_again_and_another_ends_the_login() {
    let mut script = lower();
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "yes");
    let plogi = script.next;
    assert_eq!(script.ask(Request::Prli(prli(FcpParameters::INITIATOR))), "yes");
    assert_eq!(script.events().len(), 1);
    script.next = plogi;
    assert_eq!(script.ask_again(Request::Plogi(script.plogi())), "yes");
    assert!(script.events().is_empty());
    script.next = plogi + 5;
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "", "not before it is drained");
    assert_eq!(script.events(), [Event::LoggedOut(script.wwpn, Cause::Anew)]);
    script.logins.drained(script.now, script.wwpn);
    script.drain();
    assert_eq!(script.take_sent(), "yes");
    assert_eq!(script.ask(Request::Prli(prli(FcpParameters::INITIATOR))), "yes");
    assert!(matches!(script.events()[..], [Event::LoggedIn(_)]));
}

/// A target with the lower name that is logged in.
fn logged_in() -> Script {
    let mut script = lower();
    script.ask(Request::Plogi(script.plogi()));
    script.ask(Request::Prli(prli(FcpParameters::INITIATOR)));
    assert!(matches!(script.events()[..], [Event::LoggedIn(_)]));
    script
}

#[test]
fn the_n_port_id_of_a_port_that_is_gone_and_drains_may_belong_to_another() {
    let mut script = logged_in();
    script.neighbour(NeighbourEvent::Gone(neighbour(HIGHER, INITIATOR)));
    assert_eq!(script.events(), [Event::LoggedOut(Wwn(HIGHER), Cause::Gone)]);
    script.wwpn = Wwn(HIGHER + 1);
    script.take_sent();
    script.neighbour(NeighbourEvent::Appeared(neighbour(HIGHER + 1, INITIATOR)));
    assert_eq!(script.take_sent(), "Logo");
    assert_eq!(script.answer(Reply::Accepted), "Flogi");
    assert_eq!(script.ask(Request::Flogi(script.flogi())), "yes");
    assert_eq!(script.answer(Reply::FabricLogin(script.flogi())), "");
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "yes");
    assert_eq!(script.ask(Request::Prli(prli(FcpParameters::INITIATOR))), "yes");
    assert!(matches!(script.events()[..], [Event::LoggedIn(login)] if login.wwpn == script.wwpn));
}

#[test]
fn a_request_of_a_port_that_is_gone_is_not_answered_when_it_is_back() {
    let mut script = logged_in();
    script.neighbour(NeighbourEvent::Gone(neighbour(HIGHER, INITIATOR)));
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "no 5");
    script.neighbour(NeighbourEvent::Appeared(neighbour(HIGHER, INITIATOR)));
    script.logins.drained(script.now, script.wwpn);
    script.drain();
    assert_eq!(script.take_sent(), "Flogi");
}

#[test]
fn a_plogi_repeated_while_its_login_is_drained_does_not_replace_the_logout() {
    let mut script = logged_in();
    let logo = Logo { id: THEIRS, wwpn: script.wwpn };
    let plogi = script.next - 1;
    assert_eq!(script.ask(Request::Logo(logo)), "");
    script.next = plogi;
    assert_eq!(script.ask_again(Request::Plogi(script.plogi())), "");
    script.logins.drained(script.now, script.wwpn);
    script.drain();
    assert_eq!(script.take_sent(), "yes");
    assert_eq!(script.ask(Request::Prli(prli(FcpParameters::INITIATOR))), "no 9");
}

#[test]
fn logouts_go_by_fip_and_are_answered_the_way_they_came() {
    for by_fip in [Some(Service::Logo), None] {
        let mut script = logged_in();
        let logo = Logo { id: THEIRS, wwpn: script.wwpn };
        assert_eq!(script.ask_by(by_fip, Request::Logo(logo)), "");
        assert_eq!(script.events(), [Event::LoggedOut(script.wwpn, Cause::Logout)]);
        script.logins.drained(script.now, script.wwpn);
        script.drain();
        assert_eq!((script.take_sent().as_str(), script.sent_by_fip), ("yes", by_fip));
        // It is logged out already.
        script.neighbour(NeighbourEvent::Gone(neighbour(HIGHER, INITIATOR)));
        assert_eq!(script.ask_by(by_fip, Request::Logo(logo)), "yes");
        assert_eq!(script.sent_by_fip, by_fip);
    }
    let mut script = logged_in();
    script.logins.log_out();
    script.drain();
    assert_eq!((script.take_sent().as_str(), script.sent_by_fip), ("Logo", Some(Service::Logo)));
}

#[test]
fn a_logout_of_another_node_or_in_another_service_ends_no_login() {
    let mut script = logged_in();
    let logo = Request::Logo(Logo { id: THEIRS, wwpn: script.wwpn });
    assert_eq!(script.ask_by(Some(Service::Flogi), logo), "no b");
    assert_eq!(script.ask_by(Some(Service::Fdisc), logo), "no b");
    let moved = Neighbour { enode: Mac([2, 0, 0, 0, 0, 9]), ..neighbour(HIGHER, INITIATOR) };
    script.neighbour(NeighbourEvent::Appeared(moved));
    script.ask_by(Some(Service::Logo), logo);
    assert!(script.events().is_empty());
    assert_eq!(script.logins.ignored().stranger, 1);
}

#[test]
fn one_flogi_is_enough_for_both() {
    for (wwpn, then) in [(LOWER, "yes, Plogi"), (HIGHER, "yes")] {
        let mut script = script(INITIATOR, wwpn, TARGET);
        assert_eq!(script.refuse(Rejection::FIP, Rejection::UNKNOWN_NEIGHBOUR), "");
        assert_eq!(script.ask(Request::Flogi(script.flogi())), then, "it knows us now");
        assert_eq!(script.wait(2_000), "");
        // In the pause after a logout, and after a login.
        script.ask_by(Some(Service::Logo), Request::Logo(Logo { id: THEIRS, wwpn: Wwn(wwpn) }));
        assert_eq!(script.ask(Request::Flogi(script.flogi())), then);
        if wwpn == LOWER {
            script.answer(Reply::PortLogin(script.plogi()));
        } else {
            script.ask(Request::Plogi(script.plogi()));
        }
        assert_eq!(script.ask(Request::Flogi(script.flogi())), then);
    }
}

#[test]
fn a_second_flogi_means_that_our_plogi_is_forgotten() {
    let mut script = higher();
    assert_eq!(script.ask(Request::Flogi(script.flogi())), "yes", "it crosses our PLOGI");
    assert_eq!(script.ask(Request::Flogi(script.flogi())), "yes, Plogi", "it has forgotten ours");
}

#[test]
fn a_flogi_that_crosses_ours_is_answered_and_ours_waited_for() {
    let mut script = script(INITIATOR, LOWER, TARGET);
    script.take_sent();
    assert_eq!(script.ask(Request::Flogi(script.flogi())), "yes");
    assert_eq!(script.answer(Reply::FabricLogin(script.flogi())), "Plogi");
}

#[test]
fn silence_is_broken_three_times_and_then_a_failure_but_not_the_end() {
    let mut script = script(INITIATOR, LOWER, TARGET);
    script.wait(19_999);
    for _ in 0..3 {
        assert_eq!(script.wait(1), "Flogi");
        assert_eq!(script.wait(19_999), "");
    }
    assert_eq!(script.wait(1), "");
    let silent = Event::Failed(script.wwpn, Code::Flogi, Failure::Silence);
    assert_eq!(script.events(), [silent]);
    assert_eq!(script.wait(1_999), "");
    assert_eq!(script.wait(1), "Flogi");
}

#[test]
fn who_is_busy_is_asked_again_after_a_while() {
    let mut script = higher();
    for _ in 0..3 {
        assert_eq!(script.refuse(Rejection::BUSY, 0), "");
        assert_eq!(script.wait(1_999), "");
        assert_eq!(script.wait(1), "Plogi");
    }
    let refused = Rejection { reason: Rejection::BUSY, explanation: 0 };
    assert_eq!(script.answer(Reply::Refused(refused)), "");
    let failed = Event::Failed(script.wwpn, Code::Plogi, Failure::Refused(refused));
    assert_eq!(script.events(), [failed]);
    assert_eq!(script.wait(2_000), "Flogi");
}

#[test]
fn a_login_that_the_other_end_has_forgotten_begins_anew() {
    let mut script = higher();
    for _ in 0..3 {
        assert_eq!(script.answer(Reply::PortLogin(script.plogi())), "Prli");
        assert_eq!(script.refuse(Rejection::UNABLE, Rejection::NOT_LOGGED_IN), "");
        assert_eq!(script.wait(1_999), "", "it may refuse each time");
        assert_eq!(script.wait(1), "Flogi");
        assert_eq!(script.answer(Reply::FabricLogin(script.flogi())), "Plogi");
    }
}

#[test]
fn a_login_that_is_refused_for_want_of_a_login_is_tried_again_after_a_while() {
    let refused = |code| {
        let (reason, explanation) = (Rejection::UNABLE, Rejection::NOT_LOGGED_IN);
        Event::Failed(Wwn(LOWER), code, Failure::Refused(Rejection { reason, explanation }))
    };
    let mut script = script(INITIATOR, LOWER, TARGET);
    assert_eq!(script.refuse(Rejection::UNABLE, Rejection::NOT_LOGGED_IN), "");
    assert_eq!(script.wait(2_000), "Flogi");
    assert_eq!(script.answer(Reply::FabricLogin(script.flogi())), "Plogi");
    assert_eq!(script.refuse(Rejection::UNABLE, Rejection::NOT_LOGGED_IN), "");
    assert_eq!(script.events(), [refused(Code::Flogi), refused(Code::Plogi)]);
    assert_eq!(script.wait(2_000), "Flogi");
}

#[test]
fn answers_of_another_port_or_a_fabric_are_not_usable() {
    let mut script = script(INITIATOR, LOWER, TARGET);
    let fabric = FabricLogin { features: Features::F_PORT, ..script.flogi() };
    let other = FabricLogin { wwpn: Wwn(77), ..script.flogi() };
    let unusable = Event::Failed(script.wwpn, Code::Flogi, Failure::Unusable);
    for login in [fabric, other] {
        script.answer(Reply::FabricLogin(login));
        assert_eq!(script.events(), [unusable]);
        assert_eq!(script.wait(2_000), "Flogi");
    }
    script.answer(Reply::FabricLogin(script.flogi()));
    script.answer(Reply::PortLogin(PortLogin { receive_len: 128, ..script.plogi() }));
    assert_eq!(script.events(), [Event::Failed(script.wwpn, Code::Plogi, Failure::Unusable)]);
}

#[test]
fn a_process_that_is_refused_is_asked_for_again() {
    let mut script = higher();
    script.answer(Reply::PortLogin(script.plogi()));
    let none = Process { response: Process::NO_SUCH_IMAGE, ..prli(FcpParameters::TARGET) };
    script.answer(Reply::Process(none));
    assert!(matches!(script.events()[..], [Event::Failed(_, Code::Prli, Failure::Refused(_))]));
    assert_eq!(script.wait(9_999), "");
    assert_eq!(script.wait(1), "Prli");
}

#[test]
fn a_port_that_is_both_is_answered_and_asked() {
    let mut script = script(BOTH, HIGHER, BOTH);
    script.answer(Reply::FabricLogin(script.flogi()));
    assert_eq!(script.ask(Request::Plogi(script.plogi())), "yes, Prli");
    let both = prli(FcpParameters::INITIATOR.with(FcpParameters::TARGET));
    assert_eq!(script.ask(Request::Prli(both)), "yes");
    assert_eq!(script.answer(Reply::Process(both)), "Rtv");
    script.refuse(Rejection::UNSUPPORTED, 0);
    let events = script.events();
    let [Event::LoggedIn(login)] = events[..] else { panic!("{events:?}") };
    assert_eq!(login.functions, BOTH);
}

#[test]
fn a_target_accepts_a_process_of_a_target_without_a_pair() {
    let mut script = script(TARGET, HIGHER, BOTH);
    script.answer(Reply::FabricLogin(script.flogi()));
    script.ask(Request::Plogi(script.plogi()));
    assert_eq!(script.ask(Request::Prli(prli(FcpParameters::TARGET))), "yes");
    assert!(script.events().is_empty(), "it is of no use");
    assert_eq!(script.ask(Request::Prli(prli(FcpParameters::INITIATOR))), "yes");
    assert!(matches!(script.events()[..], [Event::LoggedIn(_)]));
}
