//! A node, and a forwarder that follows a script.

use std::time::Duration;

use tyche_fc::enode::{Enode, EnodeConfig};
use tyche_fc::exchange::Xids;
use tyche_fc::neighbour::{Event, Functions, Interface};
use tyche_fc::port::Carrier;
use tyche_fc::wire::els::{Features, Reply};
use tyche_fc::wire::fip::{
    self, ALL_ENODE_MACS, Advertisement, Fabric, Flags, KeepAlivePeriod, LinkService, Message,
    Service,
};
use tyche_fc::wire::{
    Ethernet, FRAME_LEN_MAX, FcMap, Frame, HEAD_LEN, Header, Kind, Mac, PortId, Wwn, Xid, ct, els,
};
use tyche_time::Instant;

use crate::offers::flogi_reply;

pub(crate) const NODE: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const FCF: Mac = Mac([2, 0, 0, 0, 0x0f, 0]);
pub(crate) const SWITCH: Wwn = Wwn(0x1000_0000_0000_0f00);
pub(crate) const WWPN: Wwn = Wwn(0x2000_0000_0000_0001);
pub(crate) const ID: PortId = PortId::new(0x01_0101);
/// Bytes of an advertisement that proves the longest frames.
const LONG: usize = 2172;
/// Flags of an advertisement that a node can use.
pub(crate) const USABLE: Flags = Flags::FP.with(Flags::F).with(Flags::A);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A frame that the node has sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) carrier: Carrier,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    pub(crate) fn fip(&self) -> fip::Frame<'_> {
        assert_eq!(self.carrier, Carrier::Fip);
        fip::Frame::parse(&self.bytes).unwrap()
    }

    pub(crate) fn fc(&self) -> Frame<'_> {
        assert_eq!(self.carrier, Carrier::Fcoe);
        let (head, rest) = self.bytes.split_first_chunk::<HEAD_LEN>().unwrap();
        Frame::parse(head, rest).unwrap()
    }

    /// Its operation, code or command.
    pub(crate) fn word(&self) -> String {
        if self.carrier == Carrier::Fip {
            return format!("{:?}", self.fip().message.operation());
        }
        let frame = self.fc();
        match frame.header.kind {
            Kind::CtRequest => {
                format!("{:?}", ct::Request::parse(frame.payload).unwrap().command())
            }
            Kind::ElsRequest => format!("{:?}", els::Request::parse(frame.payload).unwrap().code()),
            kind => format!("{kind:?}"),
        }
    }
}

/// An [`Enode`] under test, with a virtual clock and the frames that it has sent. A test plays the
/// forwarder and the fabric's services.
pub(crate) struct Script {
    pub(crate) node: Enode,
    pub(crate) now: Instant,
    pub(crate) sent: Vec<Sent>,
    pub(crate) events: Vec<Event>,
}

impl Script {
    /// A node on an interface that is up.
    pub(crate) fn new() -> Self {
        let node = Enode::new(EnodeConfig {
            wwpn: WWPN,
            wwnn: Wwn(0x1000_0000_0000_0001),
            functions: Functions { initiator: true, target: false },
            e_d_tov: ms(2_000),
            r_a_tov: ms(10_000),
            exchanges: Xids::new((0x100, 0x1ff), 0, 0),
        });
        let mut script =
            Self { node, now: Instant(1_000_000_000), sent: Vec::new(), events: Vec::new() };
        script.node.handle_link(script.now, Some(Interface { mac: NODE, mtu: 2500 }));
        script.drain();
        script
    }

    /// A node that is logged in, and has asked its first question.
    pub(crate) fn logged_in() -> Self {
        let mut script = Self::new();
        script.advertise(FCF, 128, USABLE.with(Flags::S), LONG);
        script.run(ms(2_000));
        script.accept(Mac::fpma(FcMap::FABRIC, ID), Features::F_PORT);
        script
    }

    pub(crate) fn drain(&mut self) {
        while self.node.poll_membership().is_some() {}
        self.events.extend(std::iter::from_fn(|| self.node.poll_event()));
        let mut buffer = [0xa5; FRAME_LEN_MAX];
        while let Some((carrier, len)) = self.node.poll_transmit(&mut buffer) {
            self.sent.push(Sent { at: self.now, carrier, bytes: buffer[..len].to_vec() });
        }
    }

    /// The frames since the last look, in words.
    pub(crate) fn words(&mut self) -> String {
        let words: Vec<_> = self.sent.drain(..).map(|it| it.word()).collect();
        words.join(" ")
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.node.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.node.handle_timeout(self.now);
            self.drain();
            assert!(self.node.poll_timeout().is_none_or(|at| at > self.now), "it stays expired");
        }
        self.now = end;
    }

    pub(crate) fn advertise(&mut self, mac: Mac, priority: u8, flags: Flags, len: usize) {
        let advertisement = Advertisement {
            priority,
            mac,
            name: Wwn(SWITCH.0 + u64::from(mac.0[5])),
            fabric: Fabric { vf_id: 0, map: FcMap::FABRIC, name: SWITCH },
            keep_alive: KeepAlivePeriod { wanted: true, ms: 8_000 },
        };
        let to = if flags.has(Flags::S) { NODE } else { ALL_ENODE_MACS };
        self.receive(mac, to, flags, Message::Advertisement(advertisement), len);
    }

    pub(crate) fn receive(
        &mut self,
        source: Mac,
        destination: Mac,
        flags: Flags,
        message: Message<'_>,
        len: usize,
    ) {
        let mut frame = fip::Frame::new(Ethernet { destination, source }, flags, message);
        frame.len = frame.len.max(len);
        self.node.handle_fip(self.now, &frame);
        self.drain();
    }

    /// Answers the FLOGI that was sent last.
    pub(crate) fn accept(&mut self, mac: Mac, features: Features) {
        let flogi = self.sent.iter().rev().find(|it| it.word() == "LinkRequest").unwrap().clone();
        let Message::LinkRequest(asked) = flogi.fip().message else { panic!("{flogi:?}") };
        let to = flogi.fip().ethernet.destination;
        let reply = Reply::FabricLogin(flogi_reply(SWITCH, features));
        let mut payload = [0; 116];
        let len = reply.emit(&mut payload);
        let mut header = asked.header.reply(Kind::ElsReply, Xid(1));
        header.d_id = mac.port_id();
        let (service, payload) = (Service::Flogi, &payload[..len]);
        let message = Message::LinkReply(LinkService { service, header, payload, mac: Some(mac) });
        self.receive(to, NODE, Flags::FP, message, 0);
    }

    /// A frame of a service of the fabric, or of another port.
    pub(crate) fn deliver(&mut self, header: Header, payload: &[u8]) -> bool {
        let ethernet = Ethernet { destination: Mac::fpma(FcMap::FABRIC, ID), source: FCF };
        let is_handled = self.node.handle_frame(self.now, &Frame { ethernet, header, payload });
        self.drain();
        is_handled
    }

    /// Answers the question that was asked last.
    pub(crate) fn answer(&mut self, kind: Kind, emit: impl FnOnce(&mut [u8]) -> usize) {
        let asked = self.sent.last().unwrap().fc().header;
        let mut payload = [0; 600];
        let len = emit(&mut payload);
        assert!(self.deliver(asked.reply(kind, Xid(7)), &payload[..len]));
    }

    /// The same to the name server.
    pub(crate) fn name(&mut self, reply: ct::Reply<'_>) {
        self.answer(Kind::CtReply, |payload| reply.emit(payload));
    }
}
