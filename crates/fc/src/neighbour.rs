//! The events of a port, and the neighbours that they name.

use tyche_fc_wire::{Mac, PortId, Wwn};

/// A change of the port itself, or of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The port has this N_Port_ID, and sends and receives at this address. To be recorded for the
    /// next start.
    Claimed(PortId, Mac),
    /// The port has it no longer: all that depends on it has ended. All neighbours are gone by now.
    Released(PortId),
    /// A neighbour is present. Logins may begin.
    Appeared(Neighbour),
    /// A neighbour is present no longer, or is another than before.
    Gone(Neighbour),
}

/// Another port, as it has claimed its N_Port_ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The N_Port_ID that it has claimed.
    pub id: PortId,
    /// The address of its interface, where its FIP frames go.
    pub enode: Mac,
    /// The longest FCoE frame that it takes, in bytes, without the Ethernet header.
    pub fcoe_len_max: u16,
    /// The functions that it says it has.
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
