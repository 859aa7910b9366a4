//! The port of an interface: its address, its neighbours and its logins, as the protocol of a loop.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_counters::CountsBy;
use tyche_engine::{Composed, FrameSink, Frames, Ports, Protocol, Received};
use tyche_fc::neighbour::{self, Address, Interface, Membership, NEIGHBOURS_MAX, Neighbour};
use tyche_fc::network::{Network, PortConfig};
use tyche_fc::port::{self, Carrier, Logins, LoginsConfig};
use tyche_fc::wire::{ETHERNET_LEN, FRAME_LEN_MAX, Frame, Kind, Mac, PortId, Reject, fip};
use tyche_link::Mac as LinkMac;
use tyche_link::packet::MTU_MIN;
use tyche_time::{Instant, earliest};

use crate::interface::{FCOE, FIP, MTU_USUAL};
use crate::lanes;
use crate::outbox::Outbox;
use crate::role::Role;

/// The interval at which the MTU and the address of an interface are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most notices that wait: more than a change of all neighbours causes.
const NOTICES_MAX: usize = 4 * NEIGHBOURS_MAX;

/// Called with each N_Port_ID that a port chooses, by its thread, which should not wait for long:
/// the port is to [have it again](PortConfig::recorded) when it is started anew.
pub type RememberAddress = Box<dyn FnMut(PortId) + Send>;

/// The number of dropped frames for each reason to reject one.
pub type Rejects = CountsBy<Reject, { Reject::ALL.len() }>;

/// A change that the owner of a port may want to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The address of the port, or neighbours.
    Neighbour(neighbour::Event),
    /// A login.
    Login(port::Event),
}

/// A port of Fibre Channel on one interface, as a [`Protocol`] of the engine's loop. It owns
/// address, neighbours and logins, checks frames, and leaves the commands to its [`Role`].
pub struct NPort<R: Role> {
    network: Network,
    logins: Logins<R::Rules>,
    /// The commands.
    pub role: R,
    /// Takes each N_Port_ID that it chooses.
    pub(crate) remember: Option<RememberAddress>,
    outboxes: [Outbox; 2],
    notices: VecDeque<Notice>,
    rejects: Rejects,
    /// The state of the interface when it was looked at, and when to look again.
    is_down: bool,
    look_at: Instant,
    /// The MTU that it has, or had last.
    mtu: Option<usize>,
    /// The frame of an outbox that is being written.
    buffer: Box<[u8; FRAME_LEN_MAX]>,
}

impl<R: Role> NPort<R> {
    /// A port whose link is down.
    pub fn new(config: PortConfig, role: R) -> Self {
        let seed = getrandom::u64().expect("the kernel's random numbers are always there");
        Self::with_seed(config, role, seed)
    }

    /// The same; all that it draws follows from the seed.
    pub fn with_seed(config: PortConfig, role: R, seed: u64) -> Self {
        let PortConfig { wwpn, wwnn, functions, e_d_tov, r_a_tov, .. } = config;
        let logins = LoginsConfig {
            wwpn,
            wwnn,
            functions,
            // No lane sends sequences again (SRR).
            retries: false,
            e_d_tov,
            r_a_tov,
            exchanges: lanes::login_xids(),
            seed,
        };
        Self {
            network: Network::new(config, lanes::fabric_xids(), seed),
            logins: Logins::with_rules(logins, role.rules()),
            role,
            remember: None,
            outboxes: Default::default(),
            notices: VecDeque::new(),
            rejects: Rejects::default(),
            is_down: true,
            look_at: Instant::default(),
            mtu: None,
            buffer: Box::new([0; FRAME_LEN_MAX]),
        }
    }

    /// The N_Port_ID and the address of the port, if it is up.
    pub fn address(&self) -> Option<(PortId, Mac)> {
        self.network.address().map(|it| (it.id, it.mac))
    }

    /// The network that it is on.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The neighbours that are present.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.network.neighbours()
    }

    /// The logins.
    pub fn logins(&self) -> impl Iterator<Item = &port::Login> {
        self.logins.logins()
    }

    /// Frames dropped, by reason.
    pub fn rejects(&self) -> &Rejects {
        &self.rejects
    }

    /// The next notice.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Ends all logins, for the end of the program.
    pub fn log_out(&mut self, now: Instant) {
        self.logins.log_out();
        self.settle(now);
        self.network.log_out();
        self.settle(now);
    }

    /// Notes the state of the interface, and joins and leaves addresses there. To be called in each
    /// turn of the loop; false if nothing has changed.
    pub fn attend(&mut self, now: Instant, ports: &mut Ports) -> bool {
        let is_down = ports.iter().any(|(_, port)| port.is_down());
        if is_down != self.is_down || now >= self.look_at {
            (self.is_down, self.look_at) = (is_down, now + LOOK_EVERY);
            self.look(now, ports);
        }
        let mut worked = false;
        while let Some(membership) = self.network.poll_membership() {
            worked = true;
            change(ports, membership);
        }
        worked
    }

    fn look(&mut self, now: Instant, ports: &Ports) {
        let is_down = self.is_down;
        let fcoe = ports.iter().find(|(index, _)| *index == FCOE && !is_down);
        let up = fcoe.map(|(_, port)| {
            let link = port.link();
            let (mac, mtu) = (Mac(link.mac()), link.frame_len_max() - ETHERNET_LEN);
            if self.mtu.replace(mtu).is_some_and(|former| former != mtu) {
                tell_mtu(link.name(), mtu);
            }
            Interface { mac, mtu }
        });
        // Not even logins fit in less: it is as good as down, until it is mended.
        self.network.handle_link(now, up.filter(|it| it.mtu >= MTU_MIN));
        self.settle(now);
    }

    /// Takes the outputs of all machines, until none has one. The owner calls it after a change of
    /// the role.
    pub fn settle(&mut self, now: Instant) {
        loop {
            if let Some(event) = self.network.poll_event() {
                if let neighbour::Event::Claimed(Address { id, mac, fabric }) = event {
                    self.role.handle_address((id, mac));
                    if let Some(remember) = self.remember.as_mut().filter(|_| fabric.is_none()) {
                        remember(id);
                    }
                }
                self.logins.handle_neighbour(now, event, self.network.interface());
                self.note(Notice::Neighbour(event));
            } else if let Some(event) = self.logins.poll_event() {
                self.role.handle_login(now, event);
                self.note(Notice::Login(event));
            } else if let Some(wwpn) = self.role.poll_drained() {
                self.logins.drained(now, wwpn);
            } else if let Some(wwpn) = self.role.poll_restart() {
                self.logins.restart(now, wwpn);
            } else if self.role.poll_reclaim() {
                self.reclaim(now);
            } else {
                break;
            }
        }
        let Self { network, logins, outboxes, buffer, .. } = self;
        loop {
            let frame = network.poll_transmit(buffer).or_else(|| logins.poll_transmit(buffer));
            let Some((carrier, len)) = frame else { break };
            let port = match carrier {
                Carrier::Fip => FIP,
                Carrier::Fcoe => FCOE,
            };
            outboxes[port].push(&buffer[..len]);
        }
    }

    /// Takes a frame that has come to another thread of the port, and may be for the logins.
    pub fn handle_sent_on(&mut self, now: Instant, frame: &Frame<'_>) {
        // That of a login that is good is for nobody any more.
        self.logins.handle_frame(now, frame);
        self.settle(now);
    }

    /// Has the network show again how long frames may be.
    fn reclaim(&mut self, now: Instant) {
        if self.is_down {
            return;
        }
        let interface = self.network.interface();
        tracing::warn!(
            mtu = interface.mtu,
            "data have been lost for long, so the port begins anew, which shows how long frames \
             may be: see that all bridges and switches on the way have this MTU"
        );
        self.network.handle_link(now, None);
        self.network.handle_link(now, Some(interface));
    }

    fn note(&mut self, notice: Notice) {
        // An owner that does not look misses the oldest.
        if self.notices.len() == NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    fn handle_fip(&mut self, now: Instant, frame: &Received<'_>) -> Result<(), Reject> {
        let mut buffer = [0; FRAME_LEN_MAX];
        let frame = fip::Frame::parse(join(frame, &mut buffer)?)?;
        if !self.network.handle_fip(now, &frame) {
            // It may have made its sender a neighbour.
            self.settle(now);
            // Those of a fabric are for other kinds of ports.
            self.logins.handle_fip(now, &frame);
        }
        Ok(())
    }

    fn handle_fcoe(&mut self, now: Instant, frame: &Received<'_>) -> Result<(), Reject> {
        self.role.note_frame();
        let frame = parse(frame)?;
        if is_service(frame.header.kind) {
            if self.network.handle_frame(now, &frame) {
                return Ok(());
            }
            // It may have introduced its sender.
            self.settle(now);
        }
        if !self.logins.handle_frame(now, &frame) {
            frame.check_destination()?;
            self.role.handle_frame(now, &frame);
        }
        Ok(())
    }
}

/// Says what another MTU means.
fn tell_mtu(link: &str, mtu: usize) {
    if mtu < MTU_MIN {
        tracing::warn!(
            link,
            "the MTU is {mtu} now, too small: waiting until it is {MTU_MIN} or more; `ip link set \
             {link} mtu {MTU_USUAL}` sets it"
        );
    } else {
        tracing::info!(link, "the MTU is {mtu} now: ports whose frames it concerns log in anew");
    }
}

/// Whether frames of a kind may come from a service of a fabric, or introduce a neighbour.
fn is_service(kind: Kind) -> bool {
    matches!(kind, Kind::ElsRequest | Kind::ElsReply | Kind::CtReply)
}

/// Joins or leaves an address: groups are those of FIP, and others those of ports.
pub(crate) fn change(ports: &mut Ports, membership: Membership) {
    let (Membership::Join(mac) | Membership::Leave(mac)) = membership;
    let wanted = if mac.is_group() { FIP } else { FCOE };
    for (_, port) in ports.iter_mut().filter(|(index, _)| *index == wanted) {
        let changed = match membership {
            Membership::Join(mac) => port.join(mac.0),
            Membership::Leave(mac) => port.leave(mac.0),
        };
        if let Err(error) = changed {
            tracing::warn!(link = port.link().name(), "{membership:?}: {error}");
        }
    }
}

/// An encapsulated frame.
pub(crate) fn parse<'f>(frame: &Received<'f>) -> Result<Frame<'f>, Reject> {
    let head = frame.head.try_into().map_err(|_| Reject::Length)?;
    Frame::parse(head, frame.payload)
}

/// The whole frame in one run of bytes.
pub(crate) fn join<'b>(
    frame: &Received<'_>,
    buffer: &'b mut [u8; FRAME_LEN_MAX],
) -> Result<&'b [u8], Reject> {
    let (head, len) = (frame.head.len(), frame.head.len() + frame.payload.len());
    let joined = buffer.get_mut(..len).ok_or(Reject::Length)?;
    joined[..head].copy_from_slice(frame.head);
    joined[head..].copy_from_slice(frame.payload);
    Ok(joined)
}

impl<R: Role> Protocol for NPort<R> {
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &Received<'_>) {
        let handled = match port {
            FIP => self.handle_fip(now, frame),
            _ => self.handle_fcoe(now, frame),
        };
        if let Err(reject) = handled {
            self.rejects.add(reject);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.network.handle_timeout(now);
        self.settle(now);
        self.logins.handle_timeout(now);
        self.role.handle_timeout(now);
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = earliest(self.network.poll_timeout(), self.logins.poll_timeout());
        earliest(own, self.role.poll_timeout())
    }

    fn frames(&mut self, port: usize) -> impl Frames<'_> {
        let outbox = &mut self.outboxes[port];
        let role = (port == FCOE).then(|| self.role.frames());
        Composing { outbox, role, is_control: false }
    }
}

/// The frames of a port: link services first, then those of the role.
struct Composing<'d, F> {
    outbox: &'d mut Outbox,
    role: Option<F>,
    /// Whether the composed frame is one of the outbox.
    is_control: bool,
}

impl<'d, F: Frames<'d>> Frames<'d> for Composing<'d, F> {
    fn compose(&mut self, now: Instant) -> Option<Composed> {
        let control = self.outbox.compose(now);
        self.is_control = control.is_some();
        control.or_else(|| self.role.as_mut()?.compose(now))
    }

    fn write(&mut self, source: LinkMac, sink: impl FrameSink<'d>) {
        match &mut self.role {
            Some(role) if !self.is_control => role.write(source, sink),
            _ => self.outbox.write(source, sink),
        }
    }
}
