//! The options of a port on an interface.

use std::time::Duration;

use tyche_engine::Ports;
use tyche_fc::neighbour::Functions;
use tyche_fc::network::{Mode, PortConfig};
use tyche_fc::wire::{PortId, Wwn};
use tyche_numa::NumaAffinity;

use crate::interface::Interface;
use crate::n_port::{NPort, RememberAddress};
use crate::role::Role;

/// The options by which a port of Fibre Channel is opened on an interface, for initiators and
/// targets.
pub struct PortOptions {
    /// The interface.
    pub interface: Interface,
    /// The kind of its network.
    pub mode: Mode,
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The N_Port_ID that the port had before without a fabric, if that is known.
    pub recorded: Option<PortId>,
    /// Takes each N_Port_ID that it chooses, if they are recorded.
    pub remember: Option<RememberAddress>,
    /// E_D_TOV: a whole number of milliseconds. R_A_TOV is five times that.
    pub e_d_tov: Duration,
}

impl PortOptions {
    /// A port without a fabric, whose N_Port_ID is not recorded.
    pub fn new(interface: Interface, (wwpn, wwnn): (Wwn, Wwn), e_d_tov: Duration) -> Self {
        let (mode, recorded, remember) = (Mode::Vn2vn, None, None);
        Self { interface, mode, wwpn, wwnn, recorded, remember, e_d_tov }
    }

    /// The configuration of the port, with these functions.
    pub fn config(&self, functions: Functions) -> PortConfig {
        let names = (self.wwpn, self.wwnn);
        let (mode, recorded) = (self.mode, self.recorded);
        PortConfig { mode, recorded, ..PortConfig::new(names, functions, self.e_d_tov) }
    }

    /// The port with its role, and the ports of the loop that it is for.
    pub(crate) fn open<R: Role>(self, functions: Functions, role: R) -> (NPort<R>, Ports) {
        let mut port = NPort::new(self.config(functions), role);
        port.remember = self.remember;
        (port, self.interface.into_ports(&NumaAffinity::default()))
    }
}
