//! The port of an interface: its address, its neighbours and its logins, as the protocol of a loop.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_engine::{Composed, Frames, Ports, Protocol, Received, Sink};
use tyche_fc::port::{self, Carrier, Logins, LoginsConfig};
use tyche_fc::vn2vn::{self, Functions, Membership, Neighbour, Vn2vn, Vn2vnConfig};
use tyche_fc::wire::{ETHERNET_LEN, FRAME_LEN_MAX, Frame, Mac, PortId, Reject, Wwn, fip};
use tyche_link::Mac as LinkMac;
use tyche_time::{Instant, earliest};

use crate::interface::{FCOE, FIP};
use crate::lanes;
use crate::outbox::Outbox;
use crate::rejects::Rejects;
use crate::role::Role;

/// The interval at which the MTU and the address of an interface are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most notices that wait: more than a change of all neighbours causes.
const NOTICES_MAX: usize = 4 * vn2vn::NEIGHBOURS_MAX;

/// The configuration of a port, which does not change.
#[derive(Clone, Copy, Debug)]
pub struct NPortConfig {
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The N_Port_ID that it had before, if that is known.
    pub recorded: Option<PortId>,
    /// Its functions.
    pub functions: Functions,
    /// E_D_TOV: a whole number of milliseconds.
    pub e_d_tov: Duration,
    /// R_A_TOV: the same.
    pub r_a_tov: Duration,
}

impl NPortConfig {
    /// A port without a recorded address, whose R_A_TOV is five times its E_D_TOV.
    pub fn new((wwpn, wwnn): (Wwn, Wwn), functions: Functions, e_d_tov: Duration) -> Self {
        Self { wwpn, wwnn, recorded: None, functions, e_d_tov, r_a_tov: 5 * e_d_tov }
    }
}

/// Called with each N_Port_ID that a port gets, by its thread, which should not wait for long: the
/// port is to [have it again](NPortConfig::recorded) when it is started anew.
pub type RememberAddress = Box<dyn FnMut(PortId) + Send>;

/// A change that the owner of a port may want to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The address of the port, or neighbours.
    Neighbour(vn2vn::Event),
    /// A login.
    Login(port::Event),
}

/// See the module.
pub struct NPort<R: Role> {
    vn2vn: Vn2vn,
    logins: Logins<R::Rules>,
    /// The commands.
    pub role: R,
    /// Takes each N_Port_ID that it gets.
    pub(crate) remember: Option<RememberAddress>,
    outboxes: [Outbox; 2],
    notices: VecDeque<Notice>,
    rejects: Rejects,
    /// The state of the interface when it was looked at, and when to look again.
    is_down: bool,
    look_at: Instant,
    /// The frame of an outbox that is being written.
    buffer: Box<[u8; FRAME_LEN_MAX]>,
}

impl<R: Role> NPort<R> {
    /// A port whose link is down.
    pub fn new(config: NPortConfig, role: R) -> Self {
        let seed = getrandom::u64().expect("the kernel's random numbers are always there");
        Self::with_seed(config, role, seed)
    }

    /// The same; all that it draws follows from the seed.
    pub fn with_seed(config: NPortConfig, role: R, seed: u64) -> Self {
        let NPortConfig { wwpn, wwnn, recorded, functions, e_d_tov, r_a_tov } = config;
        let logins = LoginsConfig {
            wwpn,
            wwnn,
            functions,
            // No lane sends sequences again (SRR).
            retries: false,
            e_d_tov,
            r_a_tov,
            exchanges: lanes::login_xids(),
        };
        Self {
            vn2vn: Vn2vn::new(Vn2vnConfig { wwpn, wwnn, recorded, functions, seed }),
            logins: Logins::with_rules(logins, role.rules()),
            role,
            remember: None,
            outboxes: Default::default(),
            notices: VecDeque::new(),
            rejects: Rejects::default(),
            is_down: true,
            look_at: Instant::default(),
            buffer: Box::new([0; FRAME_LEN_MAX]),
        }
    }

    /// The N_Port_ID and the address of the port, if it is up.
    pub fn address(&self) -> Option<(PortId, Mac)> {
        self.vn2vn.address()
    }

    /// The neighbours that are present.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.vn2vn.neighbours()
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
        while let Some(membership) = self.vn2vn.poll_membership() {
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
            vn2vn::Interface { mac, mtu }
        });
        self.vn2vn.handle_link(now, up);
        self.settle(now);
    }

    /// Takes the outputs of all machines, until none has one. The owner calls it after a change of
    /// the role.
    pub fn settle(&mut self, now: Instant) {
        loop {
            if let Some(event) = self.vn2vn.poll_event() {
                if let vn2vn::Event::Claimed(id, mac) = event {
                    self.role.handle_address((id, mac));
                    if let Some(remember) = &mut self.remember {
                        remember(id);
                    }
                }
                self.logins.handle_neighbour(now, event, self.vn2vn.interface());
                self.note(Notice::Neighbour(event));
            } else if let Some(event) = self.logins.poll_event() {
                self.role.handle_login(now, event);
                self.note(Notice::Login(event));
            } else if let Some(wwpn) = self.role.poll_drained() {
                self.logins.drained(now, wwpn);
            } else if let Some(wwpn) = self.role.poll_restart() {
                self.logins.restart(now, wwpn);
            } else {
                break;
            }
        }
        let Self { vn2vn, logins, outboxes, buffer, .. } = self;
        while let Some(len) = vn2vn.poll_transmit(buffer) {
            outboxes[FIP].push(&buffer[..len]);
        }
        while let Some((carrier, len)) = logins.poll_transmit(buffer) {
            let port = match carrier {
                Carrier::Fip => FIP,
                Carrier::Fcoe => FCOE,
            };
            outboxes[port].push(&buffer[..len]);
        }
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
        if !self.vn2vn.handle_frame(now, &frame) {
            // It may have made its sender a neighbour.
            self.settle(now);
            // Those of a fabric are for other kinds of ports.
            self.logins.handle_fip(now, &frame);
        }
        Ok(())
    }

    fn handle_fcoe(&mut self, now: Instant, frame: &Received<'_>) -> Result<(), Reject> {
        let frame = parse(frame)?;
        if !self.logins.handle_frame(now, &frame) {
            frame.check_destination()?;
            self.role.handle_frame(now, &frame);
        }
        Ok(())
    }
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
            self.rejects.count(reject);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.vn2vn.handle_timeout(now);
        self.settle(now);
        self.logins.handle_timeout(now);
        self.role.handle_timeout(now);
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = earliest(self.vn2vn.poll_timeout(), self.logins.poll_timeout());
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
        self.is_control = self.outbox.compose();
        if self.is_control {
            return Some(Composed::default());
        }
        self.role.as_mut()?.compose(now)
    }

    fn write(&mut self, source: LinkMac, sink: impl Sink<'d>) {
        match &mut self.role {
            Some(role) if !self.is_control => role.write(source, sink),
            _ => self.outbox.write(|front, data, tail| sink.gather(front, data, tail)),
        }
    }
}
