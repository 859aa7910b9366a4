//! The initiators that are logged in.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_fc_wire::fcp::PreparedHead;
use tyche_fc_wire::{Ethernet, FCtl, Frame, Header, Kind, Mac, PortId, Wwn, Xid};

use tyche_time::Instant;

use super::window::Window;
use crate::port::Login;

/// Initiators send data in multiples of this many bytes, if they are those of Linux.
const SECTOR: usize = 512;

/// Exchanges that wait for their turn before memory is taken for more.
const WAITING: usize = 64;

/// Numbers of commands with an OX_ID that are taken as those of earlier ones.
const CRNS_BEHIND: u16 = 127;

/// An initiator.
pub(super) struct Nexus {
    pub(super) wwpn: Wwn,
    /// Its N_Port_ID, and ours.
    ids: (PortId, PortId),
    /// The addresses of our frames to it.
    pub(super) ethernet: Ethernet,
    /// Whether it may ask: the login is one of an initiator.
    may_ask: bool,
    /// Whether it confirms responses that ask for it.
    pub(super) confirms: bool,
    /// The most bytes of a frame's payload.
    pub(super) payload_max: usize,
    pub(super) e_d_tov: Duration,
    pub(super) r_a_tov: Duration,
    /// The head of the frames with its data.
    pub(super) data_head: PreparedHead,
    /// The number (CRN) of the last command with each OX_ID; 0 for none.
    crns: Box<[u8]>,
    /// Whether it has begun to count: those without a number are earlier ones.
    is_counting: bool,
    /// Frames of its data that may be on the way.
    pub(super) window: Window,
    /// Its writes that wait for room in the window, in order.
    pub(super) waiting: VecDeque<Xid>,
    /// Its exchanges with a frame to send, in turn.
    pub(super) ready: VecDeque<Xid>,
    /// When data of it were last taken.
    pub(super) heard: Option<Instant>,
    /// Whether it has logged out, while commands of it are with the user.
    pub(super) is_draining: bool,
}

impl Nexus {
    fn new((own, mac): (PortId, Mac), login: &Login, frames_max: u32) -> Self {
        let ethernet = Ethernet { destination: login.mac, source: mac };
        let ids = (login.id, own);
        let data = header(ids, Kind::FcpData, FCtl::READ_DATA, (Xid::NONE, Xid::NONE));
        Self {
            wwpn: login.wwpn,
            ids,
            ethernet,
            may_ask: login.functions.initiator,
            confirms: login.confirms,
            payload_max: login.payload_max,
            e_d_tov: login.e_d_tov,
            r_a_tov: login.r_a_tov,
            data_head: PreparedHead::new(ethernet, &data),
            // Not touched before the first number comes.
            crns: vec![0; 1 << u16::BITS].into(),
            is_counting: false,
            window: Window::new(frames_max),
            waiting: VecDeque::with_capacity(WAITING),
            ready: VecDeque::with_capacity(WAITING),
            heard: None,
            is_draining: false,
        }
    }

    /// Takes what it was before: the login is the same.
    fn go_on(&mut self, former: &mut Self) {
        self.crns = std::mem::take(&mut former.crns);
        self.is_counting = former.is_counting;
        (self.window, self.heard) = (former.window, former.heard);
        self.waiting = std::mem::take(&mut former.waiting);
        self.ready = std::mem::take(&mut former.ready);
    }

    /// Whether it has sent none of the data that it was asked for, for E_D_TOV.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.heard.is_none_or(|at| at + self.e_d_tov <= now)
    }

    /// Its N_Port_ID.
    pub(super) fn id(&self) -> PortId {
        self.ids.0
    }

    /// The header of a frame to it, in an exchange that it has originated.
    pub(super) fn header(&self, kind: Kind, f_ctl: FCtl, exchange: (Xid, Xid)) -> Header {
        header(self.ids, kind, f_ctl, exchange)
    }

    /// Whether a frame comes from it, and to us.
    pub(super) fn is_from(&self, frame: &Frame<'_>) -> bool {
        let Header { s_id, d_id, .. } = frame.header;
        let is_real = frame.ethernet.source == self.ethernet.destination;
        (s_id, d_id) == self.ids && is_real && self.may_ask && !self.is_draining
    }

    /// Takes the number of a command (CRN). False if it is that of the last command with the same
    /// OX_ID, or of one of those before it: the network has repeated it. Numbers count the uses of
    /// an OX_ID, from 1 to 255 and again. Initiators that don't count, or not yet, send 0.
    pub(super) fn takes(&mut self, ox_id: Xid, crn: u8) -> bool {
        if crn == 0 {
            return !self.is_counting;
        }
        self.is_counting = true;
        let last = &mut self.crns[usize::from(ox_id.0)];
        let behind = (u16::from(*last) + 255 - u16::from(crn)) % 255;
        let is_repeated = *last != 0 && behind < CRNS_BEHIND;
        *last = if is_repeated { *last } else { crn };
        !is_repeated
    }

    /// The number of frames that a burst comes in, at most.
    pub(super) fn frames(&self, len: u32) -> u32 {
        len.div_ceil(self.write_len())
    }

    /// Bytes of data in a frame of a write, but for the last.
    pub(super) fn write_len(&self) -> u32 {
        let sectors = self.payload_max & !(SECTOR - 1);
        // Payloads of any login are long enough for half of one.
        if sectors > 0 { sectors as u32 } else { SECTOR as u32 / 2 }
    }
}

fn header(
    (d_id, s_id): (PortId, PortId),
    kind: Kind,
    f_ctl: FCtl,
    (ox_id, rx_id): (Xid, Xid),
) -> Header {
    Header { kind, d_id, s_id, f_ctl, seq_id: 0, seq_cnt: 0, ox_id, rx_id, parameter: 0 }
}

/// The nexuses of logins that are good or drain, each at a place of its own. There are as many as
/// logins.
pub(super) struct Nexuses {
    places: Vec<Option<Nexus>>,
    /// Frames that the receive ring holds.
    frames_max: u32,
}

impl Nexuses {
    /// None, at a ring that holds so many frames.
    pub(super) fn new(frames_max: u32) -> Self {
        Self { places: Vec::new(), frames_max }
    }

    /// Takes a login, or what is new of it.
    pub(super) fn login(&mut self, own: (PortId, Mac), login: &Login) {
        let mut nexus = Nexus::new(own, login, self.frames_max);
        let known = self.find(login.wwpn);
        if let Some(known) = known {
            let former = &mut self[known];
            assert!(!former.is_draining, "no login before the former one is drained");
            nexus.go_on(former);
        }
        let known = known.map(usize::from);
        match known.or_else(|| self.places.iter().position(Option::is_none)) {
            Some(place) => self.places[place] = Some(nexus),
            None => self.places.push(Some(nexus)),
        }
    }

    /// The place of an initiator.
    pub(super) fn find(&self, wwpn: Wwn) -> Option<u16> {
        self.position(|it| it.wwpn == wwpn)
    }

    /// The places of some initiators, of those that drain as well.
    pub(super) fn places(&self, is_it: impl Fn(Wwn) -> bool) -> impl Iterator<Item = u16> {
        let places = (0..).zip(&self.places);
        places.filter(move |(_, it)| it.as_ref().is_some_and(|it| is_it(it.wwpn))).map(|(at, _)| at)
    }

    /// The initiator that a frame comes from.
    pub(super) fn of_frame(&self, frame: &Frame<'_>) -> Option<u16> {
        self.position(|it| it.is_from(frame))
    }

    /// An initiator that has logged out, and may be drained.
    pub(super) fn draining(&self) -> impl Iterator<Item = u16> {
        let places = (0..).zip(&self.places);
        places.filter(|(_, it)| it.as_ref().is_some_and(|it| it.is_draining)).map(|(at, _)| at)
    }

    /// Forgets one that is drained.
    pub(super) fn remove(&mut self, place: u16) -> Wwn {
        self.places[usize::from(place)].take().expect("a place that is taken").wwpn
    }

    fn position(&self, is_it: impl Fn(&Nexus) -> bool) -> Option<u16> {
        let is_there = |it: &Option<Nexus>| it.as_ref().is_some_and(&is_it);
        self.places.iter().position(is_there).map(|place| place as u16)
    }
}

impl std::ops::Index<u16> for Nexuses {
    type Output = Nexus;

    fn index(&self, place: u16) -> &Nexus {
        self.places[usize::from(place)].as_ref().expect("a place that is taken")
    }
}

impl std::ops::IndexMut<u16> for Nexuses {
    fn index_mut(&mut self, place: u16) -> &mut Nexus {
        self.places[usize::from(place)].as_mut().expect("a place that is taken")
    }
}
