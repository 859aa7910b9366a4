//! The descriptors of a frame, found in any order.

use arrayvec::ArrayVec;

use super::{Descriptor, DescriptorKind, Fabric, KeepAlivePeriod, Operation, Service, VnPort};
use crate::{Fc4, FcMap, Header, Mac, Reject, Wwn};

/// The most ports in one Clear Virtual Link.
pub const VN_PORTS_MAX: usize = 16;
/// The most VLANs in one notification.
pub const VLANS_MAX: usize = 64;

/// The descriptors of a frame. A message takes those that it requires.
#[derive(Default)]
pub(super) struct Found<'a> {
    priority: Option<u8>,
    mac: Option<Mac>,
    fc_map: Option<FcMap>,
    name: Option<Wwn>,
    fabric: Option<Fabric>,
    size: Option<u16>,
    link_service: Option<(Service, Header, &'a [u8])>,
    keep_alive: Option<KeepAlivePeriod>,
    vendor: Option<[u8; 8]>,
    fc4: Option<Fc4>,
    vn_ports: ArrayVec<VnPort, VN_PORTS_MAX>,
    vlans: ArrayVec<u16, VLANS_MAX>,
}

/// The types of descriptors that an operation may have, besides VENDOR.
fn allowed(operation: Operation) -> &'static [DescriptorKind] {
    use DescriptorKind::*;
    match operation {
        Operation::Solicitation => &[Mac, FcMap, Name, Size],
        Operation::Advertisement => &[Pri, Mac, Name, Fabric, Fka],
        Operation::LinkRequest | Operation::LinkReply => &[Mac, Flogi, Fdisc, Logo, Elp],
        Operation::KeepAlive => &[Mac, VnId],
        Operation::ClearVirtualLink | Operation::Beacon => &[Mac, Name, VnId],
        Operation::ProbeRequest | Operation::ProbeReply => &[Mac, Name, VnId],
        Operation::ClaimNotification | Operation::ClaimResponse => &[Mac, Name, VnId, Fc4f, Size],
        Operation::VlanRequest => &[Mac, Name],
        Operation::VlanNotification | Operation::Vn2vnVlanNotification => &[Mac, Vlan],
    }
}

/// Keeps a value that must not be there twice.
fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Reject> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Reject::DescriptorCount),
    }
}

/// A value that must be there.
fn required<T: Copy>(place: &Option<T>) -> Result<T, Reject> {
    place.ok_or(Reject::DescriptorMissing)
}

impl<'a> Found<'a> {
    /// Reads a list. Descriptors that are not the operation's are faults, unless they are unknown
    /// and may be ignored.
    pub(super) fn parse(operation: Operation, mut list: &'a [u8]) -> Result<Self, Reject> {
        let mut found = Self::default();
        while !list.is_empty() {
            let (descriptor, rest) = Descriptor::parse(list)?;
            list = rest;
            let Some(descriptor) = descriptor else { continue };
            let kind = descriptor.kind();
            if kind != DescriptorKind::Vendor && !allowed(operation).contains(&kind) {
                return Err(Reject::Descriptor);
            }
            found.keep(descriptor)?;
        }
        Ok(found)
    }

    fn keep(&mut self, descriptor: Descriptor<'a>) -> Result<(), Reject> {
        match descriptor {
            Descriptor::Priority(priority) => once(&mut self.priority, priority),
            Descriptor::Mac(mac) => once(&mut self.mac, mac),
            Descriptor::FcMap(map) => once(&mut self.fc_map, map),
            Descriptor::Name(name) => once(&mut self.name, name),
            Descriptor::Fabric(fabric) => once(&mut self.fabric, fabric),
            Descriptor::Size(size) => once(&mut self.size, size),
            Descriptor::LinkService { service, header, payload } => {
                once(&mut self.link_service, (service, header, payload))
            }
            Descriptor::KeepAlive(period) => once(&mut self.keep_alive, period),
            Descriptor::Vendor(id) => once(&mut self.vendor, id),
            Descriptor::Fc4(fc4) => once(&mut self.fc4, fc4),
            Descriptor::VnPort(port) => {
                self.vn_ports.try_push(port).map_err(|_| Reject::DescriptorCount)
            }
            Descriptor::Vlan(vid) => self.vlans.try_push(vid).map_err(|_| Reject::DescriptorCount),
        }
    }

    pub(super) fn priority(&self) -> Result<u8, Reject> {
        required(&self.priority)
    }

    pub(super) fn mac(&self) -> Result<Mac, Reject> {
        required(&self.mac)
    }

    pub(super) fn mac_if_any(&self) -> Option<Mac> {
        self.mac
    }

    pub(super) fn fc_map_if_any(&self) -> Option<FcMap> {
        self.fc_map
    }

    pub(super) fn name(&self) -> Result<Wwn, Reject> {
        required(&self.name)
    }

    pub(super) fn name_if_any(&self) -> Option<Wwn> {
        self.name
    }

    pub(super) fn fabric(&self) -> Result<Fabric, Reject> {
        required(&self.fabric)
    }

    pub(super) fn size(&self) -> Result<u16, Reject> {
        required(&self.size)
    }

    pub(super) fn link_service(&self) -> Result<(Service, Header, &'a [u8]), Reject> {
        required(&self.link_service)
    }

    pub(super) fn keep_alive(&self) -> Result<KeepAlivePeriod, Reject> {
        required(&self.keep_alive)
    }

    pub(super) fn fc4(&self) -> Result<Fc4, Reject> {
        required(&self.fc4)
    }

    /// The only port, if there is one.
    pub(super) fn vn_port_if_any(&self) -> Result<Option<VnPort>, Reject> {
        match self.vn_ports[..] {
            [] => Ok(None),
            [port] => Ok(Some(port)),
            _ => Err(Reject::DescriptorCount),
        }
    }

    /// The only port.
    pub(super) fn vn_port(&self) -> Result<VnPort, Reject> {
        required(&self.vn_port_if_any()?)
    }

    pub(super) fn vn_ports(self) -> ArrayVec<VnPort, VN_PORTS_MAX> {
        self.vn_ports
    }

    pub(super) fn vlans(self) -> ArrayVec<u16, VLANS_MAX> {
        self.vlans
    }
}
