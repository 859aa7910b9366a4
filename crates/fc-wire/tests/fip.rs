//! Frames of FIP: lengths, order of descriptors, and the descriptors that are missing, repeated,
//! unknown or another operation's.

use tyche_fc_wire::fip::*;
use tyche_fc_wire::{
    Ethernet, FRAME_LEN_MAX, Fc4, FcMap, Header, Kind, Mac, PortId, Reject, Wwn, Xid,
};

const ETHERNET: Ethernet =
    Ethernet { destination: ALL_VN2VN_ENODE_MACS, source: Mac([2, 0, 0, 0, 0, 1]) };
const NAME: Wwn = Wwn(0x1000_0200_0000_0001);

fn port() -> Port {
    let id = PortId::new(0xab01);
    let mac = Mac::fpma(FcMap::VN2VN, id);
    let port = VnPort { mac, id, name: Wwn(0x2000_0200_0000_0001) };
    Port { mac: ETHERNET.source, name: NAME, port }
}

fn claim() -> Claim {
    Claim { port: port(), fc4: Fc4::fcp(Fc4::TARGET), size: 2158 }
}

fn advertisement() -> Advertisement {
    let fabric = Fabric { vf_id: 0, map: FcMap::FABRIC, name: Wwn(0x1000_0200_0000_00ff) };
    let keep_alive = KeepAlivePeriod { wanted: false, ms: 8000 };
    Advertisement { priority: 128, mac: ETHERNET.source, name: NAME, fabric, keep_alive }
}

fn link_service(kind: Kind, payload: &[u8], mac: Option<Mac>) -> LinkService<'_> {
    let header = Header::request(kind, PortId::NONE, PortId::F_PORT, Xid(7));
    LinkService { service: Service::Flogi, header, payload, mac }
}

fn emit(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = [0xa5; FRAME_LEN_MAX];
    let len = frame.emit(&mut buffer);
    buffer[..len].to_vec()
}

fn bytes(message: Message<'_>) -> Vec<u8> {
    emit(&Frame::new(ETHERNET, Flags::EMPTY, message))
}

/// A beacon with another list of descriptors.
fn with_list(list: &[u8]) -> Vec<u8> {
    let mut frame = bytes(Message::Beacon(port()))[..HEADER_LEN].to_vec();
    frame[20..22].copy_from_slice(&((list.len() / 4) as u16).to_be_bytes());
    frame.extend(list);
    frame
}

fn beacon_list() -> Vec<u8> {
    bytes(Message::Beacon(port()))[HEADER_LEN..].to_vec()
}

fn reject(frame: &[u8]) -> Option<Reject> {
    Frame::parse(frame).err()
}

/// Words of the descriptors and bytes of the frame, as other implementations have them.
#[test]
fn frames_have_their_lengths() {
    let payload = [4; 116];
    let mac = Some(ETHERNET.source);
    let keep_alive = KeepAlive { mac: ETHERNET.source, port: None };
    let frames = [
        (Message::ProbeRequest(port()), 10, 64),
        (Message::ProbeReply(port()), 10, 64),
        (Message::Beacon(port()), 10, 64),
        (Message::ClaimNotification(claim()), 52, 232),
        (Message::LinkRequest(link_service(Kind::ElsRequest, &payload, mac)), 38, 176),
        (Message::KeepAlive(keep_alive), 2, 60),
        (Message::Advertisement(advertisement()), 12, 72),
    ];
    for (message, words, len) in frames {
        let frame = bytes(message.clone());
        assert_eq!(frame[20..22], u16::to_be_bytes(words), "{message:?}");
        assert_eq!(frame.len(), len, "{message:?}");
        let parsed = Frame::parse(&frame).unwrap();
        assert_eq!(parsed, Frame { ethernet: ETHERNET, flags: Flags::EMPTY, message, len });
    }
}

#[test]
fn padding_is_zero_and_as_long_as_asked_for() {
    let mut frame = Frame::new(ETHERNET, Flags::S, Message::ClaimResponse(claim()));
    frame.len = padded_len(2158);
    let padded = emit(&frame);
    assert_eq!(padded.len(), 2172);
    assert!(padded[232..].iter().all(|&byte| byte == 0));
    assert_eq!(Frame::parse(&padded), Ok(frame.clone()));
    // Neither shorter than its content, nor longer than the longest frame.
    frame.len = 100;
    assert_eq!(emit(&frame).len(), 232);
    frame.len = 9000;
    assert_eq!(emit(&frame).len(), FRAME_LEN_MAX);
}

#[test]
fn payloads_are_whole_words_within_a_size() {
    let sizes = [(0, 0), (49, 0), (50, 4), (1500, 1452), (2157, 2108), (FCOE_LEN_MAX, 2112)];
    for (size, len) in sizes {
        assert_eq!(payload_within(size), len, "{size}");
    }
}

#[test]
fn descriptors_come_in_any_order() {
    let list = beacon_list();
    let (mac, rest) = list.split_at(8);
    let (name, vn_id) = rest.split_at(12);
    let plain = with_list(&list);
    let expected = Frame::parse(&plain).unwrap().message;
    for turned in [[name, mac, vn_id], [vn_id, name, mac], [mac, vn_id, name]] {
        let frame = with_list(&turned.concat());
        assert_eq!(Frame::parse(&frame).unwrap().message, expected);
    }
}

#[test]
fn each_required_descriptor_is_missed() {
    let list = beacon_list();
    for gone in [0..8, 8..20, 20..40] {
        let mut shorter = list.clone();
        shorter.drain(gone.clone());
        assert_eq!(reject(&with_list(&shorter)), Some(Reject::DescriptorMissing), "{gone:?}");
    }
}

#[test]
fn repeated_descriptors_are_counted() {
    let list = beacon_list();
    for again in [0..8, 8..20, 20..40] {
        let longer = [&list[..], &list[again.clone()]].concat();
        assert_eq!(reject(&with_list(&longer)), Some(Reject::DescriptorCount), "{again:?}");
    }
    let vendor = [13, 3, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(reject(&with_list(&[&vendor, &list[..]].concat())), None);
    let longer = [&vendor, &list[..], &vendor].concat();
    assert_eq!(reject(&with_list(&longer)), Some(Reject::DescriptorCount));
}

#[test]
fn unknown_descriptors_are_ignored_unless_they_are_critical() {
    let list = beacon_list();
    let plain = with_list(&list);
    let expected = Frame::parse(&plain).unwrap().message;
    for kind in 0..=u8::MAX {
        let frame = with_list(&[&[kind, 2, 1, 2, 3, 4, 5, 6], &list[..]].concat());
        match kind {
            128.. => assert_eq!(Frame::parse(&frame).unwrap().message, expected),
            2 => assert_eq!(reject(&frame), Some(Reject::DescriptorCount)),
            // Known, but of another length; or known, but not a beacon's.
            1 | 4..=11 | 13..=15 => {
                assert_eq!(reject(&frame), Some(Reject::DescriptorLength), "{kind}");
            }
            _ => assert_eq!(reject(&frame), Some(Reject::Descriptor), "{kind}"),
        }
    }
    // An FKA has no place in a beacon, nor has a priority of the right length.
    for foreign in [&[12, 2, 0, 0, 0, 0, 0x1f, 0x40][..], &[1, 1, 0, 128]] {
        let frame = with_list(&[foreign, &list].concat());
        assert_eq!(reject(&frame), Some(Reject::Descriptor));
    }
}

#[test]
fn descriptors_end_within_the_list() {
    let list = beacon_list();
    for words in [0, 11, 255] {
        let mut wrong = list.clone();
        wrong[1] = words;
        assert_eq!(reject(&with_list(&wrong)), Some(Reject::DescriptorLength), "{words}");
    }
    // An unknown one, too.
    let endless = [&list[..], &[200, 2, 0, 0]].concat();
    assert_eq!(reject(&with_list(&endless)), Some(Reject::DescriptorLength));
    // The list is longer than the frame.
    let mut frame = with_list(&list);
    frame[21] += 1;
    assert_eq!(reject(&frame), Some(Reject::Length));
}

#[test]
fn refused_logins_need_no_address() {
    let (rjt, acc) = ([1, 0, 0, 0, 0, 9, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]);
    let reply = |payload| bytes(Message::LinkReply(link_service(Kind::ElsReply, payload, None)));
    assert_eq!(reject(&reply(&rjt)), None);
    assert_eq!(reject(&reply(&acc)), Some(Reject::DescriptorMissing));
    // A request is none, whatever its code.
    let request = Message::LinkRequest(link_service(Kind::ElsRequest, &rjt, None));
    assert_eq!(reject(&bytes(request)), Some(Reject::DescriptorMissing));
    // Requests and answers are not confused.
    let wrong = Message::LinkReply(link_service(Kind::ElsRequest, &rjt, None));
    assert_eq!(reject(&bytes(wrong)), Some(Reject::Kind));
}

#[test]
fn ports_and_vlans_may_be_repeated_up_to_a_bound() {
    let clear = |count| {
        let ports = std::iter::repeat_n(port().port, count).collect();
        Message::ClearVirtualLink(ClearVirtualLink { mac: ETHERNET.source, name: NAME, ports })
    };
    for count in [0, 1, VN_PORTS_MAX] {
        assert_eq!(Frame::parse(&bytes(clear(count))).unwrap().message, clear(count));
    }
    let full = bytes(clear(VN_PORTS_MAX));
    let list = &full[HEADER_LEN..];
    let mut more = with_list(&[list, &list[20..40]].concat());
    more[16..20].copy_from_slice(&[0, 3, 0, 2]);
    assert_eq!(reject(&more), Some(Reject::DescriptorCount));
    let vids = (0..VLANS_MAX).map(|vid| vid as u16).collect();
    let note = Message::VlanNotification(VlanNotification { mac: ETHERNET.source, vids });
    let frame = bytes(note.clone());
    assert_eq!(Frame::parse(&frame).unwrap().message, note);
    let mut more = with_list(&[&frame[HEADER_LEN..], &[14, 1, 0, 1]].concat());
    more[16..20].copy_from_slice(&[0, 4, 0, 2]);
    assert_eq!(reject(&more), Some(Reject::DescriptorCount));
}

#[test]
fn functions_of_fcp_are_where_the_name_server_has_them() {
    let fc4 = Fc4::fcp(Fc4::TARGET | Fc4::INITIATOR);
    assert_eq!(fc4.fcp_functions(), Some(3));
    let frame = bytes(Message::ClaimNotification(Claim { fc4, ..claim() }));
    let fc4f = &frame[HEADER_LEN + 40..][..164];
    assert_eq!(fc4f[..8], [15, 41, 0, 0, 0, 0, 1, 0]);
    assert_eq!(fc4f[4 + 32..][..8], [0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(fc4f.iter().filter(|&&byte| byte != 0).count(), 4);
}

#[test]
fn reserved_bits_are_ignored() {
    let mut frame = bytes(Message::Beacon(port()));
    let expected = Frame::parse(&frame).unwrap();
    let mut other = frame.clone();
    // Version's lower half, reserved bytes, a flag without a name, the name's reserved bytes.
    for (offset, bits) in [(14, 0x0f), (15, 0xff), (18, 0xff), (22, 0x01), (34, 0xff)] {
        other[offset] ^= bits;
    }
    assert_eq!(Frame::parse(&other).unwrap(), expected);
    frame[14] = 0x20;
    assert_eq!(reject(&frame), Some(Reject::Version));
}
