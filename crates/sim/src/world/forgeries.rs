//! Made-up frames, from the knowledge of a listener on the segments.

use std::time::Duration;

use tyche_proto::{Instant, Outgoing, Rules};
use tyche_wire::{
    Accept, ChannelId, Connect, ConnectFlags, Content, Control, Cookie, Discover, Fence, Flags,
    Geometry, HEAD_LEN, Header, Hello, Kind, Mac, Offer, Reason, Rejection, Reset, ResetToken, Tag,
    Text, Ticket, Versions,
};

use super::World;
use super::recorder::Flow;
use crate::host::uuid;
use crate::random::Random;

/// Age at which a ticket is out of date.
pub(super) const STALE: Duration = Duration::from_secs(5);
/// Age at which no answer to a question or an attempt is awaited any more, even after a freeze.
const FORGOTTEN: Duration = Duration::from_secs(8);
/// Reasons of forged Rejects.
pub(super) const REASONS: [Reason; 5] =
    [Reason::SessionLost, Reason::Held, Reason::ReadOnly, Reason::UnknownExport, Reason::Cloned];

/// The kinds of forgeries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Forgery {
    /// No forgery: an exact copy.
    Repeat,
    /// A copy from another source, or to another destination.
    RepeatElsewhere,
    Reset,
    Disconnect,
    Fence,
    Keepalive,
    /// A frame of a channel, correct except for the source, the cookie or the link.
    Alien,
    Connect,
    Accept,
    Reject,
    Hello,
    Discover,
    Offer,
    // Only among hosts and targets with keys:
    Mutant,
    Ahead,
    Verdict,
    Imposter,
    Bid,
    Lure,
    Token,
}

impl Forgery {
    pub(super) const ALL: [Self; 16] = [
        Self::Repeat,
        Self::Repeat,
        Self::RepeatElsewhere,
        Self::Reset,
        Self::Disconnect,
        Self::Fence,
        Self::Keepalive,
        Self::Alien,
        Self::Alien,
        Self::Connect,
        Self::Connect,
        Self::Accept,
        Self::Reject,
        Self::Hello,
        Self::Discover,
        Self::Offer,
    ];
    pub(super) const OF_KEYED: [Self; 23] = [
        Self::Repeat,
        Self::Repeat,
        Self::RepeatElsewhere,
        Self::Reset,
        Self::Disconnect,
        Self::Fence,
        Self::Keepalive,
        Self::Alien,
        Self::Hello,
        Self::Discover,
        Self::Offer,
        Self::Mutant,
        Self::Mutant,
        Self::Mutant,
        Self::Ahead,
        Self::Ahead,
        Self::Verdict,
        Self::Verdict,
        Self::Imposter,
        Self::Bid,
        Self::Bid,
        Self::Lure,
        Self::Token,
    ];
    pub(super) const REPEATS: [Self; 3] = [Self::Repeat, Self::Repeat, Self::RepeatElsewhere];
}

/// A frame, and the segment that it is for.
pub(super) type Forged = (usize, Vec<u8>);

/// Addresses of a frame: destination and source.
pub(super) type Route = (Mac, Mac);

/// A control PDU as it was heard.
pub(super) struct Heard {
    pub(super) at: Instant,
    pub(super) segment: usize,
    pub(super) route: Route,
    pub(super) control: Control,
}

pub(super) fn make(route: Route, header: Header, control: Option<Control>) -> Vec<u8> {
    let content = control.map_or(Content::Empty, Content::Control);
    Outgoing { destination: route.0, header, content, ..Outgoing::new() }.to_bytes(route.1, &[])
}

pub(super) fn outside(route: Route, flags: Flags, control: Control) -> Vec<u8> {
    make(route, Header { flags, ..Header::new(control.kind()) }, Some(control))
}

/// The forger's own address.
pub(super) fn own(segment: usize) -> Mac {
    Mac([2, 0, 0, 0xfe, 0, segment as u8])
}

/// Inverts `bits` in one byte of a ticket. A host may have taken such a ticket from a forged Hello
/// for its Connect: forged Connects invert other bits than Hellos do, or they would restore it.
fn spoil(ticket: &mut Ticket, random: &mut Random, bits: u8) {
    ticket.0[random.below(Ticket::LEN as u64) as usize] ^= bits;
}

/// The header of the next frame of a channel, outside of its rings.
pub(super) fn next(flow: &Flow, kind: Kind) -> Header {
    let mut header = Header { kind, flags: Flags::NONE, ..flow.header };
    header.packet.0 += 1;
    header.position.0 = 0;
    header
}

impl<R: Rules> World<R> {
    pub(super) fn compose(&mut self, forgery: Forgery) -> Option<Forged> {
        match forgery {
            Forgery::Repeat => self.repeat(),
            Forgery::RepeatElsewhere => self.repeat_elsewhere(),
            Forgery::Reset => self.forge_reset(),
            Forgery::Disconnect => self.forge_farewell(),
            Forgery::Fence => self.forge_fence(),
            Forgery::Keepalive => {
                let flow = self.draw_flow()?;
                let header = Header { flags: Flags::ACK_REQUEST, ..next(&flow, Kind::Keepalive) };
                Some((flow.segment, make((flow.destination, flow.source), header, None)))
            }
            Forgery::Alien => self.forge_alien(),
            Forgery::Connect => self.forge_connect(),
            Forgery::Accept | Forgery::Reject => self.forge_answer(forgery),
            Forgery::Hello => self.forge_hello(),
            Forgery::Discover => self.forge_discover(),
            Forgery::Offer => self.forge_offer(),
            Forgery::Mutant => self.forge_mutant(),
            Forgery::Ahead => self.forge_ahead(),
            Forgery::Verdict => self.forge_verdict(),
            Forgery::Imposter => self.forge_imposter(),
            Forgery::Bid => self.forge_bid(),
            Forgery::Lure => self.forge_lure(),
            Forgery::Token => self.forge_token(),
        }
    }

    pub(super) fn draw_flow(&mut self) -> Option<Flow> {
        self.others.recorder.flow(&mut self.others.random)
    }

    /// Draws one of the control PDUs of a kind that were heard.
    pub(super) fn draw_control(&mut self, kind: Kind) -> Option<Heard> {
        let others = &mut self.others;
        let (recorded, control) = others.recorder.control(&mut others.random, kind)?;
        let route = (Mac::destination(recorded.head()), Mac::source(recorded.head()));
        Some(Heard { at: recorded.at, segment: recorded.segment, route, control })
    }

    /// Draws an interface, by segment and address.
    fn draw_interface(&mut self) -> Option<(usize, Mac)> {
        let port = self.network.draw_port(&mut self.others.random, None)?;
        Some((self.network.segment(port), self.network.mac(port)))
    }

    pub(super) fn repeat(&mut self) -> Option<Forged> {
        let found = self.others.recorder.draw(&mut self.others.random, self.now)?;
        Some((found.segment, found.frame.to_vec()))
    }

    fn repeat_elsewhere(&mut self) -> Option<Forged> {
        let (mut segment, mut frame) = self.repeat()?;
        let (there, mac) = self.draw_interface()?;
        match self.others.random.below(3) {
            0 => frame[6..12].copy_from_slice(&own(segment).0),
            1 => {
                segment = there;
                frame[..6].copy_from_slice(&mac.0);
            }
            _ => segment = there,
        }
        Some((segment, frame))
    }

    fn forge_reset(&mut self) -> Option<Forged> {
        let flow = self.draw_flow().filter(|flow| flow.to_target)?;
        let Header { cookie, channel, .. } = flow.header;
        let token = ResetToken::default();
        let reset = Control::Reset(Reset { cookie, channel, token, target: uuid(3, 0) });
        Some((flow.segment, outside((flow.source, flow.destination), Flags::NONE, reset)))
    }

    fn forge_farewell(&mut self) -> Option<Forged> {
        let flow = self.draw_flow()?;
        let header = next(&flow, Kind::Disconnect);
        if flow.to_target && !self.plan.keyed {
            self.others.recorder.farewells.insert((header.cookie.0, header.packet.0));
        }
        Some((flow.segment, make((flow.destination, flow.source), header, None)))
    }

    fn forge_fence(&mut self) -> Option<Forged> {
        let flow = self.draw_flow().filter(|flow| flow.to_target)?;
        let other = self.draw_flow().filter(|flow| flow.to_target)?;
        let random = &mut self.others.random;
        let tags = random.below(4);
        let mut tag = || Tag { slot: random.below(4) as u16, generation: random.below(8) as u16 };
        let tags = (0..tags).map(|_| tag()).collect();
        let Header { cookie, channel, .. } = other.header;
        let fence = Control::Fence(Fence { cookie, channel, tags });
        let route = (flow.destination, flow.source);
        Some((flow.segment, make(route, next(&flow, Kind::Fence), Some(fence))))
    }

    /// Makes the next frame of a channel, correct except for one field.
    fn forge_alien(&mut self) -> Option<Forged> {
        let flow = self.draw_flow()?;
        let place = self.draw_interface()?;
        let (_, mut frame) = self.repeat_of_channel()?;
        let (mut segment, mut destination, mut source) =
            (flow.segment, flow.destination, flow.source);
        let head: &[u8; HEAD_LEN] = frame.first_chunk().expect("a head");
        let mut header = Header::parse(head).ok()?;
        (header.channel, header.cookie) = (flow.header.channel, flow.header.cookie);
        header.packet.0 = flow.header.packet.0 + 1;
        (header.acks, header.window) = (flow.header.acks, flow.header.window);
        if header.ring().is_some() {
            header.position.0 = header.position.0.wrapping_add(1);
        }
        match self.others.random.below(3) {
            0 => source = own(segment),
            1 => header.cookie = Cookie(self.others.random.next()),
            _ if place == (segment, destination) => return None,
            _ => (segment, destination) = place,
        }
        frame[..6].copy_from_slice(&destination.0);
        frame[6..12].copy_from_slice(&source.0);
        header.emit(frame.first_chunk_mut().expect("a head"));
        Some((segment, frame))
    }

    fn repeat_of_channel(&mut self) -> Option<Forged> {
        let (segment, frame) = self.repeat()?;
        let header = Header::parse(frame.first_chunk().expect("a head")).ok()?;
        header.kind.on_channel().then_some((segment, frame))
    }

    /// Makes a Connect with a ticket that is not good, or not for its source.
    fn forge_connect(&mut self) -> Option<Forged> {
        // The stranger may hear what is for others. A Connect to another address that it hears is
        // one to itself, with a ticket that is good.
        let place = self.draw_interface();
        let place = place.filter(|&(segment, mac)| !self.network.is_overheard(segment, mac));
        let Heard { at, mut segment, route, control } = self.draw_control(Kind::Connect)?;
        let Control::Connect(mut connect) = control else { return None };
        let (mut destination, mut source) = route;
        let is_stale = self.now.since(at) > STALE;
        let random = &mut self.others.random;
        match random.below(4) {
            0 => source = own(segment),
            1 => {
                let (there, mac) = place.filter(|&place| place != (segment, destination))?;
                (segment, destination) = (there, mac);
            }
            2 => spoil(&mut connect.ticket, random, 2),
            _ if is_stale => {}
            _ => return None,
        }
        if random.chance(0.7) {
            connect.attempt = random.next();
        }
        match random.below(5) {
            0 => connect.session = uuid(2, random.next() | 1 << 63),
            1 => connect.flags.set(ConnectFlags::RESUME, random.chance(0.5)),
            2 => connect.cookie = Cookie(random.next() | 1),
            3 => connect.channel = ChannelId(random.below(4) as u16),
            _ => {}
        }
        Some((segment, outside((destination, source), Flags::NONE, Control::Connect(connect))))
    }

    /// Makes an answer to an attempt that is over, or from another address.
    fn forge_answer(&mut self, forgery: Forgery) -> Option<Forged> {
        let Heard { at, segment, route, control } = self.draw_control(Kind::Connect)?;
        let Control::Connect(connect) = control else { return None };
        let (mut source, destination) = route;
        let mut attempt = connect.attempt;
        let random = &mut self.others.random;
        match random.below(3) {
            // After a forged Offer the host may ask that address, and it could answer.
            0 if source != own(segment) => source = own(segment),
            1 => attempt = random.next(),
            _ if self.now.since(at) > FORGOTTEN => {}
            _ => return None,
        }
        let (versions, detail) = (Versions::OURS, Text::EMPTY);
        let reason = random.pick(&REASONS);
        let rejection = Rejection { attempt, versions, reason, target: connect.target, detail };
        let answer = match forgery {
            Forgery::Reject => Control::Reject(rejection),
            _ => Control::Accept(accept(&connect, attempt, random.next())),
        };
        Some((segment, outside((destination, source), Flags::NONE, answer)))
    }

    fn forge_hello(&mut self) -> Option<Forged> {
        let Heard { segment, route, control, .. } = self.draw_control(Kind::Hello)?;
        let Control::Hello(hello) = control else { return None };
        let (destination, mut source) = route;
        let random = &mut self.others.random;
        let is_answer = hello.ticket != Ticket::NONE;
        let flags = if is_answer { Flags::REPLY } else { Flags::NONE };
        let nonce = if random.chance(0.5) { hello.nonce } else { random.next() };
        let mut ticket = hello.ticket;
        if is_answer {
            spoil(&mut ticket, random, 1);
        } else if random.chance(0.5) {
            source = own(segment);
        }
        let hello = Control::Hello(Hello { nonce, ticket, ..hello });
        Some((segment, outside((destination, source), flags, hello)))
    }

    fn forge_discover(&mut self) -> Option<Forged> {
        let Heard { segment, route, control, .. } = self.draw_control(Kind::Discover)?;
        let Control::Discover(mut discover) = control else { return None };
        let (destination, mut source) = route;
        let random = &mut self.others.random;
        if random.chance(0.5) {
            // A short question, which may get no long answer.
            (source, discover.padding) = (own(segment), 0);
            discover.nonce = !discover.nonce;
        }
        let first = random.below(2) as u16;
        let discover = Control::Discover(Discover { first, ..discover });
        Some((segment, outside((destination, source), Flags::NONE, discover)))
    }

    /// Makes an Offer that answers no Discover, or one of the right disk at a false address.
    fn forge_offer(&mut self) -> Option<Forged> {
        let Heard { segment, route, control, .. } = self.draw_control(Kind::Offer)?;
        let Control::Offer(offer) = control else { return None };
        let (destination, mut source) = route;
        let random = &mut self.others.random;
        let offer = if random.chance(0.5) {
            let mut offer = Offer { nonce: random.next(), target: uuid(3, 66), ..offer };
            offer.exports.iter_mut().for_each(|export| export.uuid = uuid(4, 66));
            offer
        } else {
            source = own(segment);
            offer
        };
        Some((segment, outside((destination, source), Flags::NONE, Control::Offer(offer))))
    }
}

/// The Accept of a target that does not exist.
pub(super) fn accept(connect: &Connect, attempt: u64, random: u64) -> Accept {
    Accept {
        attempt,
        target: connect.target,
        generation: uuid(9, random),
        export: connect.export,
        geometry: Geometry::new(1 << 20, 512),
        cookie: Cookie(random),
        channel: ChannelId(random as u16 & 3),
        queue_size: connect.queue_size,
        rings: connect.rings,
        frame_len: connect.frame_len,
        damq_pages: connect.damq_pages.max(256),
        checksum: false,
        stages: false,
        block_status: false,
        keep_alive_ms: connect.keep_alive_ms,
    }
}
