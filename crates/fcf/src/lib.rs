//! A minimal forwarder of Fibre Channel over Ethernet (FCF of FC-BB-6), sans-IO: a fabric of one
//! switch, with all of its nodes on one Ethernet. It is for tests and the laboratory, and no
//! product: nobody is kept out, and there are no zones.
//!
//! | | what it does | standard |
//! |---|---|---|
//! | [`Fcf`] | advertises itself, lets nodes log in, forwards their frames | FC-BB-6 |
//! | `services` | answers as F_Port, fabric controller and name server | FC-LS-2, FC-GS-6 |
//! | `nodes` | who is logged in, and what they have registered | |
//!
//! A port has the same N_Port_ID each time it logs in. It is logged out when it says so, when it
//! logs in again, and when its node has not been heard for 2.5 periods of keep alives; others that
//! have asked for it are told (RSCN). A keep alive of a port that is not logged in is answered with
//! Clear Virtual Link, so that it notices that the forwarder was started anew; but not that of a
//! node that looked for a forwarder just before. Linux may send one on its way to the login, and
//! logs in no more if it is answered then.
//!
//! One input ([`handle_frame`](Fcf::handle_frame), [`handle_timeout`](Fcf::handle_timeout),
//! [`clear`](Fcf::clear)), then drain [`poll_transmit`](Fcf::poll_transmit) until `None`.
//! [`poll_timeout`](Fcf::poll_timeout) says how long to wait for the next input. Frames to
//! [`MEMBERSHIPS`] and to its own address are for it, of both EtherTypes.

#![forbid(unsafe_code)]

mod nodes;
mod services;

use std::collections::VecDeque;
use std::time::Duration;

use tyche_fc_wire::els::{Code, FabricLogin, Features, Rejection, Reply, Request};
use tyche_fc_wire::fip::{
    self, ALL_ENODE_MACS, ALL_FCF_MACS, Advertisement, ClearVirtualLink, FCOE_LEN_MAX, Fabric,
    Flags, KeepAlive, KeepAlivePeriod, LinkService, Message, Service, Solicitation, VnPort,
};
use tyche_fc_wire::{
    Ethernet, FRAME_LEN_MAX, FcMap, Frame, HEAD_LEN, Kind, Mac, PortId, Reject, Wwn,
};
use tyche_time::{Instant, earliest};

use nodes::{Node, Nodes};

/// The groups that it receives frames to.
pub const MEMBERSHIPS: [Mac; 1] = [ALL_FCF_MACS];

/// The most frames that wait to be sent; more are dropped, as a switch does without flow control.
pub const QUEUE_MAX: usize = 4096;
/// The most nodes whose keep alives are not answered because they have yet to log in.
const NEWCOMERS_MAX: usize = 64;

/// The configuration of a forwarder.
#[derive(Clone, Copy, Debug)]
pub struct FcfConfig {
    /// Its Ethernet address.
    pub mac: Mac,
    /// The name of the switch.
    pub name: Wwn,
    /// The name of the fabric.
    pub fabric: Wwn,
    /// The upper byte of the N_Port_IDs that it grants: another than that of a former life, of
    /// which nodes may still have addresses.
    pub domain: u8,
    /// Its priority: the lower, the better.
    pub priority: u8,
    /// The interval of advertisements and keep alives.
    pub period: Duration,
    /// E_D_TOV of the fabric; R_A_TOV is five times that.
    pub e_d_tov: Duration,
    /// The time that it takes to answer a login.
    pub login_delay: Duration,
}

impl FcfConfig {
    /// A forwarder with that address and the defaults of FC-BB-6.
    pub fn new(mac: Mac) -> Self {
        Self {
            mac,
            name: Wwn::of_node(mac),
            fabric: Wwn::of_node(mac),
            domain: 1,
            priority: 128,
            period: Duration::from_secs(8),
            e_d_tov: Duration::from_secs(2),
            login_delay: Duration::ZERO,
        }
    }
}

/// Counters of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames between ports.
    pub forwarded: u64,
    /// Frames to nobody, from nobody, or that could not be read.
    pub dropped: u64,
    /// Logins accepted.
    pub logins: u64,
}

/// The forwarder: its fabric with all logins, and the frames that wait to be sent. It has no I/O
/// and no clock, so tests, the simulator and the laboratory drive it alike.
pub struct Fcf {
    config: FcfConfig,
    nodes: Nodes,
    /// Nodes that have looked for a forwarder, and when: the latest.
    newcomers: VecDeque<(Mac, Instant)>,
    /// When to advertise next; `None` before the first time.
    advertise_at: Option<Instant>,
    /// Answers to logins that wait for their time.
    late: VecDeque<(Instant, Vec<u8>)>,
    frames: VecDeque<Vec<u8>>,
    counts: Counts,
}

impl Fcf {
    /// A forwarder that nobody has logged in with.
    pub fn new(config: FcfConfig) -> Self {
        Self {
            nodes: Nodes::new(config.domain),
            newcomers: VecDeque::with_capacity(NEWCOMERS_MAX),
            advertise_at: None,
            late: VecDeque::new(),
            frames: VecDeque::new(),
            counts: Counts::default(),
            config,
        }
    }

    /// The ports that are logged in, by name and N_Port_ID.
    pub fn ports(&self) -> impl Iterator<Item = (Wwn, PortId)> {
        self.nodes.iter().map(|it| (it.wwpn, it.id))
    }

    /// Counters of frames, since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Changes its configuration; logins stay.
    pub fn configure(&mut self, change: impl FnOnce(&mut FcfConfig)) {
        change(&mut self.config);
    }

    /// Takes a frame, from its destination address on.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        let handled = match fip::Frame::parse(frame) {
            Err(Reject::EtherType) => self.handle_fcoe(frame),
            Err(reject) => Err(reject),
            Ok(frame) => {
                self.handle_fip(now, &frame);
                Ok(())
            }
        };
        self.counts.dropped += u64::from(handled.is_err());
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.advertise_at.is_none_or(|at| at <= now) {
            self.advertise_at = Some(now + self.config.period);
            self.advertise(ALL_ENODE_MACS, Flags::EMPTY, 0);
        }
        while self.late.front().is_some_and(|(at, _)| *at <= now) {
            self.frames.extend(self.late.pop_front().map(|(_, frame)| frame));
        }
        while let Some(silent) = self.nodes.silent(now, self.silence_max()) {
            self.clear_links(silent.enode, Some(silent.vn_port()));
            self.end(silent.id);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = Some(self.advertise_at.unwrap_or_default());
        let late = self.late.front().map(|(at, _)| *at);
        let heard = self.nodes.iter().map(|it| it.heard).min();
        earliest(earliest(own, late), heard.map(|heard| heard + self.silence_max()))
    }

    /// The next frame to send, from its destination address on.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.frames.pop_front()
    }

    /// Ends all logins.
    pub fn clear(&mut self) {
        for node in self.nodes.take() {
            self.clear_links(node.enode, Some(node.vn_port()));
        }
    }

    fn advertise(&mut self, to: Mac, flags: Flags, size: u16) {
        let FcfConfig { mac, name, fabric, priority, period, .. } = self.config;
        let message = Message::Advertisement(Advertisement {
            priority,
            mac,
            name,
            fabric: Fabric { vf_id: 0, map: FcMap::FABRIC, name: fabric },
            keep_alive: KeepAlivePeriod { wanted: true, ms: period.as_millis() as u32 },
        });
        let flags = flags.with(Flags::FP).with(Flags::A).with(Flags::FCF).with(Flags::F);
        let ethernet = Ethernet { destination: to, source: mac };
        let mut frame = fip::Frame::new(ethernet, flags, message);
        if flags.has(Flags::S) {
            frame.len = fip::padded_len(size.min(FCOE_LEN_MAX));
        }
        self.push_fip(&frame);
    }

    fn handle_fip(&mut self, now: Instant, frame: &fip::Frame<'_>) {
        let source = frame.ethernet.source;
        match &frame.message {
            Message::Solicitation(Solicitation { mac, size, fc_map: None, .. })
                if *mac == source =>
            {
                self.advertise(source, Flags::S, *size);
                self.newcomers.truncate(NEWCOMERS_MAX - 1);
                self.newcomers.push_front((source, now));
            }
            Message::LinkRequest(service) => self.handle_link_request(now, source, service),
            Message::KeepAlive(alive) => self.handle_alive(now, source, alive),
            _ => {}
        }
    }

    fn handle_alive(&mut self, now: Instant, source: Mac, alive: &KeepAlive) {
        let is_known = match alive.port {
            None => self.nodes.hear(now, |it| it.enode == source) || self.is_newcomer(now, source),
            Some(port) => self.nodes.hear(now, |it| (it.id, it.mac()) == (port.id, source)),
        };
        if !is_known {
            self.clear_links(alive.mac, alive.port);
        }
    }

    /// Whether a node has looked for a forwarder so recently that it may not have logged in yet.
    fn is_newcomer(&self, now: Instant, node: Mac) -> bool {
        let last = self.newcomers.iter().find(|it| it.0 == node);
        last.is_some_and(|it| now.since(it.1) < self.silence_max())
    }

    /// The time after which a silent node is taken to be gone.
    fn silence_max(&self) -> Duration {
        self.config.period * 5 / 2
    }

    fn handle_link_request(&mut self, now: Instant, source: Mac, asked: &LinkService<'_>) {
        let header = asked.header;
        let (reply, mac) = match (asked.service, Request::parse(asked.payload)) {
            (Service::Flogi, Ok(Request::Flogi(login)))
            | (Service::Fdisc, Ok(Request::Fdisc(login))) => {
                self.end_of(login.wwpn);
                self.counts.logins += 1;
                let node = self.nodes.add(now + self.config.login_delay, source, &login);
                (Reply::FabricLogin(self.accepted(login)), Some(node.mac()))
            }
            (Service::Logo, Ok(Request::Logo(logo))) => {
                self.end_of(logo.wwpn);
                (Reply::Accepted, Some(Mac::fpma(FcMap::FABRIC, logo.id)))
            }
            _ => {
                let (reason, explanation) = (Rejection::UNSUPPORTED, 0);
                (Reply::Refused(Rejection { reason, explanation }), None)
            }
        };
        let mut payload = [0; 116];
        let len = reply.emit(&mut payload);
        let mut header = header.reply(Kind::ElsReply, header.rx_id);
        if let Some(mac) = mac {
            header.d_id = mac.port_id();
        }
        let payload = &payload[..len];
        let message =
            Message::LinkReply(LinkService { service: asked.service, header, payload, mac });
        let ethernet = Ethernet { destination: source, source: self.config.mac };
        let flags = Flags::FP.with(Flags::F);
        let frame = emit_fip(&fip::Frame::new(ethernet, flags, message));
        if self.config.login_delay.is_zero() || payload[0] == Code::LsRjt.to_wire() {
            self.push(frame);
        } else {
            self.late.push_back((now + self.config.login_delay, frame));
        }
    }

    /// The answer to a login.
    fn accepted(&self, login: FabricLogin) -> FabricLogin {
        let e_d_tov = self.config.e_d_tov.as_millis() as u32;
        FabricLogin {
            wwpn: self.config.name,
            wwnn: self.config.fabric,
            features: Features::F_PORT,
            r_a_tov_ms: 5 * e_d_tov,
            e_d_tov,
            ..login
        }
    }

    fn clear_links(&mut self, enode: Mac, port: Option<VnPort>) {
        let FcfConfig { mac, name, .. } = self.config;
        let ports = port.into_iter().collect();
        let message = Message::ClearVirtualLink(ClearVirtualLink { mac, name, ports });
        let ethernet = Ethernet { destination: enode, source: mac };
        self.push_fip(&fip::Frame::new(ethernet, Flags::FP.with(Flags::F), message));
    }

    /// Ends the login of the port with that name, if there is one.
    fn end_of(&mut self, wwpn: Wwn) {
        let found = self.nodes.iter().find(|it| it.wwpn == wwpn).map(|it| it.id);
        if let Some(id) = found {
            self.end(id);
        }
    }

    fn end(&mut self, id: PortId) {
        self.nodes.remove(id);
        self.tell_change(id);
    }

    /// Takes an encapsulated frame: to another port, or to a service of the fabric.
    fn handle_fcoe(&mut self, bytes: &[u8]) -> Result<(), Reject> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().ok_or(Reject::Length)?;
        let frame = Frame::parse(head, rest)?;
        let sender = self.nodes.find(frame.header.s_id).copied();
        let sender = sender.filter(|it| it.mac() == frame.ethernet.source);
        let Some(sender) = sender else { return Err(Reject::Destination) };
        if services::is_well_known(frame.header.d_id) {
            self.serve(&sender, &frame);
            return Ok(());
        }
        let receiver = self.nodes.find(frame.header.d_id).ok_or(Reject::Destination)?;
        let mut forwarded = bytes.to_vec();
        forwarded[..6].copy_from_slice(&receiver.mac().0);
        forwarded[6..12].copy_from_slice(&self.config.mac.0);
        self.counts.forwarded += 1;
        self.push(forwarded);
        Ok(())
    }

    fn push_fip(&mut self, frame: &fip::Frame<'_>) {
        self.push(emit_fip(frame));
    }

    fn push(&mut self, frame: Vec<u8>) {
        if self.frames.len() < QUEUE_MAX {
            self.frames.push_back(frame);
        } else {
            self.counts.dropped += 1;
        }
    }

    /// Sends a frame of a service to a node.
    fn push_to(&mut self, node: &Node, header: tyche_fc_wire::Header, payload: &[u8]) {
        let ethernet = Ethernet { destination: node.mac(), source: self.config.mac };
        let mut buffer = [0; FRAME_LEN_MAX];
        let len = Frame { ethernet, header, payload }.emit(&mut buffer);
        self.push(buffer[..len].to_vec());
    }
}

fn emit_fip(frame: &fip::Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; FRAME_LEN_MAX];
    let len = frame.emit(&mut buffer);
    buffer[..len].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const SWITCH: Mac = Mac([2, 0, 0, 0, 0, 2]);

    /// Whether the answer to what the node says is Clear Virtual Link.
    fn is_cleared(fcf: &mut Fcf, now: Instant, message: Message<'_>) -> bool {
        let ethernet = Ethernet { destination: ALL_FCF_MACS, source: NODE };
        let frame = fip::Frame::new(ethernet, Flags::FP, message);
        fcf.handle_frame(now, &emit_fip(&frame));
        let mut said = std::iter::from_fn(|| fcf.poll_transmit());
        said.any(|it| {
            matches!(fip::Frame::parse(&it).unwrap().message, Message::ClearVirtualLink(_))
        })
    }

    #[test]
    fn a_keep_alive_of_a_stranger_is_answered_unless_it_looks_for_a_forwarder() {
        let mut fcf = Fcf::new(FcfConfig::new(SWITCH));
        let alive = || Message::KeepAlive(KeepAlive { mac: NODE, port: None });
        let (name, size) = (Wwn::of_node(NODE), FCOE_LEN_MAX);
        let start = Instant::default();
        assert!(is_cleared(&mut fcf, start, alive()), "it has missed that this is another");
        let looks = Message::Solicitation(Solicitation { mac: NODE, name, size, fc_map: None });
        assert!(!is_cleared(&mut fcf, start, looks));
        assert!(!is_cleared(&mut fcf, start + Duration::from_secs(19), alive()));
        assert!(is_cleared(&mut fcf, start + Duration::from_secs(20), alive()));
    }
}
