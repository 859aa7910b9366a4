//! A channel of the breaker, and the ways in which it breaks rules on it.

use tyche_proto::{Outgoing, Rules};
use tyche_wire::{
    Accept, ChannelId, Command, CommandFlags, Completion, Connect, Content, Cookie, Data, Entry,
    EntryList, Flags, Header, Kind, Mac, Opcode, PAGE_LEN, PacketNumber, Position, Ring, Status,
    Tag, Times,
};

use crate::random::Random;

/// Limit of slots that it uses: few, so that it uses them again and again.
const SLOTS_MAX: u16 = 16;
/// Pages of a slot.
const SLOT_PAGES: u32 = 1;
/// Bytes of a write.
const LEN: u32 = 1024;
/// Ticks without an ack after which it fills positions that may be missing.
const ACK_TICKS: u32 = 6;
/// Jump of its packet numbers: farther than an old one may be behind.
const JUMP: u64 = 1 << 25;
/// Positions that it uses before it waits for acks: as many as the shortest ring has.
const ROOM: i32 = 15;
/// Limit of frames that it sends on a channel.
const FRAMES_MAX: u64 = 200;
/// Distance beyond the progress of positions and generations meanwhile: a wrong value stays wrong,
/// however late it arrives.
const MARGIN: u16 = 256;
const _: () = assert!((MARGIN as u64) > FRAMES_MAX);
/// A position that is farther ahead than any ring is long.
const FAR: u32 = 1 << 16;

/// A frame, with the requests that it begins and their stamps.
pub(super) struct Act {
    pub(super) out: Outgoing,
    pub(super) requests: Vec<(Tag, u64)>,
    /// The requests must not be executed.
    pub(super) is_forbidden: bool,
}

/// One channel of the breaker, with the state that it needs to break a rule on purpose: positions,
/// numbers and generations. [`draw`](Self::draw) composes one valid or invalid frame after the
/// other.
pub(super) struct Line {
    peer: Mac,
    own: Cookie,
    cookie: Cookie,
    channel: ChannelId,
    queue_size: u16,
    damq_pages: u32,
    rings: [u16; 2],
    generations: Vec<u16>,
    /// The next position to be used of each ring, and the first that the target lacks.
    next: [Position; 2],
    acked: [Position; 2],
    /// The first position that the target has not sent, and the first of all.
    received: [Position; 2],
    first: [Position; 2],
    /// A write whose first half it has sent, and sends again.
    half_sent: Option<Command>,
    packet: u64,
    /// The packet number before the jump, and the position of the first frame after it.
    jumped: Option<(u64, Position)>,
    /// The window that it announces.
    window: u16,
    /// It acknowledges frames.
    acks: bool,
    /// Ticks since the last progress of the target's acks.
    silence: u32,
    /// Frames that are left to send.
    left: u64,
}

impl Line {
    pub(super) fn new<R: Rules>(
        random: &mut Random,
        peer: Mac,
        connect: &Connect,
        accept: &Accept,
    ) -> Self {
        let first = [Position(R::POSITION_FIRST); 2];
        let slots = accept.queue_size.min(SLOTS_MAX);
        Self {
            peer,
            own: connect.cookie,
            cookie: accept.cookie,
            channel: accept.channel,
            queue_size: accept.queue_size,
            damq_pages: accept.damq_pages,
            rings: accept.rings,
            generations: vec![R::GENERATION_FIRST; usize::from(slots)],
            next: first,
            acked: first,
            received: first,
            first,
            half_sent: None,
            packet: 1,
            jumped: None,
            window: random.pick(&[0, 0, 1, 16, u16::MAX]),
            acks: random.chance(0.7),
            silence: 0,
            left: random.between(20, FRAMES_MAX),
        }
    }

    /// The cookie of frames to the target.
    pub(super) fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// The cookie of frames to the breaker.
    pub(super) fn own(&self) -> Cookie {
        self.own
    }

    /// The offset on the disk of the request with that tag.
    pub(super) fn place(tag: Tag) -> u64 {
        u64::from(tag.slot % SLOTS_MAX) * PAGE_LEN as u64 % (64 << 10)
    }

    /// Takes the target's acks, and notes the positions that it has sent.
    pub(super) fn hear(&mut self, header: &Header) {
        for ring in 0..2 {
            if header.acks[ring].ahead_of(self.acked[ring]) > 0 {
                self.acked[ring] = header.acks[ring];
                self.silence = 0;
            }
        }
        if let Some(ring) = header.ring()
            && header.position == self.received[ring as usize]
        {
            self.received[ring as usize] = header.position.plus(1);
        }
    }

    /// Draws the next frame; none if the channel is left.
    pub(super) fn draw(&mut self, random: &mut Random, stamps: &mut u64) -> Option<Act> {
        self.left = self.left.checked_sub(1)?;
        self.silence += 1;
        if let Some(command) = self.half_sent.take() {
            let out = self.frame(vec![part(&command, 0, LEN / 2)]);
            return Some(Act { out, requests: Vec::new(), is_forbidden: true });
        }
        if self.silence.is_multiple_of(ACK_TICKS) || self.is_full() {
            let out = self.fill_gap(random);
            return Some(Act { out, requests: Vec::new(), is_forbidden: false });
        }
        *stamps += 1;
        let stamp = *stamps;
        let opcode = random.pick(&[Opcode::Write, Opcode::Write, Opcode::WriteZeroes]);
        let tag = self.next_tag(random);
        let command = self.command(opcode, tag);
        let mut act = match random.below(10) {
            0 => self.wrong_beside(random, command),
            1 => self.too_far(random, command),
            2 => self.stale(random, command),
            3 => self.overlapping(random, command),
            4 => self.far_generation(random, command),
            5 => self.past_the_end(random, command),
            6 => self.ack_of_unsent(command),
            _ => self.honest(command),
        };
        act.requests.iter_mut().for_each(|request| request.1 = stamp);
        Some(act)
    }

    /// Takes a new generation of a slot, whether or not the one before has been answered.
    fn next_tag(&mut self, random: &mut Random) -> Tag {
        let slot = random.below(self.generations.len() as u64) as u16;
        let generation = &mut self.generations[usize::from(slot)];
        *generation = generation.wrapping_add(1);
        Tag { slot, generation: *generation }
    }

    fn command(&self, opcode: Opcode, tag: Tag) -> Command {
        let page = if opcode.has_data() { u32::from(tag.slot) * SLOT_PAGES } else { 0 };
        let (flags, offset) = (CommandFlags::NONE, Self::place(tag));
        Command { opcode, flags, tag, offset, len: LEN, damq_page: page }
    }

    fn header(&mut self, kind: Kind) -> Header {
        let packet = PacketNumber(self.packet);
        self.packet += 1;
        let acks = if self.acks { self.received } else { self.first };
        let (channel, cookie, window) = (self.channel, self.cookie, self.window);
        Header { channel, cookie, packet, acks, window, ..Header::new(kind) }
    }

    /// Makes a frame with these entries, in the next position of their ring.
    fn frame(&mut self, entries: impl IntoIterator<Item = Entry>) -> Outgoing {
        let entries: EntryList = entries.into_iter().collect();
        let has_data = entries.iter().any(|entry| matches!(entry, Entry::Data(_)));
        let kind = if has_data { Kind::Data } else { Kind::Command };
        let mut header = self.header(kind);
        header.flags.set(Flags::CHECKSUMMED, has_data);
        header.position = self.next[usize::from(has_data)];
        let content = Content::Entries(entries);
        Outgoing { destination: self.peer, header, content, ..Outgoing::new() }
    }

    /// Uses up the position of a frame.
    fn advance(&mut self, out: &Outgoing) {
        if let Some(ring) = out.header.ring() {
            let next = &mut self.next[ring as usize];
            *next = next.plus(1);
        }
    }

    /// Makes a command with all of its data.
    fn whole(command: Command) -> Vec<Entry> {
        let mut entries = vec![Entry::Command(command)];
        if command.opcode == Opcode::Write {
            entries.push(part(&command, 0, command.len));
        }
        entries
    }

    fn sent(out: Outgoing, command: Command, is_forbidden: bool) -> Act {
        Act { out, requests: vec![(command.tag, 0)], is_forbidden }
    }

    /// Makes a Void for the oldest position that the target may lack; or a sign of life.
    fn fill_gap(&mut self, random: &mut Random) -> Outgoing {
        let ring = random.pick(&Ring::BOTH);
        let position = self.acked[ring as usize];
        let lacks = self.next[ring as usize].ahead_of(position) > 0;
        let mut header = self.header(if lacks { Kind::Void } else { Kind::Keepalive });
        if lacks {
            header.position = position;
            header.flags.set(Flags::DATA_RING, ring == Ring::Data);
        }
        header.flags.set(Flags::ACK_REQUEST, true);
        Outgoing { destination: self.peer, header, ..Outgoing::new() }
    }

    /// Whether the target lacks so much that it may have no room for more.
    fn is_full(&self) -> bool {
        (0..2).any(|ring| self.next[ring].ahead_of(self.acked[ring]) >= ROOM)
    }

    /// A correct frame. But the slot's last request may not be answered yet, and the channel may be
    /// for reading only.
    fn honest(&mut self, command: Command) -> Act {
        let out = self.frame(Self::whole(command));
        self.advance(&out);
        Self::sent(out, command, false)
    }

    /// A frame whose last entry is wrong.
    fn wrong_beside(&mut self, random: &mut Random, command: Command) -> Act {
        let mut entries = Self::whole(command);
        let Tag { slot, generation } = command.tag;
        let other = Tag { slot: self.queue_size.saturating_add(slot), generation };
        let wrong = match random.below(4) {
            0 => Entry::Command(Command { tag: other, damq_page: 0, ..command }),
            1 => Entry::Command(command),
            2 => {
                let (status, times) = (Status::Success, Times::ZERO);
                Entry::Completion(Completion { tag: command.tag, status, times })
            }
            _ => {
                let (opcode, tag) = (Opcode::Read, Tag { slot: slot ^ 1, generation });
                let damq_page = self.damq_pages;
                Entry::Command(Command { opcode, tag, damq_page, ..command })
            }
        };
        entries.push(wrong);
        Self::sent(self.frame(entries), command, true)
    }

    /// A frame with a position beyond the target's ring.
    fn too_far(&mut self, random: &mut Random, command: Command) -> Act {
        let mut out = self.frame(Self::whole(command));
        let room = u32::from(self.rings[0].max(self.rings[1]));
        let near = room + u32::from(MARGIN);
        let ahead = if random.chance(0.5) { near } else { FAR << random.below(14) };
        out.header.position = out.header.position.plus(ahead);
        Self::sent(out, command, true)
    }

    /// A frame with too old a packet number, once the target has seen one that is far ahead.
    fn stale(&mut self, random: &mut Random, command: Command) -> Act {
        let Some((before, position)) = self.jumped else {
            let before = self.packet;
            self.packet += JUMP;
            let act = self.honest(self.command(Opcode::WriteZeroes, command.tag));
            self.jumped = Some((before, act.out.header.position));
            return act;
        };
        if self.acked[0].ahead_of(position) <= 0 {
            return self.honest(command);
        }
        let mut out = self.frame(Self::whole(command));
        out.header.packet = PacketNumber(random.between(1, before));
        Self::sent(out, command, true)
    }

    /// A write of which one part of the data comes twice, and the other never.
    fn overlapping(&mut self, random: &mut Random, command: Command) -> Act {
        let command = self.command(Opcode::Write, command.tag);
        let half = part(&command, 0, LEN / 2);
        let out = if random.chance(0.5) {
            self.frame(vec![Entry::Command(command), half, half])
        } else {
            let out = self.frame(vec![Entry::Command(command), half]);
            self.advance(&out);
            self.half_sent = Some(command);
            out
        };
        Self::sent(out, command, true)
    }

    /// A request with a generation that the target must take for an old one.
    fn far_generation(&mut self, random: &mut Random, command: Command) -> Act {
        let ahead = 0x8000 + MARGIN + random.below(0x3f00) as u16;
        let generation = command.tag.generation.wrapping_add(ahead);
        let command = Command { tag: Tag { generation, ..command.tag }, ..command };
        Self::sent(self.frame(Self::whole(command)), command, true)
    }

    /// A request behind the end of the disk, or around it.
    fn past_the_end(&mut self, random: &mut Random, command: Command) -> Act {
        let offset = random.pick(&[64 << 20, 1 << 40, u64::MAX - 511, u64::MAX - 1023]);
        let opcode = random.pick(&[Opcode::Read, Opcode::Write, Opcode::Discard]);
        let command = self.command(opcode, command.tag);
        self.honest(Command { offset, ..command })
    }

    /// A frame that acknowledges positions that the target never sent.
    fn ack_of_unsent(&mut self, command: Command) -> Act {
        let mut out = self.frame(Self::whole(command));
        out.header.acks = out.header.acks.map(|ack| ack.plus(FAR));
        Self::sent(out, command, true)
    }
}

/// A part of a write's data.
fn part(command: &Command, offset: u32, len: u32) -> Entry {
    let Command { tag, damq_page, len: total, .. } = *command;
    Entry::Data(Data { tag, offset, len, total, damq_page })
}
