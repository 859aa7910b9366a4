//! Values survive being emitted and parsed, whatever they are; and arbitrary payloads are rejected
//! or have a meaning that survives.

use crate::frames::{Any, Payload, check_payload, parse};
use proptest::collection::vec;
use proptest::prelude::*;
use tyche_fc_wire::bls::{BaAcc, BaRjt};
use tyche_fc_wire::els::{self, Code};
use tyche_fc_wire::fip::{self, Message};
use tyche_fc_wire::*;

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

fn id() -> impl Strategy<Value = PortId> {
    any::<u32>().prop_map(PortId::new)
}

fn wwn() -> impl Strategy<Value = Wwn> {
    any::<u64>().prop_map(Wwn)
}

fn ethernet() -> impl Strategy<Value = Ethernet> {
    (mac(), mac()).prop_map(|(destination, source)| Ethernet { destination, source })
}

fn xids() -> impl Strategy<Value = (Xid, Xid)> {
    any::<(u16, u16)>().prop_map(|(ox_id, rx_id)| (Xid(ox_id), Xid(rx_id)))
}

fn header(kinds: &'static [Kind]) -> impl Strategy<Value = Header> {
    let kind = prop::sample::select(kinds);
    let numbers = any::<(u32, u8, u16, u32)>();
    (kind, id(), id(), xids(), numbers).prop_map(|(kind, d_id, s_id, (ox_id, rx_id), numbers)| {
        let (f_ctl, seq_id, seq_cnt, parameter) = numbers;
        let f_ctl = FCtl::from_wire(f_ctl);
        Header { kind, d_id, s_id, f_ctl, seq_id, seq_cnt, ox_id, rx_id, parameter }
    })
}

fn vn_port() -> impl Strategy<Value = fip::VnPort> {
    (mac(), id(), wwn()).prop_map(|(mac, id, name)| fip::VnPort { mac, id, name })
}

fn port() -> impl Strategy<Value = fip::Port> {
    (mac(), wwn(), vn_port()).prop_map(|(mac, name, port)| fip::Port { mac, name, port })
}

fn claim() -> impl Strategy<Value = fip::Claim> {
    (port(), 0..16u8, any::<u16>()).prop_map(|(port, functions, size)| fip::Claim {
        port,
        fc4: Fc4::fcp(functions),
        size,
    })
}

fn map() -> impl Strategy<Value = FcMap> {
    any::<[u8; 3]>().prop_map(FcMap)
}

/// Messages for which a forwarder is needed.
fn message_of_fabrics() -> impl Strategy<Value = Message<'static>> {
    let solicitation = (mac(), wwn(), any::<u16>(), prop::option::of(map())).prop_map(
        |(mac, name, size, fc_map)| {
            Message::Solicitation(fip::Solicitation { mac, name, size, fc_map })
        },
    );
    let fabric = (any::<u16>(), map(), wwn()).prop_map(|(vf_id, map, name)| fip::Fabric {
        vf_id,
        map,
        name,
    });
    let period = any::<(bool, u32)>().prop_map(|(wanted, ms)| fip::KeepAlivePeriod { wanted, ms });
    let advertisement = (any::<u8>(), mac(), wwn(), fabric, period).prop_map(
        |(priority, mac, name, fabric, keep_alive)| {
            Message::Advertisement(fip::Advertisement { priority, mac, name, fabric, keep_alive })
        },
    );
    let keep_alive = (mac(), prop::option::of(vn_port()))
        .prop_map(|(mac, port)| Message::KeepAlive(fip::KeepAlive { mac, port }));
    let clear =
        (mac(), wwn(), vec(vn_port(), 0..=fip::VN_PORTS_MAX)).prop_map(|(mac, name, ports)| {
            let ports = ports.into_iter().collect();
            Message::ClearVirtualLink(fip::ClearVirtualLink { mac, name, ports })
        });
    prop_oneof![solicitation, advertisement, keep_alive, clear]
}

fn message() -> impl Strategy<Value = Message<'static>> {
    let service = prop::sample::select(
        &[fip::Service::Flogi, fip::Service::Fdisc, fip::Service::Logo, fip::Service::Elp][..],
    );
    let payload = vec(any::<[u8; 4]>(), 1..=fip::PAYLOAD_LEN_MAX / 4)
        .prop_map(|words| &*words.concat().leak());
    let link_service = (service, header(&[Kind::ElsRequest, Kind::ElsReply]), payload, mac());
    let link_service = link_service.prop_map(|(service, header, payload, mac)| {
        let service = fip::LinkService { service, header, payload, mac: Some(mac) };
        match header.kind {
            Kind::ElsRequest => Message::LinkRequest(service),
            _ => Message::LinkReply(service),
        }
    });
    let vlan_request = (mac(), prop::option::of(wwn()))
        .prop_map(|(mac, name)| Message::VlanRequest(fip::VlanRequest { mac, name }));
    let vlans = (mac(), vec(0..4096u16, 0..=fip::VLANS_MAX)).prop_map(|(mac, vids)| {
        let vids = vids.into_iter().collect();
        Message::VlanNotification(fip::VlanNotification { mac, vids })
    });
    prop_oneof![
        4 => message_of_fabrics(),
        2 => link_service,
        1 => vlan_request,
        1 => vlans,
        1 => port().prop_map(Message::ProbeRequest),
        1 => port().prop_map(Message::Beacon),
        2 => claim().prop_map(Message::ClaimResponse),
    ]
}

fn class3() -> impl Strategy<Value = Option<els::Class3>> {
    prop::option::of((0..4096u16, any::<(u16, u8)>()).prop_map(
        |(receive_len, (sequences, open))| els::Class3 {
            receive_len,
            sequences,
            open_sequences: open,
        },
    ))
}

fn port_login() -> impl Strategy<Value = els::PortLogin> {
    let numbers = (0..4096u16, any::<(u16, u16, u16, u32)>());
    (wwn(), wwn(), numbers, class3()).prop_map(|(wwpn, wwnn, (receive_len, numbers), class3)| {
        let (features, sequences, relative_offsets, e_d_tov) = numbers;
        let features = els::Features::from_wire(features);
        els::PortLogin {
            wwpn,
            wwnn,
            features,
            receive_len,
            sequences,
            relative_offsets,
            e_d_tov,
            class3,
        }
    })
}

fn fabric_login() -> impl Strategy<Value = els::FabricLogin> {
    let numbers = (0..4096u16, any::<(u16, u32, u32)>());
    (wwn(), wwn(), numbers, class3()).prop_map(|(wwpn, wwnn, (receive_len, numbers), class3)| {
        let (features, r_a_tov_ms, e_d_tov) = numbers;
        let features = els::Features::from_wire(features);
        els::FabricLogin { wwpn, wwnn, features, receive_len, r_a_tov_ms, e_d_tov, class3 }
    })
}

fn process() -> impl Strategy<Value = els::Process> {
    (any::<bool>(), 0..16u8, any::<u32>()).prop_map(|(image_pair, response, parameters)| {
        let parameters = els::FcpParameters::from_wire(parameters);
        els::Process { image_pair, response, parameters }
    })
}

fn els_request() -> impl Strategy<Value = Payload<'static>> {
    use els::Request as R;
    let exchange = || {
        (id(), xids()).prop_map(|(originator, (ox_id, rx_id))| els::Exchange {
            originator,
            ox_id,
            rx_id,
        })
    };
    let srr = (xids(), any::<(u32, u8)>()).prop_map(|((ox_id, rx_id), (offset, r_ctl))| {
        R::Srr(els::Srr { ox_id, rx_id, offset, r_ctl })
    });
    let adisc =
        (wwn(), wwn(), id()).prop_map(|(wwpn, wwnn, id)| R::Adisc(els::Adisc { wwpn, wwnn, id }));
    let page = (any::<u8>(), id()).prop_map(|(flags, id)| els::ChangedPort { flags, id });
    let rscn = vec(page, 1..100).prop_map(|ports| R::Rscn(els::Rscn { ports: ports.leak() }));
    let request = prop_oneof![
        port_login().prop_map(R::Plogi),
        port_login().prop_map(R::Pdisc),
        fabric_login().prop_map(R::Flogi),
        fabric_login().prop_map(R::Fdisc),
        (id(), wwn()).prop_map(|(id, wwpn)| R::Logo(els::Logo { id, wwpn })),
        Just(R::Rtv),
        id().prop_map(|id| R::Rls(els::Rls { id })),
        exchange().prop_map(R::Rrq),
        exchange().prop_map(R::Rec),
        srr,
        process().prop_map(R::Prli),
        process().prop_map(R::Prlo),
        adisc,
        rscn,
        any::<u8>().prop_map(|function| R::Scr(els::Scr { function })),
    ];
    request.prop_map(Payload::Els)
}

fn els_reply() -> impl Strategy<Value = Payload<'static>> {
    use els::Reply as R;
    let refused = any::<(u8, u8)>().prop_map(|(reason, explanation)| {
        (Code::Scr, R::Refused(els::Rejection { reason, explanation }))
    });
    let timeouts = any::<(u32, u32, bool)>().prop_map(|(r_a_tov_ms, e_d_tov, e_d_tov_ns)| {
        (Code::Rtv, R::Timeouts(els::Timeouts { r_a_tov_ms, e_d_tov, e_d_tov_ns }))
    });
    let status = (xids(), id(), id(), any::<(u32, u32)>());
    let status = status.prop_map(|((ox_id, rx_id), originator, responder, numbers)| {
        let (transferred, estat) = numbers;
        let status =
            els::ExchangeStatus { ox_id, rx_id, originator, responder, transferred, estat };
        (Code::Rec, R::Exchange(status))
    });
    let errors =
        any::<[u32; 6]>().prop_map(|errors| (Code::Rls, R::LinkErrors(els::LinkErrors(errors))));
    let reply = prop_oneof![
        refused,
        fabric_login().prop_map(|login| (Code::Fdisc, R::FabricLogin(login))),
        port_login().prop_map(|login| (Code::Pdisc, R::PortLogin(login))),
        process().prop_map(|process| (Code::Prlo, R::Process(process))),
        timeouts,
        status,
        errors,
        Just((Code::Rrq, R::Accepted)),
    ];
    reply.prop_map(|(code, reply)| Payload::ElsReply(code, reply))
}

fn command() -> impl Strategy<Value = Payload<'static>> {
    let bytes = any::<([u8; 8], u8, u8, [u8; 16])>();
    let bits = (0..16u8, 0..8u8, any::<(bool, bool)>(), any::<u32>());
    let more = vec(any::<[u8; 4]>(), 0..=63).prop_map(|words| &*words.concat().leak());
    (bytes, bits, more).prop_map(|((lun, crn, management, cdb), bits, more_cdb)| {
        let (priority, attribute, (reads, writes), data_len) = bits;
        let management = fcp::TaskManagement::from_wire(management);
        Payload::Command(fcp::Command {
            lun,
            crn,
            priority,
            attribute,
            management,
            reads,
            writes,
            cdb,
            more_cdb,
            data_len,
        })
    })
}

fn response() -> impl Strategy<Value = Payload<'static>> {
    let residual = prop_oneof![
        Just(fcp::Residual::None),
        any::<u32>().prop_map(fcp::Residual::Over),
        any::<u32>().prop_map(fcp::Residual::Under),
    ];
    let sense = vec(any::<u8>(), 0..252).prop_map(|sense| &*sense.leak());
    (any::<(u8, u16, bool, Option<u8>)>(), residual, sense).prop_map(
        |((status, qualifier, confirm, code), residual, sense)| {
            Payload::Response(fcp::Response { status, qualifier, confirm, residual, code, sense })
        },
    )
}

fn ct_request() -> impl Strategy<Value = Payload<'static>> {
    use ct::Request as R;
    let text = || vec(any::<u8>(), 0..=255).prop_map(|text| &*text.leak());
    let request = prop_oneof![
        id().prop_map(R::GpnId),
        any::<u8>().prop_map(R::GpnFt),
        (id(), wwn()).prop_map(|(id, name)| R::RnnId(id, name)),
        (id(), any::<u8>()).prop_map(|(id, kind)| R::RftId(id, Fc4Types::only(kind))),
        (id(), text()).prop_map(|(id, text)| R::RspnId(id, text)),
        (id(), 0..16u8, any::<u8>()).prop_map(|(id, functions, kind)| R::RffId {
            id,
            functions,
            kind
        }),
        (wwn(), text()).prop_map(|(name, text)| R::RsnnNn(name, text)),
    ];
    request.prop_map(Payload::Ct)
}

fn ct_reply() -> impl Strategy<Value = Payload<'static>> {
    let ports = vec((id(), wwn()), 1..100).prop_map(|ports| {
        let last = ports.len() - 1;
        let ports = ports.iter().enumerate();
        let port = ports.map(|(at, &(id, name))| ct::NamedPort::new(id, name, at == last));
        Payload::CtReply(ct::Command::GpnFt, ct::Reply::Ports(port.collect::<Vec<_>>().leak()))
    });
    let name = wwn().prop_map(|name| Payload::CtReply(ct::Command::GpnId, ct::Reply::Name(name)));
    prop_oneof![ports, name]
}

fn bls() -> impl Strategy<Value = (Kind, Payload<'static>)> {
    let acc = (any::<(Option<u8>, u16, u16)>(), xids()).prop_map(|(numbers, (ox_id, rx_id))| {
        let (seq_id, low_seq_cnt, high_seq_cnt) = numbers;
        let acc = BaAcc { seq_id, ox_id, rx_id, low_seq_cnt, high_seq_cnt };
        (Kind::BaAcc, Payload::BaAcc(acc))
    });
    let rjt = any::<(u8, u8)>().prop_map(|(reason, explanation)| {
        (Kind::BaRjt, Payload::BaRjt(BaRjt { reason, explanation }))
    });
    prop_oneof![acc, rjt]
}

/// A payload, and the kind of the frame that it is in.
fn payload() -> impl Strategy<Value = (Kind, Payload<'static>)> {
    prop_oneof![
        4 => els_request().prop_map(|payload| (Kind::ElsRequest, payload)),
        3 => els_reply().prop_map(|payload| (Kind::ElsReply, payload)),
        1 => command().prop_map(|payload| (Kind::FcpCmnd, payload)),
        1 => response().prop_map(|payload| (Kind::FcpRsp, payload)),
        2 => ct_request().prop_map(|payload| (Kind::CtRequest, payload)),
        1 => ct_reply().prop_map(|payload| (Kind::CtReply, payload)),
        1 => bls(),
    ]
}

proptest! {
    #[test]
    fn frames_of_fip_survive(
        ethernet in ethernet(),
        flags in any::<u16>().prop_map(fip::Flags::from_wire),
        message in message(),
        len in 0..3000usize,
    ) {
        let frame = fip::Frame { ethernet, flags, message, len };
        let bytes = Any::Fip(frame.clone()).emit();
        prop_assert!(bytes.len() >= len.clamp(60, FRAME_LEN_MAX));
        prop_assert_eq!(parse(&bytes), Ok(Any::Fip(fip::Frame { len: bytes.len(), ..frame })));
    }

    #[test]
    fn encapsulated_frames_survive(
        ethernet in ethernet(),
        header in header(Kind::ALL),
        payload in vec(any::<u8>(), 0..=PAYLOAD_LEN_MAX),
    ) {
        let frame = Frame { ethernet, header, payload: &payload };
        let bytes = Any::Fc(frame).emit();
        prop_assert_eq!(parse(&bytes), Ok(Any::Fc(frame)));
    }

    #[test]
    fn payloads_survive((kind, payload) in payload()) {
        let header = Header::request(kind, PortId::NONE, PortId::NONE, Xid(1));
        let bytes = payload.emit();
        let meanings = Payload::parse(&header, &bytes);
        prop_assert!(meanings.contains(&Ok(payload)), "{:?}", meanings);
        // Nor does any of them panic if it is cut.
        for len in 0..bytes.len() {
            check_payload(&header, &bytes[..len]);
        }
    }

    #[test]
    fn arbitrary_payloads_are_rejected_or_survive(
        header in header(Kind::ALL),
        mut payload in vec(any::<u8>(), 0..200),
        code in prop::sample::select(Code::ALL),
        zeroed in any::<u64>(),
    ) {
        // Steered, for hardly any arbitrary bytes are a PDU.
        for (at, byte) in payload.iter_mut().enumerate() {
            if at == 0 && header.kind != Kind::FcpRsp { *byte = code.to_wire() }
            if at > 0 && zeroed >> (at % 64) & 1 != 0 { *byte = 0 }
        }
        check_payload(&header, &payload);
    }
}
