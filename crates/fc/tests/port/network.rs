//! A simulated network of nodes, each a port with its logins; perhaps with forwarders of a fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_fc::exchange::Xids;
use tyche_fc::neighbour::{Functions, Interface, Membership};
use tyche_fc::network::{Mode, Network as Attached, PortConfig};
use tyche_fc::port::{Carrier, Cause, Event, Login, Logins, LoginsConfig};
use tyche_fc::wire::els::{Code, Reply, Request};
use tyche_fc::wire::fip::{self, Message};
use tyche_fc::wire::{ETHERTYPE_FIP, FRAME_LEN_MAX, Frame, HEAD_LEN, Kind, Mac, PortId, Wwn};
use tyche_fcf::{Fcf, FcfConfig, MEMBERSHIPS};
use tyche_time::{Instant, earliest};

use crate::air::{Air, ms};

pub(crate) const INITIATOR: Functions = Functions { initiator: true, target: false };
pub(crate) const TARGET: Functions = Functions { initiator: false, target: true };
pub(crate) const BOTH: Functions = Functions { initiator: true, target: true };

pub(crate) struct Node {
    pub(crate) network: Attached,
    pub(crate) logins: Logins,
    wwpn: Wwn,
    functions: Functions,
    mac: Mac,
    joined: BTreeSet<Mac>,
    pub(crate) events: Vec<Event>,
    /// The logins according to events.
    pub(crate) live: BTreeMap<Wwn, Login>,
    /// Logins that have ended, and are not confirmed yet.
    pub(crate) undrained: BTreeSet<Wwn>,
    /// Whether ends are confirmed at once.
    pub(crate) drains: bool,
    /// The link services that it has sent, in words.
    pub(crate) sent: Vec<String>,
}

/// A network of [`Node`]s, and of forwarders if there are some, with a virtual clock. It runs from
/// one event to the next: a frame that arrives, or a timer that expires.
pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) air: Air,
    pub(crate) nodes: Vec<Node>,
    /// The forwarders, if there is a fabric; `None` if one is down.
    pub(crate) forwarders: Vec<Option<Fcf>>,
}

fn node(index: usize, (wwpn, mode): (Wwn, Mode), functions: Functions, seed: u64) -> Node {
    let wwnn = Wwn(wwpn.0 ^ 0x3000_0000_0000_0000);
    Node {
        network: Attached::new(
            PortConfig { mode, ..PortConfig::new((wwpn, wwnn), functions, ms(2_000)) },
            Xids::new((0x800, 0x8ff), 0, 0),
            seed,
        ),
        logins: Logins::new(LoginsConfig {
            wwpn,
            wwnn,
            functions,
            retries: true,
            e_d_tov: ms(2_000),
            r_a_tov: ms(10_000),
            exchanges: Xids::new((0x100, 0x4ff), 0, 0),
            seed: 0,
        }),
        wwpn,
        functions,
        mac: Mac([2, 0, 0, 0, 1, index as u8]),
        joined: BTreeSet::new(),
        events: Vec::new(),
        live: BTreeMap::new(),
        undrained: BTreeSet::new(),
        drains: true,
        sent: Vec::new(),
    }
}

/// Two nodes that are logged in with each other.
pub(crate) fn pair(seed: u64, functions: [Functions; 2]) -> Network {
    let mut network = Network::new(seed, &functions);
    network.run(ms(5_000));
    network.assert_logged_in();
    network
}

/// The forwarder with that number.
pub(crate) fn forwarder(number: u8) -> FcfConfig {
    FcfConfig::new(Mac([2, 0, 0, 0, 0x0f, number]))
}

impl Network {
    /// Nodes with these functions; the names grow.
    pub(crate) fn new(seed: u64, functions: &[Functions]) -> Self {
        Self::with_forwarders(seed, functions, Vec::new())
    }

    /// The same in a fabric with these forwarders.
    pub(crate) fn with_forwarders(
        seed: u64,
        functions: &[Functions],
        forwarders: Vec<FcfConfig>,
    ) -> Self {
        let (now, air) = (Instant(1_000_000_000), Air::new(seed));
        let mode = if forwarders.is_empty() { Mode::Vn2vn } else { Mode::Fabric };
        let forwarders = forwarders.into_iter().map(|it| Some(Fcf::new(it))).collect();
        let mut network = Self { now, air, nodes: Vec::new(), forwarders };
        for (index, functions) in functions.iter().enumerate() {
            let wwpn = Wwn(0x2000_0000_0000_1000 + index as u64);
            let seed = network.air.random.next();
            network.nodes.push(node(index, (wwpn, mode), *functions, seed));
        }
        (0..functions.len()).for_each(|index| network.set_link(index, true));
        network
    }

    /// Starts a node anew, as a process that was killed.
    pub(crate) fn restart(&mut self, index: usize) {
        let Node { wwpn, functions, ref network, .. } = self.nodes[index];
        let named = (wwpn, network.mode());
        self.nodes[index] = node(index, named, functions, self.air.random.next());
        self.set_link(index, true);
    }

    pub(crate) fn set_link(&mut self, index: usize, up: bool) {
        let interface = Interface { mac: self.nodes[index].mac, mtu: 2500 };
        self.nodes[index].network.handle_link(self.now, up.then_some(interface));
        self.drain(index);
    }

    pub(crate) fn set_mtu(&mut self, index: usize, mtu: usize) {
        let interface = Interface { mac: self.nodes[index].mac, mtu };
        self.nodes[index].network.handle_link(self.now, Some(interface));
        self.drain(index);
    }

    /// The longest payloads of all logins.
    pub(crate) fn payloads(&self) -> Vec<usize> {
        let logins = self.nodes.iter().flat_map(|node| node.live.values());
        logins.map(|it| it.payload_max).collect()
    }

    /// Takes all outputs of a node.
    pub(crate) fn drain(&mut self, index: usize) {
        let (node, now) = (&mut self.nodes[index], self.now);
        while let Some(membership) = node.network.poll_membership() {
            match membership {
                Membership::Join(mac) => _ = node.joined.insert(mac),
                Membership::Leave(mac) => _ = node.joined.remove(&mac),
            }
        }
        node.take_neighbours(now);
        node.take_events(now);
        let (mut buffer, mut frames) = ([0xa5; FRAME_LEN_MAX], Vec::new());
        while let Some((_, len)) = node.network.poll_transmit(&mut buffer) {
            frames.push(buffer[..len].to_vec());
        }
        while let Some((carrier, len)) = node.logins.poll_transmit(&mut buffer) {
            let is_fip = buffer[12..14] == ETHERTYPE_FIP.to_be_bytes();
            assert_eq!(is_fip, carrier == Carrier::Fip);
            node.sent.push(words(&buffer[..len]));
            frames.push(buffer[..len].to_vec());
        }
        for frame in frames {
            self.carry(index, &frame);
        }
    }

    /// Carries a frame to all that receive it: nodes, and behind them the forwarders.
    pub(crate) fn carry(&mut self, from: usize, frame: &[u8]) {
        let to = Mac(frame[..6].try_into().unwrap());
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            if index != from && (node.mac == to || node.joined.contains(&to)) {
                self.air.carry(self.now, index, frame);
            }
        }
        for index in 0..self.forwarders.len() {
            if to == forwarder(index as u8).mac || MEMBERSHIPS.contains(&to) {
                self.air.carry(self.now, self.nodes.len() + index, frame);
            }
        }
    }

    /// Takes all outputs of a forwarder.
    pub(crate) fn drain_forwarder(&mut self, index: usize) {
        let frames: Vec<_> = match &mut self.forwarders[index] {
            Some(forwarder) => std::iter::from_fn(|| forwarder.poll_transmit()).collect(),
            None => Vec::new(),
        };
        let from = self.nodes.len() + index;
        frames.iter().for_each(|frame| self.carry(from, frame));
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let timer = |node: &Node| earliest(node.network.poll_timeout(), node.logins.poll_timeout());
        loop {
            let forwarders = self.forwarders.iter().map(|it| it.as_ref()?.poll_timeout());
            let timers = self.nodes.iter().map(timer).chain(forwarders);
            let Some((at, index, frame)) = self.air.next(timers, end) else { break };
            self.now = self.now.max(at);
            let Some(node) = self.nodes.get_mut(index) else {
                let index = index - self.nodes.len();
                match (&mut self.forwarders[index], frame) {
                    (None, _) => {}
                    (Some(forwarder), Some(frame)) => forwarder.handle_frame(self.now, &frame),
                    (Some(forwarder), None) => forwarder.handle_timeout(self.now),
                }
                self.drain_forwarder(index);
                continue;
            };
            if let Some(frame) = frame {
                node.handle(self.now, &frame);
            } else {
                node.network.handle_timeout(self.now);
                node.logins.handle_timeout(self.now);
                assert!(timer(node).is_none_or(|at| at > self.now), "a timer that stays expired");
            }
            self.drain(index);
        }
        self.now = end;
    }

    /// Asserts that each initiator and each target are logged in with each other, and agree.
    pub(crate) fn assert_logged_in(&self) {
        for (a, b) in (0..self.nodes.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let (a, b) = (&self.nodes[a], &self.nodes[b]);
            for (here, there) in [(a, b), (b, a)] {
                let functions = Functions {
                    initiator: here.functions.target && there.functions.initiator,
                    target: here.functions.initiator && there.functions.target,
                };
                let agreed =
                    here.live.get(&there.wwpn).map_or(Functions::default(), |it| it.functions);
                assert_eq!(agreed, functions, "{:?} and {:?}", here.logins, there.logins);
            }
        }
        for node in &self.nodes {
            let logins: BTreeMap<_, _> = node.logins.logins().map(|it| (it.wwpn, *it)).collect();
            assert_eq!(logins, node.live, "the events say the same");
        }
    }
}

impl Node {
    /// Takes a frame as the loop around the machines does.
    pub(crate) fn handle(&mut self, now: Instant, frame: &[u8]) {
        if let Ok(frame) = fip::Frame::parse(frame) {
            let is_handled = self.network.handle_fip(now, &frame);
            self.take_neighbours(now);
            assert!(is_handled || self.logins.handle_fip(now, &frame), "{frame:?}");
        } else if let Some((head, rest)) = frame.split_first_chunk::<HEAD_LEN>()
            && let Ok(frame) = Frame::parse(head, rest)
        {
            let is_handled = self.network.handle_frame(now, &frame);
            self.take_neighbours(now);
            if !is_handled {
                self.logins.handle_frame(now, &frame);
            }
        }
    }

    /// Its N_Port_ID.
    pub(crate) fn id(&self) -> Option<PortId> {
        self.network.address().map(|it| it.id)
    }

    fn take_neighbours(&mut self, now: Instant) {
        while let Some(event) = self.network.poll_event() {
            self.logins.handle_neighbour(now, event, self.network.interface());
            self.take_events(now);
        }
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.logins.poll_event() {
            self.events.push(event);
            match event {
                Event::LoggedIn(login) => {
                    assert!(!self.undrained.contains(&login.wwpn), "before it is drained");
                    self.live.insert(login.wwpn, login);
                }
                Event::LoggedOut(wwpn, _) => {
                    assert!(self.live.remove(&wwpn).is_some(), "it was logged in");
                    assert!(self.undrained.insert(wwpn));
                    if self.drains {
                        self.undrained.remove(&wwpn);
                        self.logins.drained(now, wwpn);
                    }
                }
                Event::Failed(..) => {}
            }
        }
    }

    /// The reasons for which logins have ended.
    pub(crate) fn causes(&self) -> Vec<Cause> {
        let causes = self.events.iter().filter_map(|event| match event {
            Event::LoggedOut(_, cause) => Some(*cause),
            _ => None,
        });
        causes.collect()
    }
}

/// A link service in words: its code, or the code of the refusal.
fn words(frame: &[u8]) -> String {
    let payload = match fip::Frame::parse(frame).map(|frame| frame.message) {
        Ok(Message::LinkRequest(it)) => return format!("{:?}", code(it.payload)),
        Ok(Message::LinkReply(it)) => it.payload,
        _ => {
            let (head, rest) = frame.split_first_chunk::<HEAD_LEN>().unwrap();
            let frame = Frame::parse(head, rest).unwrap();
            if frame.header.kind == Kind::ElsRequest {
                return format!("{:?}", code(frame.payload));
            }
            frame.payload
        }
    };
    match Reply::parse(Code::Logo, payload).unwrap() {
        Reply::Refused(it) => format!("no: {:#x}", it.reason),
        _ => "yes".to_owned(),
    }
}

fn code(payload: &[u8]) -> Code {
    Request::parse(payload).unwrap().code()
}
