//! Keep Alive and Clear Virtual Link: whether a login with a forwarder lasts.

use arrayvec::ArrayVec;

use super::found::{Found, VN_PORTS_MAX, required};
use super::{Descriptor, VnPort};
use crate::bytes::Append;
use crate::{Mac, Reject, Wwn};

/// A node is still there; or a port of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The node's Ethernet address.
    pub mac: Mac,
    /// The port, if it is about one.
    pub port: Option<VnPort>,
}

/// A forwarder ends the login of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearVirtualLink {
    /// The forwarder's Ethernet address.
    pub mac: Mac,
    /// The name of the switch.
    pub name: Wwn,
    /// The ports; all of the node if there are none.
    pub ports: ArrayVec<VnPort, VN_PORTS_MAX>,
}

impl KeepAlive {
    pub(super) fn find(found: &Found<'_>) -> Result<Self, Reject> {
        Ok(Self { mac: required(found.mac)?, port: found.vn_port_if_any()? })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        Descriptor::Mac(self.mac).emit(frame);
        self.port.into_iter().for_each(|port| Descriptor::VnPort(port).emit(frame));
    }
}

impl ClearVirtualLink {
    pub(super) fn find(found: Found<'_>) -> Result<Self, Reject> {
        Ok(Self { mac: required(found.mac)?, name: required(found.name)?, ports: found.vn_ports })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        Descriptor::Mac(self.mac).emit(frame);
        Descriptor::Name(self.name).emit(frame);
        self.ports.iter().for_each(|port| Descriptor::VnPort(*port).emit(frame));
    }
}
