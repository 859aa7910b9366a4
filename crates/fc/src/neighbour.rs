//! The address of a port, and its neighbours: how it gets the one and finds the others depends on
//! the network, the rest does not.

use std::time::Duration;

use tyche_fc_wire::fip::{FCOE_LEN_MAX, payload_within};
use tyche_fc_wire::{Fc4, FcMap, Mac, PortId, Wwn};

/// The most neighbours that are known at a time (FC-BB-6 leaves the bound to us).
pub const NEIGHBOURS_MAX: usize = 255;

/// A change of the port itself, or of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The port has this N_Port_ID, and sends and receives at this address. Without a fabric it is
    /// to be recorded for the next start.
    Claimed(Address),
    /// The port has it no longer: all that depends on it has ended. All neighbours are gone by now.
    Released(PortId),
    /// A neighbour is present. Logins may begin.
    Appeared(Neighbour),
    /// A neighbour that is present is like that now, and may have begun anew, and forgotten its
    /// login with us. Only a fabric says so: without one, such a neighbour shows it itself.
    Doubtful(Neighbour),
    /// A neighbour is present no longer, or is another than before.
    Gone(Neighbour),
}

/// The address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its N_Port_ID.
    pub id: PortId,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The fabric that has given it; `None` if the port has chosen it.
    pub fabric: Option<Fabric>,
}

/// A fabric, as a port that is logged in sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// The address of its forwarder: all frames of the port go there and come from there.
    pub forwarder: Mac,
    /// The most bytes of a frame's payload that it carries.
    pub payload_max: u16,
    /// E_D_TOV.
    pub e_d_tov: Duration,
    /// R_A_TOV.
    pub r_a_tov: Duration,
}

impl Address {
    /// One that the port has chosen itself.
    pub fn chosen(id: PortId) -> Self {
        Self { id, mac: Mac::fpma(FcMap::VN2VN, id), fabric: None }
    }

    /// The most bytes of a frame's payload, on its interface.
    pub(crate) fn payload_max(&self, interface: Interface) -> u16 {
        let own = payload_within(interface.fcoe_len_max());
        self.fabric.map_or(own, |it| it.payload_max.min(own))
    }

    /// The Ethernet address that frames to another port go to, and come from.
    pub fn of_other(&self, id: PortId) -> Mac {
        self.fabric.map_or_else(|| Self::chosen(id).mac, |it| it.forwarder)
    }
}

/// The interface of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its own address.
    pub mac: Mac,
    /// Its MTU, in bytes.
    pub mtu: usize,
}

impl Interface {
    /// The identity of the port for others on the network: its address, and the longest frame
    /// that it takes, by which others have logged in.
    pub(crate) fn identity(&self) -> (Mac, u16) {
        (self.mac, self.fcoe_len_max())
    }

    /// The longest FCoE frame that it takes, in bytes, without the Ethernet header.
    pub(crate) fn fcoe_len_max(&self) -> u16 {
        u16::try_from(self.mtu).unwrap_or(FCOE_LEN_MAX).min(FCOE_LEN_MAX)
    }
}

/// A change of the addresses that the port receives frames to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// To be joined, before frames are sent.
    Join(Mac),
    /// To be left.
    Leave(Mac),
}

/// Another port, as it has claimed its N_Port_ID, or as the fabric knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node, if that is known.
    pub wwnn: Option<Wwn>,
    /// Its N_Port_ID.
    pub id: PortId,
    /// The address of its interface, where its FIP frames go; in a fabric that of the forwarder.
    pub enode: Mac,
    /// The longest FCoE frame that it takes, in bytes, without the Ethernet header.
    pub fcoe_len_max: u16,
    /// The functions that it may have.
    pub functions: Functions,
}

/// The functions of a port for SCSI. A port may have both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// It issues requests.
    pub initiator: bool,
    /// It serves disks.
    pub target: bool,
}

impl Functions {
    /// From the bits that claims and the name server have.
    pub(crate) fn from_bits(bits: u8) -> Self {
        Self { initiator: bits & Fc4::INITIATOR != 0, target: bits & Fc4::TARGET != 0 }
    }

    /// The same as bits.
    pub(crate) fn to_bits(self) -> u8 {
        let initiator = if self.initiator { Fc4::INITIATOR } else { 0 };
        let target = if self.target { Fc4::TARGET } else { 0 };
        initiator | target
    }
}
