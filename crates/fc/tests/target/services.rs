//! REC and SRR. RRQ is with ABTS.

use tyche_fc::target_end::Data;
use tyche_fc::wire::els::{Exchange, Request, Srr};
use tyche_fc::wire::{PortId, Xid};

use crate::rig::{HOST, OTHER, OURS, about, rig};

#[test]
fn rec_tells_the_state_of_an_exchange() {
    let mut rig = rig();
    assert_eq!(rig.rec(1), "777 no 3/17");
    let exchange = rig.begin(1, Data::Out(4096));
    assert_eq!(rig.rec(1), "777 0 c0000000 0", "our turn");
    rig.accept(exchange, Data::Out(4096));
    rig.sent();
    assert_eq!(rig.rec(1), "777 0 80000000 0", "theirs");
    rig.data(1, exchange, 0, (0, 2048), false);
    assert_eq!(rig.rec(1), "777 0 80000000 2048");
    rig.data(1, exchange, 1, (2048, 2048), true);
    assert_eq!(rig.rec(1), "777 0 c0000000 4096");
    rig.complete(exchange, 0);
    rig.sent();
    assert_eq!(rig.rec(1), "777 0 a0000000 4096", "over");
    let read = rig.at_work(2, Data::In(512));
    rig.complete(read, 512);
    rig.sent();
    assert_eq!(rig.rec(2), "777 1 a0000000 512");
    rig.abort(2, None);
    rig.sent();
    assert_eq!(rig.rec(2), "777 no 3/17");
}

#[test]
fn rec_with_an_rx_id_is_about_that_exchange() {
    let mut rig = rig();
    rig.begin(1, Data::None);
    let rec = |rx_id| Request::Rec(Exchange { rx_id, ..about(1) });
    assert_eq!(rig.ask(rec(rig.rx_id(0))), "777 0 c0000000 0");
    assert_eq!(rig.ask(rec(rig.rx_id(1))), "777 no 3/17");
}

#[test]
fn an_exchange_is_remembered_until_its_slot_is_needed() {
    let mut rig = rig();
    for ox_id in 0..17 {
        let exchange = rig.begin(ox_id, Data::None);
        rig.complete(exchange, 0);
        rig.sent();
    }
    assert_eq!(rig.rec(0), "777 no 3/17");
    assert_eq!(rig.rec(1), "777 1 a0000000 0");
    assert_eq!(rig.rec(16), "777 0 a0000000 0");
}

#[test]
fn a_number_that_is_used_again_means_the_newer_exchange() {
    let mut rig = rig();
    for _ in 0..2 {
        let exchange = rig.begin(1, Data::None);
        rig.complete(exchange, 0);
        rig.sent();
    }
    assert_eq!(rig.rec(1), "777 1 a0000000 0");
    // The slot of the older one is needed.
    for ox_id in 2..17 {
        let exchange = rig.begin(ox_id, Data::None);
        rig.complete(exchange, 0);
        rig.sent();
    }
    assert_eq!(rig.rec(1), "777 1 a0000000 0");
}

#[test]
fn srr_is_refused() {
    let mut rig = rig();
    rig.asked(1, 512);
    let srr = Srr { ox_id: Xid(1), rx_id: rig.rx_id(0), offset: 0, r_ctl: 5 };
    assert_eq!(rig.ask(Request::Srr(srr)), "777 no b/0");
    assert_eq!(rig.lane.ignored().unexpected, 1);
}

#[test]
fn services_of_strangers_are_not_answered_and_those_for_initiators_are_left() {
    let mut rig = rig();
    rig.begin(1, Data::None);
    rig.abort(1, None);
    rig.complete(0, 0);
    rig.sent();
    let mut payload = [0; 116];
    let rrq = Request::Rrq(Exchange { originator: OTHER.id, ..about(1) });
    let len = rrq.emit(&mut payload);
    let header = |s_id: PortId| {
        let kind = tyche_fc::wire::Kind::ElsRequest;
        tyche_fc::wire::Header::request(kind, s_id, OURS, Xid(5))
    };
    assert_eq!(rig.frame(OTHER, header(OTHER.id), &payload[..len]), "");
    assert_eq!((rig.sent().as_str(), rig.lane.ignored().stranger), ("", 1));
    // About an exchange that we have originated.
    let rec = Request::Rec(Exchange { originator: OURS, ..about(1) });
    let len = rec.emit(&mut payload);
    let ethernet = tyche_fc::wire::Ethernet {
        destination: crate::rig::mac(OURS),
        source: crate::rig::mac(HOST.id),
    };
    let payload = &payload[..len];
    let frame = tyche_fc::wire::Frame { ethernet, header: header(HOST.id), payload };
    assert!(!rig.lane.handle_frame(rig.now, &frame));
}
