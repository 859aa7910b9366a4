//! Requests to the name server and its answers: lists with and without an end, texts, refusals.

use tyche_fc_wire::ct::*;
use tyche_fc_wire::{PortId, Reject, Wwn};

fn ports(last: bool) -> [NamedPort; 2] {
    [
        NamedPort::new(PortId::new(0x01_0203), Wwn(0x2000_0000_0000_0001), false),
        NamedPort::new(PortId::new(0x01_0204), Wwn(0x2000_0000_0000_0002), last),
    ]
}

fn emit(reply: Reply<'_>) -> Vec<u8> {
    let mut buffer = [0xa5; 100];
    let len = reply.emit(&mut buffer);
    buffer[..len].to_vec()
}

#[test]
fn lists_of_ports_end_with_the_last_one() {
    let bytes = emit(Reply::Ports(&ports(true)));
    assert_eq!(bytes.len(), 16 + 2 * 16);
    assert_eq!(Reply::parse(Command::GpnFt, &bytes), Ok(Reply::Ports(&ports(true))));
    // Bytes behind it are ignored, whatever they are.
    let longer = [&bytes[..], &[0x80; 17]].concat();
    assert_eq!(Reply::parse(Command::GpnFt, &longer), Ok(Reply::Ports(&ports(true))));
    let endless = emit(Reply::Ports(&ports(false)));
    assert_eq!(Reply::parse(Command::GpnFt, &endless), Err(Reject::Length));
    assert_eq!(Reply::parse(Command::GpnFt, &bytes[..47]), Err(Reject::Length));
    assert_eq!(Reply::parse(Command::GpnFt, &bytes[..16]), Err(Reject::Length));
}

#[test]
fn a_list_that_is_too_long_ends_with_its_last_whole_port() {
    for (len, whole) in [(16 + 2 * 16, 2), (16 + 16 + 15, 1), (16 + 16, 1)] {
        let mut bytes = emit(Reply::Ports(&ports(false)));
        bytes.truncate(len);
        Reply::cut(&mut bytes);
        let Ok(Reply::Ports(ports)) = Reply::parse(Command::GpnFt, &bytes) else { panic!("{len}") };
        assert_eq!(ports.len(), whole);
    }
    let mut bytes = emit(Reply::Registered);
    Reply::cut(&mut bytes);
    assert_eq!(Reply::parse(Command::GpnFt, &bytes), Err(Reject::Length));
}

#[test]
fn answers_are_for_their_requests() {
    let refused = emit(Reply::Refused { reason: 9, explanation: 7 });
    assert_eq!(refused[8..16], [0x80, 1, 0, 0, 0, 9, 7, 0]);
    let accepted = emit(Reply::Registered);
    for &command in Command::ALL {
        let expected = Reply::Refused { reason: 9, explanation: 7 };
        assert_eq!(Reply::parse(command, &refused), Ok(expected));
        let has_object = matches!(command, Command::GpnId | Command::GffId | Command::GpnFt);
        let expected = if has_object { Err(Reject::Length) } else { Ok(Reply::Registered) };
        assert_eq!(Reply::parse(command, &accepted), expected);
    }
}

#[test]
fn requests_are_for_the_name_server() {
    let mut buffer = [0; 300];
    let request = Request::RspnId(PortId::new(1), &[b'x'; 255]);
    let len = request.emit(&mut buffer);
    assert_eq!(len, 16 + 4 + 1 + 255);
    let bytes = &mut buffer[..len];
    assert_eq!(Request::parse(bytes), Ok(request));
    assert_eq!(Request::parse(&bytes[..len - 1]), Err(Reject::Length));
    for (offset, value, reject) in [
        (0, 2, Reject::Version),
        (4, 0xfa, Reject::Code),
        (5, 1, Reject::Code),
        (8, 0x80, Reject::Code),
    ] {
        let right = std::mem::replace(&mut bytes[offset], value);
        assert_eq!(Request::parse(bytes), Err(reject));
        bytes[offset] = right;
    }
}
