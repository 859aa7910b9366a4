//! Ports in a fabric: how they find a forwarder, log in there, and find each other (ENode of
//! FC-BB-6; the name server of FC-GS-6).
//!
//! A port asks for the forwarders of the network (FCFs), logs in with the best of them, and has its
//! address from it. All its frames go through the forwarder from then on, and the fabric's name
//! server says who else is there:
//!
//! ```text
//!        2 s: forwarders answer      accepted
//!  Looking ───────────────────► Flogi ──────► Up: registers, asks for ports
//!    ▲ ▲ │ none: asks again       │            │ asks again when the fabric has changed (RSCN)
//!    │ └─┘                        │            │
//!    ├──────── refused, no answer ┘            │
//!    └──────── forwarder silent, Clear Virtual Link
//! ```
//!
//! A forwarder can be used if it accepts logins (flag A), and has proved that the longest frames
//! pass, by the length of an advertisement that was asked for. The one with the lowest priority
//! wins; of equal ones that with the lowest name. One that did not let us log in comes after those
//! that have not been tried as often.
//!
//! A port says every few seconds that it is still there, as its forwarder wants it, and has lost
//! the forwarder if that has not been heard for 2.5 of its intervals. Then all begins anew.
//!
//! One input ([`handle_link`](Enode::handle_link), [`handle_fip`](Enode::handle_fip),
//! [`handle_frame`](Enode::handle_frame), [`handle_timeout`](Enode::handle_timeout)), then drain
//! the outputs, as those of [`vn2vn`](crate::vn2vn).

mod directory;
mod forwarders;
mod outputs;

use std::time::Duration;

use tyche_fc_wire::els::{Code, FabricLogin, Features, Reply};
use tyche_fc_wire::fip::{self, ALL_ENODE_MACS, ClearVirtualLink, LinkService, Message, Service};
use tyche_fc_wire::{FRAME_LEN_MAX, Frame, Mac, PortId, Wwn, Xid};
use tyche_time::{Instant, Pace, earliest};

pub use outputs::Ignored;

use crate::exchange::Xids;
use crate::neighbour::{Address, Event, Fabric, Functions, Interface, Membership, Neighbour};
use crate::numbers::Numbers;
use crate::port::{Carrier, Offer, in_unit};
use directory::Directory;
use forwarders::{Forwarder, Forwarders};
use outputs::{Outputs, Send};

/// The time for answers to a solicitation, before one of the forwarders is chosen.
const LOOK_WAIT: Duration = Duration::from_secs(2);
/// The time between solicitations while there is no forwarder.
const LOOK_AGAIN: Duration = Duration::from_secs(8);
/// The time for the answer to FLOGI: R_A_TOV, as long as a fabric has not said what it is there.
const FLOGI_WAIT: Duration = Duration::from_secs(10);
/// The time between the keep alives of a port (FC-BB-6).
const PORT_ALIVE_INTERVAL: Duration = Duration::from_secs(90);
/// The least time between solicitations of single forwarders, on average, and how many there may be
/// at once: whoever advertises has us send something.
const SOLICIT_INTERVAL: Duration = Duration::from_millis(100);
const SOLICITS_MAX: u32 = 16;
/// The least payload that a fabric carries (FC-FS-3).
const RECEIVE_LEN_MIN: u16 = 256;
/// The addresses of the fabric's own services are those from here on.
const WELL_KNOWN: u32 = 0xff_fff0;

/// The configuration of a port, which does not change.
#[derive(Clone, Copy, Debug)]
pub struct EnodeConfig {
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// Its functions.
    pub functions: Functions,
    /// E_D_TOV: a whole number of milliseconds.
    pub e_d_tov: Duration,
    /// R_A_TOV: the same.
    pub r_a_tov: Duration,
    /// The numbers of its exchanges with the fabric.
    pub exchanges: Xids,
}

/// The stage on the way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The link is down, or the user has logged out.
    Down,
    /// Forwarders are asked for, until then.
    Looking(Instant),
    /// A forwarder has been asked for a login, with an answer until then.
    Flogi { to: Mac, ox_id: Xid, until: Instant },
    /// The port is logged in.
    Up(VirtualLink),
}

/// A login with a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VirtualLink {
    address: Address,
    forwarder: Mac,
    /// When to say that the node is there, unless nobody wants to hear it.
    node_alive: Option<Instant>,
    /// The same for the port.
    port_alive: Option<Instant>,
}

/// The state machine of one port in a fabric, without I/O: it logs in with a forwarder, keeps the
/// login alive, and tracks the other ports of the fabric. Its user has the link and the clock.
pub struct Enode {
    config: EnodeConfig,
    interface: Interface,
    /// Whether the user has logged out, for good.
    is_over: bool,
    stage: Stage,
    forwarders: Forwarders,
    solicits: Pace,
    numbers: Numbers,
    directory: Directory,
    outputs: Outputs,
}

impl Enode {
    /// A port whose link is down.
    pub fn new(config: EnodeConfig) -> Self {
        let mut outputs = Outputs::default();
        outputs.memberships.push_back(Membership::Join(ALL_ENODE_MACS));
        Self {
            interface: Interface { mac: Mac::default(), mtu: 0 },
            is_over: false,
            stage: Stage::Down,
            forwarders: Forwarders::default(),
            solicits: Pace::new(SOLICIT_INTERVAL, SOLICITS_MAX),
            numbers: Numbers::new(config.exchanges, 0),
            directory: Directory::new(config),
            outputs,
            config,
        }
    }

    /// The address of the port, if it is logged in.
    pub fn address(&self) -> Option<Address> {
        match self.stage {
            Stage::Up(link) => Some(link.address),
            _ => None,
        }
    }

    /// The interface that it has, or had last.
    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// The ports that the fabric has, as far as we know.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.directory.neighbours()
    }

    /// Whether all that the port wants of the fabric is done: the list of ports is complete.
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Up(_)) && self.directory.is_idle()
    }

    /// Whether a forwarder has been heard.
    pub fn has_forwarder(&self) -> bool {
        !self.forwarders.is_empty()
    }

    /// Counters of ignored frames, since the start.
    pub fn ignored(&self) -> Ignored {
        Ignored { undrained: self.outputs.undrained(), ..self.outputs.ignored }
    }

    /// Takes the state of the link: up, with an interface, or down. An interface with another
    /// address is another one, and so is one that takes frames of another length: all logins end,
    /// and begin anew.
    pub fn handle_link(&mut self, now: Instant, up: Option<Interface>) {
        let before = (self.stage != Stage::Down).then(|| self.interface.identity());
        if let Some(interface) = up {
            self.interface = interface;
        }
        if self.is_over || before == up.map(|it| it.identity()) {
            return;
        }
        self.release();
        self.forwarders = Forwarders::default();
        self.stage = Stage::Down;
        if up.is_some() {
            self.look(now, LOOK_WAIT);
        }
    }

    /// Logs out of the fabric, for the end of the program. There are no logins from now on.
    pub fn log_out(&mut self) {
        if let Stage::Up(link) = self.stage {
            let ox_id = self.numbers.take();
            self.release();
            self.outputs.send(Send::Logo(link.address, link.forwarder, ox_id));
        }
        (self.stage, self.is_over) = (Stage::Down, true);
    }

    /// Takes a frame of FIP that has come to the interface's own address or to
    /// [`ALL_ENODE_MACS`]. Others than those of a fabric have no effect.
    pub fn handle_fip(&mut self, now: Instant, frame: &fip::Frame<'_>) {
        let source = frame.ethernet.source;
        match &frame.message {
            _ if self.stage == Stage::Down => self.outputs.ignored.down += 1,
            Message::Advertisement(heard) if heard.mac == source => {
                let is_to_us = frame.ethernet.destination == self.interface.mac;
                let proof = if is_to_us { frame.len } else { 0 };
                let size = self.interface.fcoe_len_max();
                let heard = Forwarder::heard(now, heard, frame.flags, proof, size);
                self.handle_advertisement(now, heard);
            }
            Message::LinkReply(service) => self.handle_flogi_reply(now, source, service),
            Message::ClearVirtualLink(clear) => self.handle_clear(now, source, clear),
            _ => self.outputs.ignored.unexpected += 1,
        }
    }

    fn handle_advertisement(&mut self, now: Instant, heard: Option<Forwarder>) {
        let Some(heard) = heard else {
            self.outputs.ignored.unusable += 1;
            return;
        };
        let Some(known) = self.forwarders.note(heard) else {
            self.outputs.ignored.no_room += 1;
            return;
        };
        if known.is_usable() {
            if let Stage::Looking(until) = &mut self.stage {
                *until = (*until).min(now + LOOK_WAIT);
            }
        } else if !known.is_proven && self.solicits.takes(now) {
            self.outputs.send(Send::Solicit(heard.mac));
        }
    }

    /// A forwarder ends the logins of ports, or of all on this interface.
    fn handle_clear(&mut self, now: Instant, source: Mac, clear: &ClearVirtualLink) {
        let Stage::Up(link) = self.stage else { return };
        let name = self.forwarders.find(link.forwarder).map(|it| it.name);
        let is_real = (source, clear.mac) == (link.forwarder, link.forwarder);
        let is_ours = |it: &fip::VnPort| (it.id, it.mac) == (link.address.id, link.address.mac);
        let is_about_us = clear.ports.is_empty() || clear.ports.iter().any(is_ours);
        if is_real && is_about_us && name == Some(clear.name) {
            self.lose(now);
        } else {
            self.outputs.ignored.unexpected += 1;
        }
    }

    fn handle_flogi_reply(&mut self, now: Instant, source: Mac, reply: &LinkService<'_>) {
        let Stage::Flogi { to, ox_id, .. } = self.stage else {
            self.outputs.ignored.unexpected += 1;
            return;
        };
        let is_ours = source == to && reply.header.ox_id == ox_id;
        if !is_ours || reply.service != Service::Flogi {
            self.outputs.ignored.unexpected += 1;
            return;
        }
        let login = match Reply::parse(Code::Flogi, reply.payload) {
            Ok(Reply::FabricLogin(login)) => Some(login),
            _ => None,
        };
        let granted = login.and_then(|login| self.granted(to, reply, &login));
        match granted {
            Some(address) => self.come_up(now, address, to),
            None => self.give_up(now, to),
        }
    }

    /// The address that a forwarder has granted, if it is one of its fabric.
    fn granted(&self, to: Mac, reply: &LinkService<'_>, login: &FabricLogin) -> Option<Address> {
        let (id, mac) = (reply.header.d_id, reply.mac?);
        let is_valid = id != PortId::NONE && !is_well_known(id);
        let is_right = mac == Mac::fpma(self.forwarders.find(to)?.map, id);
        let is_fabric = login.features.has(Features::F_PORT);
        if !(is_valid && is_right && is_fabric) || login.receive_len < RECEIVE_LEN_MIN {
            return None;
        }
        let fabric = Fabric {
            forwarder: to,
            payload_max: login.receive_len,
            e_d_tov: in_unit(login.e_d_tov, login.features.has(Features::E_D_TOV_NS)),
            r_a_tov: Duration::from_millis(login.r_a_tov_ms.into()),
        };
        Some(Address { id, mac, fabric: Some(fabric) })
    }

    fn come_up(&mut self, now: Instant, address: Address, forwarder: Mac) {
        let Some(known) = self.forwarders.find_mut(forwarder) else { return };
        known.failures = 0;
        let alive = |interval| known.wants_alive.then(|| now + interval);
        self.stage = Stage::Up(VirtualLink {
            address,
            forwarder,
            node_alive: alive(known.period),
            port_alive: alive(PORT_ALIVE_INTERVAL),
        });
        self.outputs.memberships.push_back(Membership::Join(address.mac));
        self.outputs.events.push_back(Event::Claimed(address));
        self.directory.start(now, address, self.interface);
        self.drain_directory();
    }

    /// Takes an encapsulated frame that has come to the port's address. False if it is not one of
    /// the fabric's services: it is for others to handle, after the events, for PLOGI introduces
    /// its sender.
    pub fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) -> bool {
        let Stage::Up(link) = self.stage else { return false };
        let is_to_us = frame.header.d_id == link.address.id;
        let is_real = frame.ethernet.source == link.forwarder && frame.check_destination().is_ok();
        let from = frame.header.s_id;
        if !is_to_us || !is_real {
            return is_well_known(from);
        }
        if is_well_known(from) {
            self.directory.handle_frame(now, frame, &mut self.outputs.ignored);
        } else {
            self.directory.introduce(now, frame, &mut self.outputs.ignored);
        }
        self.drain_directory();
        is_well_known(from)
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.forwarders.expire(now);
        match self.stage {
            Stage::Down => {}
            Stage::Looking(until) if until <= now => match self.forwarders.best() {
                Some(best) => self.ask(now, best),
                None => self.look(now, LOOK_AGAIN),
            },
            Stage::Flogi { to, until, .. } if until <= now => self.give_up(now, to),
            Stage::Looking(_) | Stage::Flogi { .. } => {}
            Stage::Up(link) if self.forwarders.find(link.forwarder).is_none() => self.lose(now),
            Stage::Up(link) => self.stay_up(now, link),
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = match self.stage {
            Stage::Down => None,
            Stage::Looking(until) | Stage::Flogi { until, .. } => Some(until),
            Stage::Up(link) => {
                earliest(earliest(link.node_alive, link.port_alive), self.directory.poll_timeout())
            }
        };
        earliest(own, self.forwarders.silent_at().filter(|_| self.stage != Stage::Down))
    }

    fn stay_up(&mut self, now: Instant, mut link: VirtualLink) {
        let period = self.forwarders.find(link.forwarder).map(|it| it.period);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(link.node_alive) {
            self.outputs.send(Send::NodeAlive(link.forwarder));
            link.node_alive = period.map(|period| now + period);
        }
        if is_due(link.port_alive) {
            self.outputs.send(Send::PortAlive(link.address, link.forwarder));
            link.port_alive = Some(now + PORT_ALIVE_INTERVAL);
        }
        self.stage = Stage::Up(link);
        self.directory.handle_timeout(now);
        self.drain_directory();
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outputs.events.pop_front()
    }

    /// The next address to join or leave.
    pub fn poll_membership(&mut self) -> Option<Membership> {
        self.outputs.memberships.pop_front()
    }

    /// Writes the next frame to send, from its destination address on; returns its link and length.
    pub fn poll_transmit(&mut self, buffer: &mut [u8; FRAME_LEN_MAX]) -> Option<(Carrier, usize)> {
        let send = self.outputs.next_frame()?;
        let EnodeConfig { wwpn, wwnn, e_d_tov, r_a_tov, .. } = self.config;
        let size = self.interface.fcoe_len_max();
        let payload_max = fip::payload_within(size);
        let offer = Offer { wwpn, wwnn, payload_max, e_d_tov, r_a_tov };
        Some(send.emit(self.interface.mac, size, &offer, buffer))
    }

    /// Asks for forwarders, and waits for answers.
    fn look(&mut self, now: Instant, wait: Duration) {
        self.outputs.send(Send::Solicit(fip::ALL_FCF_MACS));
        self.stage = Stage::Looking(now + wait);
    }

    /// Asks a forwarder for a login.
    fn ask(&mut self, now: Instant, to: Mac) {
        let ox_id = self.numbers.take();
        self.outputs.send(Send::Flogi(to, ox_id));
        self.stage = Stage::Flogi { to, ox_id, until: now + FLOGI_WAIT };
    }

    /// A forwarder has not let us log in.
    fn give_up(&mut self, now: Instant, forwarder: Mac) {
        if let Some(known) = self.forwarders.find_mut(forwarder) {
            known.failures = known.failures.saturating_add(1);
        }
        self.look(now, LOOK_WAIT);
    }

    /// The login is over.
    fn lose(&mut self, now: Instant) {
        self.release();
        self.look(now, LOOK_WAIT);
    }

    fn release(&mut self) {
        self.outputs.drop_frames();
        let Stage::Up(link) = self.stage else { return };
        self.directory.clear();
        self.drain_directory();
        self.outputs.drop_frames();
        self.outputs.memberships.push_back(Membership::Leave(link.address.mac));
        self.outputs.events.push_back(Event::Released(link.address.id));
    }

    /// Takes the outputs of the directory.
    fn drain_directory(&mut self) {
        let Stage::Up(link) = self.stage else { return };
        while let Some(event) = self.directory.poll_event() {
            self.outputs.events.push_back(event);
        }
        while let Some(service) = self.directory.poll_service() {
            self.outputs.send(Send::Service(link.address, link.forwarder, service));
        }
    }
}

/// Whether an address is that of a service of the fabric.
fn is_well_known(id: PortId) -> bool {
    id.to_u32() >= WELL_KNOWN
}

impl std::fmt::Debug for Enode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Enode({}, {:?})", self.config.wwpn, self.stage)
    }
}
