//! The outputs of the machine, and counters of what it ignores.

use arrayvec::ArrayVec;
use tyche_fc_wire::els::{LOGIN_LEN, Logo, Request};
use tyche_fc_wire::fip::{self, Flags, KeepAlive, LinkService, Message, Service, Solicitation};
use tyche_fc_wire::{Ethernet, FRAME_LEN_MAX, Frame, Header, Kind, Mac, PortId, Xid};

use crate::neighbour::Address;
use crate::port::{Carrier, Offer};

/// Frames that wait to be sent: no input causes as many.
const FRAMES_MAX: usize = 16;

/// A frame to be sent.
pub(super) enum Send {
    /// To all forwarders, or to one: what are you?
    Solicit(Mac),
    /// To a forwarder: a login.
    Flogi(Mac, Xid),
    /// To it: the login ends.
    Logo(Address, Mac, Xid),
    /// To it: the node is still there.
    NodeAlive(Mac),
    /// To it: the port is still there.
    PortAlive(Address, Mac),
    /// To one of the fabric's services.
    Service(Address, Mac, Sent),
}

/// A frame to a service of the fabric.
pub(super) struct Sent {
    pub(super) header: Header,
    pub(super) payload: ArrayVec<u8, LOGIN_LEN>,
}

/// Frames and inputs that had no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Frames while the link was down.
    pub down: u64,
    /// Advertisements of forwarders that do not grant addresses, or not those of a fabric.
    pub unusable: u64,
    /// Forwarders and ports for which there is no room.
    pub no_room: u64,
    /// Answers to nothing that was asked, or that came too late, and what is for other ports.
    pub unexpected: u64,
    /// Frames of the fabric's services that could not be read.
    pub malformed: u64,
    /// Our own frames that the caller did not take before the next input.
    pub undrained: u64,
}

/// See [`outputs`](crate::outputs).
pub(super) type Outputs = crate::outputs::Outputs<Send, Ignored, FRAMES_MAX>;

impl Send {
    /// Writes the frame of a node with that address, whose interface takes FCoE frames of `size`
    /// bytes; returns its link and length.
    pub(super) fn emit(
        &self,
        enode: Mac,
        size: u16,
        offer: &Offer,
        buffer: &mut [u8; FRAME_LEN_MAX],
    ) -> (Carrier, usize) {
        let mut payload = [0; LOGIN_LEN];
        let (destination, source, message) = match self {
            Self::Solicit(to) => {
                let message = Solicitation { mac: enode, name: offer.wwnn, size, fc_map: None };
                (*to, enode, Message::Solicitation(message))
            }
            Self::Flogi(to, ox_id) => {
                let len = Request::Flogi(offer.fabric_request()).emit(&mut payload);
                let header =
                    Header::request(Kind::ElsRequest, PortId::NONE, PortId::F_PORT, *ox_id);
                // The fabric is to choose the address.
                let mac = Some(Mac::default());
                let (service, payload) = (Service::Flogi, &payload[..len]);
                let service = LinkService { service, header, payload, mac };
                (*to, enode, Message::LinkRequest(service))
            }
            Self::Logo(own, to, ox_id) => {
                let logo = Request::Logo(Logo { id: own.id, wwpn: offer.wwpn });
                let len = logo.emit(&mut payload);
                let header = Header::request(Kind::ElsRequest, own.id, PortId::F_PORT, *ox_id);
                let (service, payload) = (Service::Logo, &payload[..len]);
                let service = LinkService { service, header, payload, mac: Some(own.mac) };
                (*to, enode, Message::LinkRequest(service))
            }
            Self::NodeAlive(to) => {
                (*to, enode, Message::KeepAlive(KeepAlive { mac: enode, port: None }))
            }
            Self::PortAlive(own, to) => {
                let port = fip::VnPort { mac: own.mac, id: own.id, name: offer.wwpn };
                let message = KeepAlive { mac: enode, port: Some(port) };
                (*to, own.mac, Message::KeepAlive(message))
            }
            Self::Service(own, to, Sent { header, payload }) => {
                let ethernet = Ethernet { destination: *to, source: own.mac };
                let frame = Frame { ethernet, header: *header, payload };
                return (Carrier::Fcoe, frame.emit(buffer));
            }
        };
        let ethernet = Ethernet { destination, source };
        (Carrier::Fip, fip::Frame::new(ethernet, Flags::FP, message).emit(buffer))
    }
}
