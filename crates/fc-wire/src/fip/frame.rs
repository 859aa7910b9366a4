//! The whole frame of FIP: parsed to a message, and written from one.

use super::found::Found;
use super::header::{self, HEADER_LEN};
use super::{
    Advertisement, Claim, ClearVirtualLink, Flags, KeepAlive, LinkService, Operation, Port,
    Solicitation, VlanNotification, VlanRequest,
};
use crate::bytes::Append;
use crate::{ETHERTYPE_FIP, Ethernet, FRAME_LEN_MAX, FRAME_LEN_MIN, Reject};

/// A frame of FIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Destination and source.
    pub ethernet: Ethernet,
    /// Its flags.
    pub flags: Flags,
    /// The operation and its descriptors.
    pub message: Message<'a>,
    /// Bytes of the whole frame with its padding. [`Frame::emit`] pads to it: see
    /// [`padded_len`](super::padded_len).
    pub len: usize,
}

/// An operation with its descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// [`Operation::Solicitation`]
    Solicitation(Solicitation),
    /// [`Operation::Advertisement`]
    Advertisement(Advertisement),
    /// [`Operation::LinkRequest`]
    LinkRequest(LinkService<'a>),
    /// [`Operation::LinkReply`]
    LinkReply(LinkService<'a>),
    /// [`Operation::KeepAlive`]
    KeepAlive(KeepAlive),
    /// [`Operation::ClearVirtualLink`]
    ClearVirtualLink(ClearVirtualLink),
    /// [`Operation::VlanRequest`]
    VlanRequest(VlanRequest),
    /// [`Operation::VlanNotification`]
    VlanNotification(VlanNotification),
    /// [`Operation::Vn2vnVlanNotification`]
    Vn2vnVlanNotification(VlanNotification),
    /// [`Operation::ProbeRequest`]
    ProbeRequest(Port),
    /// [`Operation::ProbeReply`]
    ProbeReply(Port),
    /// [`Operation::ClaimNotification`]
    ClaimNotification(Claim),
    /// [`Operation::ClaimResponse`]
    ClaimResponse(Claim),
    /// [`Operation::Beacon`]
    Beacon(Port),
}

impl<'a> Frame<'a> {
    /// A frame that is no longer than its content, or than Ethernet wants.
    pub fn new(ethernet: Ethernet, flags: Flags, message: Message<'a>) -> Self {
        Self { ethernet, flags, message, len: FRAME_LEN_MIN }
    }

    /// Parses a frame from its first byte to its last, padding included.
    ///
    /// # Errors
    /// The first fault found. A frame with any fault has no effect at all.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Reject> {
        let (ethernet, rest) = Ethernet::parse(frame, ETHERTYPE_FIP)?;
        let (operation, flags, list) = header::parse(rest)?;
        let message = Message::find(operation, Found::parse(operation, list)?)?;
        Ok(Self { ethernet, flags, message, len: frame.len() })
    }

    /// Writes the frame; returns its length, which is at least `self.len` and
    /// [`FRAME_LEN_MIN`].
    ///
    /// # Panics
    /// If the payload of a link service is no multiple of 4 bytes, or too long.
    pub fn emit(&self, buffer: &mut [u8; FRAME_LEN_MAX]) -> usize {
        let (head, list) = buffer.split_at_mut(HEADER_LEN);
        let mut list = Append::new(list);
        self.message.emit(&mut list);
        let list_len = list.len();
        list.pad_to(self.len.clamp(FRAME_LEN_MIN, FRAME_LEN_MAX) - HEADER_LEN);
        let len = HEADER_LEN + list.len();
        let mut head = Append::new(head);
        self.ethernet.emit(ETHERTYPE_FIP, &mut head);
        header::emit(self.message.operation(), self.flags, list_len, &mut head);
        len
    }
}

impl<'a> Message<'a> {
    fn find(operation: Operation, found: Found<'a>) -> Result<Self, Reject> {
        Ok(match operation {
            Operation::Solicitation => Self::Solicitation(Solicitation::find(&found)?),
            Operation::Advertisement => Self::Advertisement(Advertisement::find(&found)?),
            Operation::LinkRequest => Self::LinkRequest(LinkService::find(operation, &found)?),
            Operation::LinkReply => Self::LinkReply(LinkService::find(operation, &found)?),
            Operation::KeepAlive => Self::KeepAlive(KeepAlive::find(&found)?),
            Operation::ClearVirtualLink => Self::ClearVirtualLink(ClearVirtualLink::find(found)?),
            Operation::VlanRequest => Self::VlanRequest(VlanRequest::find(&found)?),
            Operation::VlanNotification => Self::VlanNotification(VlanNotification::find(found)?),
            Operation::Vn2vnVlanNotification => {
                Self::Vn2vnVlanNotification(VlanNotification::find(found)?)
            }
            Operation::ProbeRequest => Self::ProbeRequest(Port::find(&found)?),
            Operation::ProbeReply => Self::ProbeReply(Port::find(&found)?),
            Operation::ClaimNotification => Self::ClaimNotification(Claim::find(&found)?),
            Operation::ClaimResponse => Self::ClaimResponse(Claim::find(&found)?),
            Operation::Beacon => Self::Beacon(Port::find(&found)?),
        })
    }

    /// Its operation.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Solicitation(_) => Operation::Solicitation,
            Self::Advertisement(_) => Operation::Advertisement,
            Self::LinkRequest(_) => Operation::LinkRequest,
            Self::LinkReply(_) => Operation::LinkReply,
            Self::KeepAlive(_) => Operation::KeepAlive,
            Self::ClearVirtualLink(_) => Operation::ClearVirtualLink,
            Self::VlanRequest(_) => Operation::VlanRequest,
            Self::VlanNotification(_) => Operation::VlanNotification,
            Self::Vn2vnVlanNotification(_) => Operation::Vn2vnVlanNotification,
            Self::ProbeRequest(_) => Operation::ProbeRequest,
            Self::ProbeReply(_) => Operation::ProbeReply,
            Self::ClaimNotification(_) => Operation::ClaimNotification,
            Self::ClaimResponse(_) => Operation::ClaimResponse,
            Self::Beacon(_) => Operation::Beacon,
        }
    }

    /// Appends the descriptors in the order in which they are sent.
    fn emit(&self, frame: &mut Append<'_>) {
        match self {
            Self::Solicitation(message) => message.emit(frame),
            Self::Advertisement(message) => message.emit(frame),
            Self::LinkRequest(message) | Self::LinkReply(message) => message.emit(frame),
            Self::KeepAlive(message) => message.emit(frame),
            Self::ClearVirtualLink(message) => message.emit(frame),
            Self::VlanRequest(message) => message.emit(frame),
            Self::VlanNotification(message) | Self::Vn2vnVlanNotification(message) => {
                message.emit(frame);
            }
            Self::ProbeRequest(message) | Self::ProbeReply(message) | Self::Beacon(message) => {
                message.emit(frame);
            }
            Self::ClaimNotification(message) | Self::ClaimResponse(message) => message.emit(frame),
        }
    }
}
