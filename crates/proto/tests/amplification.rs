//! The length of answers to hosts that have proved nothing.

use std::time::Duration;

use crate::door::Door;
use crate::pair::{HOST, Pair, TARGET, name, seal, session};
use tyche_proto::crypto::SecretKey;
use tyche_proto::wire::{
    Checksum, Content, Control, Discover, Geometry, HEAD_LEN, Header, Kind, Offer, RECORDS_MAX,
    Rejection, Uuid,
};
use tyche_proto::{ExportConfig, Instant, Outgoing};

const EXPORTS: usize = 12;
/// Offsets of the version and of the header's checksum.
const VERSION: usize = 14;
const HEADER_CRC: usize = 60;

/// A target with more exports than an Offer holds.
fn door(routed: bool) -> Door {
    let mut door = Door::on_link(false, routed);
    for number in 1..EXPORTS {
        door.registry
            .add_export(
                Instant(0),
                ExportConfig {
                    name: name(&format!("disk{number}")),
                    uuid: Uuid::from_u128(100 + number as u128),
                    generation: Uuid::nil(),
                    geometry: Geometry::new(1 << 20, 512),
                    shared: false,
                },
            )
            .unwrap();
    }
    door
}

fn discover(padding: usize) -> Discover {
    Discover { padding: padding as u16, ..Discover::any(1, Uuid::from_u128(9)) }
}

fn key() -> SecretKey {
    SecretKey::from_random([9; 32])
}

/// The only answer to a Discover: its bytes, its records, and whether it has the target's key.
fn ask(door: &mut Door, discover: Discover) -> (usize, usize, bool) {
    // Within the rate of the target.
    door.wait(Duration::from_millis(1));
    let sent = door.give(HOST, Header::new(Kind::Discover), Some(Control::Discover(discover)));
    let [out] = &sent[..] else { panic!("{sent:?}") };
    let Content::Control(Control::Offer(offer)) = &out.content else { panic!("{out:?}") };
    assert_eq!(usize::from(offer.total), EXPORTS);
    assert!(offer.key.is_none_or(|said| said == *key().public().as_bytes()));
    (seal(out, TARGET).len(), offer.exports.len(), offer.key.is_some())
}

#[test]
fn an_answer_through_routers_is_no_longer_than_its_question() {
    let record = Offer::frame_len(1) - Offer::frame_len(0);
    for has_key in [false, true] {
        let mut door = door(true);
        if has_key {
            door.listener.set_keys(Instant(0), key());
        }
        for padding in 0..=Discover::PADDING_MAX {
            let question = discover(padding);
            let asked = question.frame_len();
            let (answered, records, says_key) = ask(&mut door, question);
            assert!(answered <= asked, "{answered} bytes for {asked}");
            // A record goes before the key.
            let room = asked - Offer::frame_len(0);
            assert_eq!(says_key, has_key && room >= Offer::KEY_LEN + record, "{asked} bytes");
            let room = room - if says_key { Offer::KEY_LEN } else { 0 };
            assert_eq!(records, room / record, "as many as fit {asked} bytes");
        }
        for records in 1..RECORDS_MAX {
            let question = discover(0).with_room_for(records);
            assert_eq!(ask(&mut door, question).1, records);
        }
    }
}

#[test]
fn on_ethernet_a_short_question_gets_a_full_answer() {
    let mut door = door(false);
    for padding in [0, 80, Discover::PADDING_MAX] {
        let (_, records, says_key) = ask(&mut door, discover(padding));
        assert_eq!((records, says_key), (RECORDS_MAX, false));
    }
    door.listener.set_keys(Instant(0), key());
    for padding in [0, 80, Discover::PADDING_MAX] {
        let (_, records, says_key) = ask(&mut door, discover(padding));
        assert_eq!((records, says_key), (RECORDS_MAX - 1, true));
    }
}

/// The Rejects that a Discover of a later version gets.
fn refused(door: &mut Door, padding: usize) -> usize {
    door.wait(Duration::from_secs(1));
    let mut out = Outgoing::new();
    out.set_control(TARGET, Control::Discover(discover(padding)));
    let mut frame = seal(&out, HOST);
    frame[VERSION] += 1;
    let crc = Checksum::of(&frame[VERSION..HEADER_CRC]);
    frame[HEADER_CRC..HEAD_LEN].copy_from_slice(&crc.to_le_bytes());
    let sent = door.give_bytes(&frame);
    for out in &sent {
        assert_eq!(out.header.kind, Kind::Reject);
        assert_eq!(seal(out, TARGET).len(), Rejection::FRAME_LEN);
    }
    sent.len()
}

#[test]
fn another_version_is_refused_with_no_more_bytes_either() {
    let least = Rejection::FRAME_LEN - discover(0).frame_len();
    let mut routed = door(true);
    assert_eq!([0, least - 1, least].map(|padding| refused(&mut routed, padding)), [0, 0, 1]);
    assert_eq!(refused(&mut door(false), 0), 1);
}

#[test]
fn a_host_asks_with_room_for_the_record_that_it_wants() {
    assert!(Pair::connected_over(session(), true).session.is_live());
    for (routed, len) in
        [(true, Offer::frame_len(1) + Offer::KEY_LEN), (false, discover(0).frame_len())]
    {
        let mut asking = Pair::asking_over(session(), routed);
        let frame = asking.host_sends().unwrap();
        assert_eq!((frame[VERSION + 1], frame.len()), (Kind::Discover as u8, len));
    }
}
