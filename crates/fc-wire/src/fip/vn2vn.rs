//! Probe, Claim and Beacon: ports without a fabric choose their addresses and find each other.

use super::found::{Found, required};
use super::{Descriptor, VnPort};
use crate::bytes::Append;
use crate::{Fc4, Mac, Reject, Wwn};

/// A port and its node, in probes, their answers, and beacons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The node's Ethernet address, which frames of FIP go to.
    pub mac: Mac,
    /// The node's name (WWNN).
    pub name: Wwn,
    /// The port with the addresses that it wants or has.
    pub port: VnPort,
}

/// A port that has taken its addresses, and what can be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The port and its node.
    pub port: Port,
    /// Its protocols and functions.
    pub fc4: Fc4,
    /// The longest FCoE frame that it takes, see [`Descriptor::Size`].
    pub size: u16,
}

impl Port {
    pub(super) fn find(found: &Found<'_>) -> Result<Self, Reject> {
        Ok(Self { mac: required(found.mac)?, name: required(found.name)?, port: found.vn_port()? })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        Descriptor::Mac(self.mac).emit(frame);
        Descriptor::Name(self.name).emit(frame);
        Descriptor::VnPort(self.port).emit(frame);
    }
}

impl Claim {
    pub(super) fn find(found: &Found<'_>) -> Result<Self, Reject> {
        Ok(Self {
            port: Port::find(found)?,
            fc4: required(found.fc4)?,
            size: required(found.size)?,
        })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        self.port.emit(frame);
        Descriptor::Fc4(self.fc4).emit(frame);
        Descriptor::Size(self.size).emit(frame);
    }
}
