//! Obstacles on the way to a disk.

use tyche_fc::network::Network;
use tyche_fc::port::Failure;
use tyche_fc::wire::Wwn;
use tyche_fc::wire::els::Code;
use tyche_scsi::Lun;
use tyche_scsi::initiator::DiscoveryError;

use crate::n_port::NPort;
use crate::role::Role;

/// The obstacle that keeps a disk from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The interface has a fault, which names the remedy.
    Interface(String),
    /// The port of this end has no N_Port_ID yet.
    NoAddress,
    /// No forwarder of a fabric is heard.
    NoForwarder,
    /// The forwarders that are heard do not let the port of this end log in.
    NoFabricLogin,
    /// The port of the target is no neighbour.
    NotHeard,
    /// That port says that it serves no disks.
    NoTarget,
    /// It does not let this one log in; the last request that has failed, if one has.
    NoLogin(Option<(Code, Failure)>),
    /// It has no such logical unit; it has these.
    NoLun(Vec<Lun>),
    /// The logical unit can't be used.
    Unusable(DiscoveryError),
    /// The logical unit is being asked what it is.
    Asking,
}

impl Obstacle {
    /// Whether it does not go away by itself.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::NoTarget | Self::NoLun(_) | Self::Unusable(_))
    }

    /// The obstacle that keeps our port from having an address, if there is one. `trouble`: the
    /// fault of its interface.
    pub(crate) fn before_address<R: Role>(port: &NPort<R>, trouble: Option<&str>) -> Option<Self> {
        if let Some(fault) = trouble {
            return Some(Self::Interface(fault.to_owned()));
        }
        if port.address().is_none() {
            return Some(match port.network() {
                Network::Vn2vn(_) => Self::NoAddress,
                Network::Fabric(enode) if enode.has_forwarder() => Self::NoFabricLogin,
                Network::Fabric(_) => Self::NoForwarder,
            });
        }
        None
    }

    /// The obstacle that keeps our port from asking a target for a login, if there is one.
    /// `trouble`: the fault of its interface.
    pub(crate) fn before_login<R: Role>(
        port: &NPort<R>,
        trouble: Option<&str>,
        target: Wwn,
    ) -> Option<Self> {
        if let Some(obstacle) = Self::before_address(port, trouble) {
            return Some(obstacle);
        }
        match port.neighbours().find(|it| it.wwpn == target) {
            None => Some(Self::NotHeard),
            Some(neighbour) if neighbour.functions.target => None,
            // It may be known by a login only, and be asked about.
            Some(_) if !port.network().is_settled() => Some(Self::NotHeard),
            Some(_) => Some(Self::NoTarget),
        }
    }
}
