//! Discovery Solicitation and Advertisement: nodes find the forwarders of a fabric.

use super::found::{Found, required};
use super::{Descriptor, Fabric, KeepAlivePeriod};
use crate::bytes::Append;
use crate::{FcMap, Mac, Reject, Wwn};

/// Asks for forwarders; from a forwarder, for nodes and other forwarders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The sender's Ethernet address.
    pub mac: Mac,
    /// The sender's name (WWNN).
    pub name: Wwn,
    /// The longest FCoE frame that the sender takes, see [`Descriptor::Size`].
    pub size: u16,
    /// A forwarder's upper half of addresses; not from nodes.
    pub fc_map: Option<FcMap>,
}

/// A forwarder is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Its priority: the lower the number, the better.
    pub priority: u8,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The name of the switch.
    pub name: Wwn,
    /// Its fabric.
    pub fabric: Fabric,
    /// The keep alives that it wants.
    pub keep_alive: KeepAlivePeriod,
}

impl Solicitation {
    pub(super) fn find(found: &Found<'_>) -> Result<Self, Reject> {
        Ok(Self {
            mac: required(found.mac)?,
            name: required(found.name)?,
            size: required(found.size)?,
            fc_map: found.fc_map,
        })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        Descriptor::Mac(self.mac).emit(frame);
        if let Some(map) = self.fc_map {
            Descriptor::FcMap(map).emit(frame);
        }
        Descriptor::Name(self.name).emit(frame);
        Descriptor::Size(self.size).emit(frame);
    }
}

impl Advertisement {
    pub(super) fn find(found: &Found<'_>) -> Result<Self, Reject> {
        Ok(Self {
            priority: required(found.priority)?,
            mac: required(found.mac)?,
            name: required(found.name)?,
            fabric: required(found.fabric)?,
            keep_alive: required(found.keep_alive)?,
        })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        Descriptor::Priority(self.priority).emit(frame);
        Descriptor::Mac(self.mac).emit(frame);
        Descriptor::Name(self.name).emit(frame);
        Descriptor::Fabric(self.fabric).emit(frame);
        Descriptor::KeepAlive(self.keep_alive).emit(frame);
    }
}
