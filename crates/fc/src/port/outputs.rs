//! The outputs of the logins, and counters of what they ignore.

use std::collections::VecDeque;

use tyche_fc_wire::els::{Code, LOGIN_LEN, Rejection, Reply, Request};
use tyche_fc_wire::fip::{self, Flags, LinkService, Message};
use tyche_fc_wire::{Ethernet, FRAME_LEN_MAX, Frame, Header, Kind, Mac, Wwn};

use super::peer::Login;
use super::way::Way;
use crate::neighbour::{Address, NEIGHBOURS_MAX};

/// Frames that wait to be sent: one for each timer that expires at the same time.
const FRAMES_MAX: usize = NEIGHBOURS_MAX + 1;

/// A change of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Commands may go where the functions say. Comes again if more is agreed.
    LoggedIn(Login),
    /// The login has ended, and with it all its exchanges. To be confirmed with
    /// [`drained`](super::Logins::drained), when nothing of them is at work any more: before that
    /// there is no other login of the port.
    LoggedOut(Wwn, Cause),
    /// An attempt has failed. There will be another.
    Failed(Wwn, Code, Failure),
}

/// The reason for the end of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The neighbour is gone, or our address.
    Gone,
    /// The other end has logged out.
    Logout,
    /// The other end begins anew: it may have been restarted.
    Anew,
    /// Our user has asked for it.
    User,
}

/// The reason for the failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer, also to repetitions.
    Silence,
    /// The other end refuses.
    Refused(Rejection),
    /// The answer is not usable, such as one of another port or without class 3.
    Unusable,
}

/// The kind of frames that a frame belongs to, each of which has a link of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The FCoE Initialization Protocol.
    Fip,
    /// Encapsulated frames.
    Fcoe,
}

/// Frames that had no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Frames to another port, or before we had an address.
    pub not_ours: u64,
    /// Frames of a port that is no neighbour, or from another address or with another name.
    pub stranger: u64,
    /// Link services that could not be read.
    pub malformed: u64,
    /// Answers to nothing that was asked, or that came too late.
    pub unexpected: u64,
    /// Neighbours for which there is no room, while former ones are drained.
    pub no_room: u64,
    /// Our own frames that the caller did not take before the next input.
    pub undrained: u64,
}

/// A link service to be sent.
pub(super) struct Outgoing {
    way: Way,
    header: Header,
    payload: [u8; LOGIN_LEN],
    len: usize,
}

/// The outputs of the last input that the caller has not taken yet.
#[derive(Default)]
pub(super) struct Outputs {
    pub(super) events: VecDeque<Event>,
    frames: VecDeque<Outgoing>,
    pub(super) ignored: Ignored,
}

impl Outputs {
    /// Sends a request.
    pub(super) fn ask(&mut self, way: Way, header: Header, request: &Request<'_>) {
        self.push(way, header, |payload| request.emit(payload));
    }

    /// Answers the request with this header the way that it came.
    pub(super) fn answer(&mut self, way: Way, request: &Header, reply: &Reply) {
        let header = request.reply(Kind::ElsReply, request.rx_id);
        self.push(way, header, |payload| reply.emit(payload));
    }

    fn push(&mut self, way: Way, header: Header, emit: impl FnOnce(&mut [u8]) -> usize) {
        if self.frames.len() == FRAMES_MAX {
            self.ignored.undrained += 1;
            return;
        }
        let mut payload = [0; LOGIN_LEN];
        let len = emit(&mut payload);
        self.frames.push_back(Outgoing { way, header, payload, len });
    }

    pub(super) fn next_frame(&mut self) -> Option<Outgoing> {
        self.frames.pop_front()
    }
}

impl Outgoing {
    /// Writes the frame of a node and a port with these addresses; returns its link and length.
    pub(super) fn emit(
        &self,
        (enode, own): (Mac, &Address),
        buffer: &mut [u8; FRAME_LEN_MAX],
    ) -> (Carrier, usize) {
        let header = self.header;
        let payload = &self.payload[..self.len];
        let Way::Fip(destination, service) = self.way else {
            let ethernet = Ethernet { destination: own.of_other(header.d_id), source: own.mac };
            return (Carrier::Fcoe, Frame { ethernet, header, payload }.emit(buffer));
        };
        let is_refused = payload.first() == Some(&Code::LsRjt.to_wire());
        let mac = (!is_refused).then_some(own.mac);
        let service = LinkService { service, header, payload, mac };
        let message = match header.kind {
            Kind::ElsReply => Message::LinkReply(service),
            _ => Message::LinkRequest(service),
        };
        let ethernet = Ethernet { destination, source: enode };
        (Carrier::Fip, fip::Frame::new(ethernet, Flags::EMPTY, message).emit(buffer))
    }
}
