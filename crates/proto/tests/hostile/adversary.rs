//! What an eavesdropper knows: frames, and from them the channels, their cookies and numbers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tyche_proto::Instant;
use tyche_proto::wire::{
    Body, ChannelId, Connect, Control, Cookie, Entry, Flags, Frame, Header, Kind, Mac,
    PacketNumber, Ticket,
};

use super::frames::split;
use super::ledger::Ledger;
use super::world::{HOSTS, LINKS, STRANGERS, TARGETS, Victim};

/// Frames that the adversary remembers in their order.
const HEARD_MAX: usize = 32;
/// Channels that it remembers.
const CHANNELS_MAX: usize = 24;
/// Slots whose uses it follows.
pub(crate) const SLOTS: usize = 16;

/// How long a ticket is good for. PROTOCOL.md, "Tickets".
const TICKET_LIFE: Duration = Duration::from_secs(5);

/// One direction of a channel, as its frames show it.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) to_target: bool,
    pub(crate) link: usize,
    pub(crate) channel: ChannelId,
    pub(crate) cookie: Cookie,
    /// Whose address frames have.
    pub(crate) from: Mac,
    /// It is the good host's.
    is_good: bool,
    pub(crate) packet: PacketNumber,
    /// The next positions.
    pub(crate) next: [u32; 2],
    pub(crate) acks: [u32; 2],
    /// The last uses of slots.
    pub(crate) generations: [u16; SLOTS],
}

/// The knowledge of the adversary: frames that it has heard, and the channels, tickets and attempts
/// that they show. It also tells which of its own frames are forgeries that the victim cannot
/// detect.
pub(crate) struct Adversary {
    /// The last frames, with their links.
    heard: VecDeque<(usize, Vec<u8>)>,
    /// The last frame of each kind, to the target and to the host.
    of_kind: BTreeMap<(bool, u8), (usize, Vec<u8>)>,
    pub(crate) ways: Vec<Way>,
    /// By address and link: what the target has answered.
    pub(crate) tickets: HashMap<(Mac, usize), Ticket>,
    /// When each ticket was handed out, with address and link.
    issued: HashMap<(Mac, usize, [u8; Ticket::LEN]), Instant>,
    /// Attempts to connect that were its own.
    pub(crate) attempts: u64,
    /// The good host's connects, by attempt.
    connects: HashMap<u64, Connect>,
    /// Attempts of its own in the good host's session.
    borrowed: Vec<u64>,
    /// The number of the question that the good host has asked last.
    pub(crate) nonce: u64,
}

/// What a frame says, if it is one.
fn parse(frame: &[u8]) -> Option<Frame<'_>> {
    let (head, payload) = split(frame)?;
    Frame::parse(head, payload).ok()
}

/// What a frame says that belongs to no channel, or fences one.
fn control_of(frame: &[u8]) -> Option<Control> {
    match parse(frame)?.body {
        Body::Control(pdu) => Some(pdu.decode()),
        _ => None,
    }
}

/// The header of a frame, whose payload may be sealed.
pub(crate) fn header_of(frame: &[u8]) -> Option<Header> {
    Header::parse(split(frame)?.0).ok()
}

/// The attempt and the ticket of a connect, which may be sealed.
pub(crate) fn attempt_of(frame: &[u8]) -> Option<(u64, Ticket)> {
    match control_of(frame)? {
        Control::Connect(connect) => Some((connect.attempt, connect.ticket)),
        Control::SealedConnect(connect) => Some((connect.attempt, connect.ticket)),
        _ => None,
    }
}

pub(crate) fn connect_of(frame: &[u8]) -> Option<Connect> {
    match control_of(frame)? {
        Control::Connect(connect) => Some(connect),
        _ => None,
    }
}

fn addresses(frame: &[u8]) -> (Mac, Mac) {
    split(frame).map_or((STRANGERS[0], STRANGERS[0]), |(head, _)| {
        (Mac::destination(head), Mac::source(head))
    })
}

impl Adversary {
    pub(crate) fn new() -> Self {
        Self {
            heard: VecDeque::new(),
            of_kind: BTreeMap::new(),
            ways: Vec::new(),
            tickets: HashMap::new(),
            issued: HashMap::new(),
            attempts: 0,
            connects: HashMap::new(),
            borrowed: Vec::new(),
            nonce: 0,
        }
    }

    /// A frame goes over a link.
    pub(crate) fn hear(&mut self, now: Instant, link: usize, frame: &[u8], ledger: &Ledger) {
        let (dst, src) = addresses(frame);
        let to_target = src == HOSTS[link];
        let Some(header) = header_of(frame) else { return };
        self.of_kind.insert((to_target, header.kind as u8), (link, frame.to_vec()));
        if self.heard.len() == HEARD_MAX {
            self.heard.pop_front();
        }
        self.heard.push_back((link, frame.to_vec()));
        let Some(parsed) = parse(frame) else {
            self.learn(to_target, (link, src), (header.channel, header.cookie), true);
            self.follow_header(&header);
            return;
        };
        match control_of(frame) {
            Some(Control::Connect(connect)) => {
                let peer = (link, TARGETS[link]);
                self.learn(false, peer, (connect.channel, connect.cookie), true);
                self.connects.insert(connect.attempt, connect);
            }
            Some(Control::Accept(accept)) => {
                let is_good = ledger.attempts.contains(&accept.attempt)
                    || self.borrowed.contains(&accept.attempt);
                self.learn(true, (link, dst), (accept.channel, accept.cookie), is_good);
            }
            Some(Control::Hello(hello)) if parsed.header.flags == Flags::REPLY => {
                self.tickets.insert((dst, link), hello.ticket);
                self.issued.insert((dst, link, hello.ticket.0), now);
            }
            Some(Control::Discover(discover)) => self.nonce = discover.nonce,
            _ => {}
        }
        self.follow(&parsed);
    }

    fn learn(
        &mut self,
        to_target: bool,
        (link, from): (usize, Mac),
        (channel, cookie): (ChannelId, Cookie),
        is_good: bool,
    ) {
        if self.ways.iter().any(|way| (way.channel, way.cookie) == (channel, cookie)) {
            return;
        }
        if self.ways.len() == CHANNELS_MAX {
            self.ways.remove(0);
        }
        self.ways.push(Way {
            to_target,
            link,
            channel,
            cookie,
            from,
            is_good,
            packet: PacketNumber(0),
            next: [0; 2],
            acks: [0; 2],
            generations: [0; SLOTS],
        });
    }

    /// Keeps the numbers of a channel that a header shows.
    fn follow_header(&mut self, header: &Header) -> Option<&mut Way> {
        let named = |way: &&mut Way| (way.channel, way.cookie) == (header.channel, header.cookie);
        let way = self.ways.iter_mut().find(named)?;
        way.packet = way.packet.max(header.packet);
        way.acks = header.acks.map(|ack| ack.0);
        if let Some(ring) = header.ring() {
            way.next[ring as usize] = header.position.0.wrapping_add(1);
        }
        Some(way)
    }

    /// Keeps the numbers of a channel.
    fn follow(&mut self, frame: &Frame<'_>) {
        let Some(way) = self.follow_header(&frame.header) else { return };
        if let Body::Entries { entries, .. } = &frame.body {
            for entry in entries.iter() {
                let tag = match entry {
                    Entry::Command(command) => command.tag,
                    Entry::Data(data) => data.tag,
                    Entry::Completion(completion) => completion.tag,
                    Entry::Event(_) | Entry::Credit(_) => continue,
                };
                if let Some(generation) = way.generations.get_mut(usize::from(tag.slot)) {
                    *generation = tag.generation;
                }
            }
        }
    }

    /// It has sent a frame itself.
    pub(crate) fn note_own(&mut self, frame: &[u8]) {
        let Some(parsed) = parse(frame) else { return };
        if let Some(connect) = connect_of(frame)
            && self.connects.values().any(|good| good.session == connect.session)
        {
            self.borrowed.push(connect.attempt);
        }
        self.follow(&parsed);
    }

    /// Whether a frame of its own speaks in the name of the good host or of its target where only
    /// they can: on one of their channels, with its cookie, and from the peer's address; or in an
    /// attempt to connect that is theirs, from its address and with its ticket.
    pub(crate) fn forges(
        &self,
        victim: Victim,
        link: usize,
        frame: &[u8],
        ledger: &Ledger,
    ) -> bool {
        let (_, src) = addresses(frame);
        let Some(parsed) = parse(frame) else { return false };
        let header = &parsed.header;
        if header.kind.on_channel() {
            let speaks = |way: &&Way| {
                way.to_target == (victim == Victim::Target)
                    && (way.link, way.from) == (link, src)
                    && (way.channel, way.cookie) == (header.channel, header.cookie)
            };
            return self.ways.iter().find(speaks).is_some_and(|way| way.is_good);
        }
        let connect = connect_of(frame).filter(|it| ledger.attempts.contains(&it.attempt));
        connect.is_some_and(|it| {
            src == HOSTS[link] && self.connects.get(&it.attempt).is_none_or(|good| *good != it)
        })
    }

    /// Whether a frame on that link, which is a connect, shows a ticket that its sender was given
    /// lately.
    pub(crate) fn has_ticket(&self, now: Instant, link: usize, frame: &[u8]) -> bool {
        let (_, src) = addresses(frame);
        let ticket = attempt_of(frame).map_or([0; Ticket::LEN], |(_, ticket)| ticket.0);
        self.issued.get(&(src, link, ticket)).is_some_and(|&at| now.since(at) < TICKET_LIFE)
    }

    /// A frame that was heard: one of the last, or the last of a kind.
    pub(crate) fn recall(&self, recent: bool, index: usize) -> Option<(usize, Vec<u8>)> {
        if recent {
            return self.heard.iter().rev().nth(index % HEARD_MAX).cloned();
        }
        self.of_kind.values().nth(index % self.of_kind.len().max(1)).cloned()
    }

    /// The last frame of a kind, to the target or to the host.
    pub(crate) fn last(&self, to_target: bool, kind: Kind) -> Option<&[u8]> {
        self.of_kind.get(&(to_target, kind as u8)).map(|(_, frame)| &**frame)
    }

    /// The attempt of the last connect of the good host.
    pub(crate) fn attempt(&self) -> Option<u64> {
        let last = |kind| Some(attempt_of(self.last(true, kind)?)?.0);
        last(Kind::Connect).or_else(|| last(Kind::SealedConnect))
    }

    /// The last control frame of a kind, as it reads.
    pub(crate) fn last_control(&self, to_target: bool, kind: Kind) -> Option<Control> {
        control_of(self.last(to_target, kind)?)
    }
}

/// Addresses that a frame may come from.
pub(crate) fn sources(link: usize) -> [Mac; 6] {
    let other = (link + 1) % LINKS;
    [HOSTS[link], TARGETS[link], STRANGERS[0], STRANGERS[1], HOSTS[other], TARGETS[other]]
}
