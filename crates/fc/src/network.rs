//! The network that a port is on: with a fabric, or without one.

use std::time::Duration;

use tyche_fc_wire::{FRAME_LEN_MAX, Frame, PortId, Wwn, fip};
use tyche_time::Instant;

use crate::enode::{Enode, EnodeConfig};
use crate::exchange::Xids;
use crate::neighbour::{Address, Event, Functions, Interface, Membership, Neighbour};
use crate::port::Carrier;
use crate::vn2vn::{Vn2vn, Vn2vnConfig};

/// The kind of a network. The two have nothing in common on the wire, and ports of different kinds
/// do not see each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Ports choose their addresses themselves, and talk to each other.
    #[default]
    Vn2vn,
    /// Ports log in with a forwarder (FCF), and talk through it.
    Fabric,
}

/// The configuration of a port, which does not change.
#[derive(Clone, Copy, Debug)]
pub struct PortConfig {
    /// The kind of the network.
    pub mode: Mode,
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The N_Port_ID that it had before without a fabric, if that is known.
    pub recorded: Option<PortId>,
    /// Its functions.
    pub functions: Functions,
    /// E_D_TOV: a whole number of milliseconds.
    pub e_d_tov: Duration,
    /// R_A_TOV: the same.
    pub r_a_tov: Duration,
}

impl PortConfig {
    /// A port without a fabric or a recorded address, whose R_A_TOV is five times its E_D_TOV.
    pub fn new((wwpn, wwnn): (Wwn, Wwn), functions: Functions, e_d_tov: Duration) -> Self {
        let (mode, recorded, r_a_tov) = (Mode::Vn2vn, None, 5 * e_d_tov);
        Self { mode, wwpn, wwnn, recorded, functions, e_d_tov, r_a_tov }
    }
}

/// The state machine by which a port gets its address and finds its neighbours: [`Vn2vn`] or
/// [`Enode`] behind one interface, so that the users of a port do not tell them apart.
#[expect(clippy::large_enum_variant, reason = "a port has one of them")]
#[derive(Debug)]
pub enum Network {
    /// See [`Mode::Vn2vn`].
    Vn2vn(Vn2vn),
    /// See [`Mode::Fabric`].
    Fabric(Enode),
}

impl Network {
    /// A port whose link is down. `exchanges`: the numbers of its exchanges with a fabric; `seed`:
    /// random numbers follow from it.
    pub fn new(config: PortConfig, exchanges: Xids, seed: u64) -> Self {
        let PortConfig { mode, wwpn, wwnn, recorded, functions, e_d_tov, r_a_tov } = config;
        match mode {
            Mode::Vn2vn => {
                Self::Vn2vn(Vn2vn::new(Vn2vnConfig { wwpn, wwnn, recorded, functions, seed }))
            }
            Mode::Fabric => {
                let config = EnodeConfig { wwpn, wwnn, functions, e_d_tov, r_a_tov, exchanges };
                Self::Fabric(Enode::new(config))
            }
        }
    }

    /// The kind of the network.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Vn2vn(_) => Mode::Vn2vn,
            Self::Fabric(_) => Mode::Fabric,
        }
    }

    /// The address of the port, if it has one.
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Vn2vn(it) => it.address(),
            Self::Fabric(it) => it.address(),
        }
    }

    /// The interface that it has, or had last.
    pub fn interface(&self) -> Interface {
        match self {
            Self::Vn2vn(it) => it.interface(),
            Self::Fabric(it) => it.interface(),
        }
    }

    /// The neighbours that are present; none if the port has no address.
    pub fn neighbours(&self) -> Box<dyn Iterator<Item = &Neighbour> + '_> {
        match self {
            Self::Vn2vn(it) => Box::new(it.neighbours()),
            Self::Fabric(it) => Box::new(it.neighbours()),
        }
    }

    /// Whether no neighbour is missing that could be known by now. Without a fabric nobody knows.
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Vn2vn(_) => true,
            Self::Fabric(it) => it.is_settled(),
        }
    }

    /// Takes the state of the link: up, with an interface, or down.
    pub fn handle_link(&mut self, now: Instant, up: Option<Interface>) {
        match self {
            Self::Vn2vn(it) => it.handle_link(now, up),
            Self::Fabric(it) => it.handle_link(now, up),
        }
    }

    /// Leaves the network, for the end of the program, when all others are logged out.
    pub fn log_out(&mut self) {
        match self {
            // Its beacons cease.
            Self::Vn2vn(_) => {}
            Self::Fabric(it) => it.log_out(),
        }
    }

    /// Takes a frame of FIP. False if it is one between neighbours: it is for others to handle,
    /// after the events.
    pub fn handle_fip(&mut self, now: Instant, frame: &fip::Frame<'_>) -> bool {
        match self {
            Self::Vn2vn(it) => it.handle_frame(now, frame),
            Self::Fabric(it) => {
                it.handle_fip(now, frame);
                true
            }
        }
    }

    /// Takes an encapsulated frame. False if it is one between neighbours: it is for others to
    /// handle, after the events.
    pub fn handle_frame(&mut self, now: Instant, frame: &Frame<'_>) -> bool {
        match self {
            Self::Vn2vn(_) => false,
            Self::Fabric(it) => it.handle_frame(now, frame),
        }
    }

    /// Runs the timers that have expired.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Vn2vn(it) => it.handle_timeout(now),
            Self::Fabric(it) => it.handle_timeout(now),
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if there is no other input before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Vn2vn(it) => it.poll_timeout(),
            Self::Fabric(it) => it.poll_timeout(),
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Vn2vn(it) => it.poll_event(),
            Self::Fabric(it) => it.poll_event(),
        }
    }

    /// The next address to join or leave.
    pub fn poll_membership(&mut self) -> Option<Membership> {
        match self {
            Self::Vn2vn(it) => it.poll_membership(),
            Self::Fabric(it) => it.poll_membership(),
        }
    }

    /// Writes the next frame to send, from its destination address on; returns its link and length.
    pub fn poll_transmit(&mut self, buffer: &mut [u8; FRAME_LEN_MAX]) -> Option<(Carrier, usize)> {
        match self {
            Self::Vn2vn(it) => Some((Carrier::Fip, it.poll_transmit(buffer)?)),
            Self::Fabric(it) => it.poll_transmit(buffer),
        }
    }
}
