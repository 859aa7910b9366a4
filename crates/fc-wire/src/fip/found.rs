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
    pub(super) priority: Option<u8>,
    pub(super) mac: Option<Mac>,
    pub(super) fc_map: Option<FcMap>,
    pub(super) name: Option<Wwn>,
    pub(super) fabric: Option<Fabric>,
    pub(super) size: Option<u16>,
    pub(super) link_service: Option<(Service, Header, &'a [u8])>,
    pub(super) keep_alive: Option<KeepAlivePeriod>,
    vendor: Option<[u8; 8]>,
    pub(super) fc4: Option<Fc4>,
    pub(super) vn_ports: ArrayVec<VnPort, VN_PORTS_MAX>,
    pub(super) vlans: ArrayVec<u16, VLANS_MAX>,
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
pub(super) fn required<T>(place: Option<T>) -> Result<T, Reject> {
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
        required(self.vn_port_if_any()?)
    }
}
