//! Link services in a descriptor: the frames of Fibre Channel that are sent before there is an
//! address, or to give one back.

use super::found::{Found, required};
use super::{Descriptor, Operation, Service, descriptor};
use crate::bytes::Append;
use crate::els::Code;
use crate::{Header, Kind, Mac, Reject};

/// Bytes of the longest payload of a link service in a descriptor.
pub const PAYLOAD_LEN_MAX: usize = u8::MAX as usize * 4 - descriptor::LINK_SERVICE_LEN;

/// A link service, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkService<'a> {
    /// The service.
    pub service: Service,
    /// The header of the frame; its kind is that of an extended link service.
    pub header: Header,
    /// The payload of the frame, a multiple of 4 bytes, at most [`PAYLOAD_LEN_MAX`].
    pub payload: &'a [u8],
    /// The Ethernet address of the sender's port; in a fabric the one that the node asks for, or is
    /// granted. An answer that refuses has none.
    pub mac: Option<Mac>,
}

impl<'a> LinkService<'a> {
    pub(super) fn find(operation: Operation, found: &Found<'a>) -> Result<Self, Reject> {
        let (service, header, payload) = required(found.link_service)?;
        let (wanted, may_refuse) = match operation {
            Operation::LinkReply => (Kind::ElsReply, true),
            _ => (Kind::ElsRequest, false),
        };
        if header.kind != wanted {
            return Err(Reject::Kind);
        }
        let is_refused = may_refuse && payload.first() == Some(&Code::LsRjt.to_wire());
        let mac = if is_refused { found.mac } else { Some(required(found.mac)?) };
        Ok(Self { service, header, payload, mac })
    }

    pub(super) fn emit(&self, frame: &mut Append<'_>) {
        let Self { service, header, payload, mac } = *self;
        Descriptor::LinkService { service, header, payload }.emit(frame);
        mac.into_iter().for_each(|mac| Descriptor::Mac(mac).emit(frame));
    }
}
