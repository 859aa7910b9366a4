//! VLAN Request and Notification: which VLANs have FCoE.

use arrayvec::ArrayVec;

use super::Descriptor;
use super::found::{Found, VLANS_MAX, required};
use crate::bytes::Append;
use crate::{Mac, Reject, Wwn};

/// Asks for the VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanRequest {
    /// The node's Ethernet address.
    pub mac: Mac,
    /// The node's name (WWNN), if it says so.
    pub name: Option<Wwn>,
}

/// The VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanNotification {
    /// The Ethernet address of the sender.
    pub mac: Mac,
    /// Their numbers, 12 bits each; 0 stands for the network without a tag.
    pub vids: ArrayVec<u16, VLANS_MAX>,
}

impl VlanRequest {
    pub(super) fn find(found: &Found<'_>) -> Result<Self, Reject> {
        Ok(Self { mac: required(found.mac)?, name: found.name })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        Descriptor::Mac(self.mac).emit(frame);
        self.name.into_iter().for_each(|name| Descriptor::Name(name).emit(frame));
    }
}

impl VlanNotification {
    pub(super) fn find(found: Found<'_>) -> Result<Self, Reject> {
        Ok(Self { mac: required(found.mac)?, vids: found.vlans })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        Descriptor::Mac(self.mac).emit(frame);
        self.vids.iter().for_each(|vid| Descriptor::Vlan(*vid).emit(frame));
    }
}
