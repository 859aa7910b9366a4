//! Frames that are made up: well formed, of every kind, with what was heard where it helps.

use tyche_proto::Outgoing;
use tyche_proto::wire::{
    Accept, AcceptFlags, Ack, CREDIT_MIN, ChannelId, Command, CommandFlags, Completion, Connect,
    ConnectFlags, Content, Control, Cookie, DAMQ_PAGES_MAX, Data, Discover, Echo, Entry, Event,
    ExportFlags, ExportInfo, Fate, Fence, Fenced, Flags, Header, Hello, Kind, Mac, Name, Offer,
    Opcode, Outcome, PacketNumber, Position, REQUEST_LEN_MAX, Reason, Rejection, Reset, ResetToken,
    Ring, STATUS_LEN_MAX, Status, Tag, Text, Ticket, Times, Uuid, Versions,
};

use super::adversary::{Adversary, SLOTS, Way, sources};
use super::bytes::Bytes;
use super::content::PLOT;
use super::host::session_of;
use super::target::{EXPORT, IDENTITY};
use super::world::{HOSTS, LINKS, TARGETS, Victim};

/// Bytes that data may be in all.
const DATA_MAX: usize = 2048;

/// A frame that is made up as the bytes say, and the link that it is sent on.
pub(crate) fn forge(
    adversary: &mut Adversary,
    victim: Victim,
    bytes: &mut Bytes<'_>,
) -> Option<(usize, Vec<u8>)> {
    let what = bytes.u8();
    if what & 1 == 0 {
        let index = bytes.below(adversary.ways.len());
        let of_victim = |way: &Way| way.to_target == (victim == Victim::Target);
        let known: Vec<Way> = adversary.ways.iter().filter(|way| of_victim(way)).cloned().collect();
        let way = known.get(known.len().checked_sub(1 + index % known.len().max(1))?)?;
        return Some((way.link, on_channel(adversary, way, bytes)));
    }
    let (choice, link) = (bytes.u8(), usize::from(what >> 7) % LINKS);
    let source = sources(link)[usize::from(choice & 7) % 6];
    let (control, reply) = match victim {
        Victim::Target => to_target(adversary, (source, link), bytes)?,
        Victim::Host => to_host(adversary, bytes)?,
    };
    let us = if victim == Victim::Target { TARGETS[link] } else { HOSTS[link] };
    let dst = if choice >> 6 == 1 { Mac::BROADCAST } else { us };
    let flags = if reply { Flags::REPLY } else { Flags::NONE };
    let header = Header { flags, ..Header::new(control.kind()) };
    let content = Content::Control(control);
    let out = Outgoing { destination: dst, header, content, ..Outgoing::new() };
    Some((link, out.to_bytes(source, &[])))
}

fn uuid(bytes: &mut Bytes<'_>, ours: Uuid) -> Uuid {
    let choice = bytes.u8();
    if choice & 3 == 3 { Uuid::from_u128((choice >> 2).into()) } else { ours }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// What a target hears outside of channels, and whether it is an answer.
fn to_target(
    adversary: &mut Adversary,
    from: (Mac, usize),
    bytes: &mut Bytes<'_>,
) -> Option<(Control, bool)> {
    let control = match bytes.below(8) {
        0 | 1 => {
            let frame_len = bytes.pick(&[116, 1294, 1514, 1514, 9014, 65549]);
            let (nonce, target) = (bytes.u8().into(), uuid(bytes, IDENTITY));
            Control::Hello(Hello { nonce, target, ticket: Ticket::NONE, frame_len })
        }
        2 => Control::Discover(Discover {
            nonce: bytes.u8().into(),
            versions: Versions::OURS,
            first: bytes.pick(&[0, 1, u16::MAX]),
            host: uuid(bytes, Uuid::from_u128(1)),
            target: bytes.pick(&[Uuid::nil(), IDENTITY, Uuid::from_u128(33)]),
            uuid: bytes.pick(&[Uuid::nil(), EXPORT, Uuid::from_u128(44)]),
            name: bytes.pick(&[Name::EMPTY, name("disk"), name("other")]),
            padding: 0,
        }),
        3..=6 => Control::Connect(connect(adversary, from, bytes)),
        _ => return to_host(adversary, bytes),
    };
    Some((control, bytes.u8() == 1))
}

fn connect(adversary: &mut Adversary, from: (Mac, usize), bytes: &mut Bytes<'_>) -> Connect {
    let heard = match adversary.last_control(true, Kind::Connect) {
        Some(Control::Connect(heard)) if bytes.flag() => Some(heard),
        _ => None,
    };
    adversary.attempts += 1;
    let ticket = adversary.tickets.get(&from).copied().unwrap_or(Ticket::NONE);
    let session = bytes.u8();
    let session = match session & 3 {
        0 => session_of(0),
        _ => Uuid::from_u128(1000 + u128::from(session >> 4)),
    };
    let mut connect = heard.unwrap_or(Connect {
        attempt: 0xeeee_0000 + adversary.attempts,
        ticket,
        target: IDENTITY,
        host: Uuid::from_u128(u128::from(bytes.u8() & 3)),
        session,
        device: if bytes.u8() & 7 == 7 { session_of(0) } else { session },
        export: EXPORT,
        host_name: name("eve"),
        cookie: Cookie(bytes.u8().into()),
        channel: ChannelId(bytes.pick(&[0, 0, 1, 2, 63, 0x7fff])),
        queue_size: bytes.pick(&[1, 8, 8, 1024, 0]),
        rings: [bytes.pick(&[16, 16, 64, 4096]), bytes.pick(&[16, 16, 64, 4096, 15])],
        frame_len: bytes.pick(&[1294, 1514, 1514, 9014, 65549]),
        damq_pages: bytes.pick(&[256, 256, 0, u32::MAX]),
        flags: ConnectFlags(u32::from(bytes.u8() & 0xf)),
        keep_alive_ms: bytes.pick(&[100, 1000, 3000, 60_000, 60_001]),
    });
    match bytes.u8() & 15 {
        0 => connect.ticket = ticket,
        1 => (connect.ticket, connect.session) = (ticket, session),
        2 => (connect.ticket, connect.attempt) = (ticket, 0xdddd_0000 + adversary.attempts),
        3 => {
            connect.ticket = ticket;
            connect.attempt = 0xdddd_0000 + adversary.attempts;
            connect.flags.set(ConnectFlags::RESUME, true);
        }
        _ => {}
    }
    connect
}

/// What a host hears outside of channels.
fn to_host(adversary: &Adversary, bytes: &mut Bytes<'_>) -> Option<(Control, bool)> {
    let attempt = adversary.attempt().unwrap_or_default();
    Some(match bytes.below(6) {
        0 => (Control::Offer(offer(adversary, bytes)), false),
        1 => {
            let Some(Control::Hello(hello)) = adversary.last_control(true, Kind::Hello) else {
                return None;
            };
            let frame_len = bytes.pick(&[hello.frame_len, 1294, 1514]);
            let ticket = Ticket([bytes.u8(); Ticket::LEN]);
            let target = uuid(bytes, hello.target);
            (Control::Hello(Hello { nonce: hello.nonce, target, ticket, frame_len }), true)
        }
        2 => {
            let reason = bytes.pick(Reason::ALL);
            let (versions, detail) = (Versions::OURS, Text::EMPTY);
            let target = uuid(bytes, IDENTITY);
            (Control::Reject(Rejection { attempt, versions, target, reason, detail }), false)
        }
        3 => {
            let way = adversary.ways.get(bytes.below(adversary.ways.len()))?;
            let (cookie, channel, target) = (way.cookie, way.channel, uuid(bytes, IDENTITY));
            let token = ResetToken::default();
            (Control::Reset(Reset { cookie, channel, token, target }), false)
        }
        _ => {
            let Some(Control::Accept(heard)) = adversary.last_control(false, Kind::Accept) else {
                return None;
            };
            (Control::Accept(accept(Accept { attempt, ..heard }, adversary, bytes)), false)
        }
    })
}

fn offer(adversary: &Adversary, bytes: &mut Bytes<'_>) -> Offer {
    let export = uuid(bytes, EXPORT);
    let (size, block_size) = (bytes.pick(&[0, 1 << 20, u64::MAX]), bytes.pick(&[512, 4096]));
    let flags = ExportFlags(bytes.u8().into());
    let export = ExportInfo {
        name: name("disk"),
        uuid: export,
        geometry: flags.geometry(size, block_size),
        held: flags.contains(ExportFlags::HELD),
        shared: flags.contains(ExportFlags::SHARED),
    };
    Offer {
        nonce: adversary.nonce,
        versions: Versions::OURS,
        target: uuid(bytes, IDENTITY),
        name: name("target"),
        first: 0,
        total: 1,
        exports: [export].into_iter().collect(),
        // A bit that no flag has.
        key: (flags.0 & 0x80 != 0).then_some([7; Offer::KEY_LEN]),
    }
}

/// An accept that says something else than the one that was heard.
fn accept(heard: Accept, adversary: &Adversary, bytes: &mut Bytes<'_>) -> Accept {
    let mut accept = heard;
    let which = bytes.u8();
    if which & 1 != 0 {
        let way = adversary.ways.get(bytes.below(adversary.ways.len()));
        let known = way.map(|way| (way.cookie, way.channel));
        (accept.cookie, accept.channel) = known.unwrap_or((Cookie(7), ChannelId(7)));
    }
    if which & 2 != 0 {
        accept.generation = Uuid::from_u128(bytes.u8().into());
    }
    if which & 4 != 0 {
        accept.rings = [bytes.pick(&[16, 64, 4096]), bytes.pick(&[16, 64, 4096])];
    }
    if which & 8 != 0 {
        accept.damq_pages = bytes.pick(&[256, 512, 8192, 1 << 20]);
        accept.queue_size = bytes.pick(&[1, 8, 1024]);
    }
    if which & 16 != 0 {
        accept.frame_len = bytes.pick(&[1294, 1514, 65549]);
        accept.keep_alive_ms = bytes.pick(&[100, 1000, 60_000]);
    }
    if which & 32 != 0 {
        accept.geometry.size = bytes.pick(&[0, 4096, !4095]);
        accept.geometry.block_size = bytes.pick(&[512, 4096]);
    }
    if which & 64 != 0 {
        let flags = AcceptFlags(bytes.u8().into());
        accept.geometry = flags.geometry(accept.geometry.size, accept.geometry.block_size);
        accept.checksum = flags.contains(AcceptFlags::CHECKSUM);
        accept.stages = flags.contains(AcceptFlags::STAGES);
    }
    if which & 128 != 0 {
        accept.export = uuid(bytes, EXPORT);
        accept.target = uuid(bytes, IDENTITY);
    }
    accept
}

/// A frame of a channel.
fn on_channel(adversary: &mut Adversary, way: &Way, bytes: &mut Bytes<'_>) -> Vec<u8> {
    let how = bytes.u8();
    let (mut data, mut entries, mut control, mut echo) = (Vec::new(), Vec::new(), None, None);
    let mut header = Header {
        channel: way.channel,
        cookie: way.cookie,
        packet: PacketNumber(way.packet.0.wrapping_add(1)),
        acks: way.acks.map(Position),
        window: bytes.pick(&[16, 16, 16, 4096, 1, 0, u16::MAX]),
        ..Header::new(Kind::Keepalive)
    };
    header.kind = match bytes.below(14) {
        0 => Kind::Keepalive,
        1 => Kind::Ack,
        2 => {
            control = Some(Control::Ack(nack(way, bytes)));
            Kind::Ack
        }
        3 => Kind::Void,
        4 => Kind::Disconnect,
        5 => {
            let reply_len = bytes.pick(&[88, 1514, 88, 65549]);
            echo = Some(Echo { sequence: 1, replies: bytes.u8().into(), reply_len });
            Kind::Echo
        }
        6 | 7 if way.to_target => {
            control = Some(Control::Fence(fence(adversary, bytes)));
            Kind::Fence
        }
        6 | 7 => {
            control = Some(Control::Fenced(fenced(adversary, bytes)));
            Kind::Fenced
        }
        _ => {
            for _ in 0..=bytes.below(6) {
                entries.push(entry(way, bytes, &mut data));
            }
            if data.is_empty() { Kind::Command } else { Kind::Data }
        }
    };
    header.flags = Flags(u16::from(bytes.u8()) & 0xf);
    if matches!(header.kind, Kind::Command | Kind::Data | Kind::Void) {
        header.flags.set(Flags::CHECKSUMMED, header.kind == Kind::Data);
        header.position = Position(way.next[header.ring().unwrap_or(Ring::Command) as usize]);
    }
    if how & 1 != 0 {
        header.position.0 = header.position.0.wrapping_add_signed(bytes.i8().into());
        header.packet.0 = header.packet.0.wrapping_add_signed(bytes.i8().into());
        let ring = bytes.below(2);
        header.acks[ring].0 = header.acks[ring].0.wrapping_add_signed(bytes.i8().into());
    }
    let source = if how & 6 == 6 { sources(way.link)[bytes.below(6)] } else { way.from };
    let us = if way.to_target { TARGETS[way.link] } else { HOSTS[way.link] };
    let content = match (echo, control) {
        (Some(echo), _) => {
            let filling = if header.flags.contains(Flags::REPLY) { 1426 } else { 0 };
            Content::Echo { echo, filling }
        }
        (None, Some(control)) => Content::Control(control),
        (None, None) => Content::Entries(entries.into_iter().collect()),
    };
    Outgoing { destination: us, header, content, ..Outgoing::new() }.to_bytes(source, &data)
}

fn nack(way: &Way, bytes: &mut Bytes<'_>) -> Ack {
    let bitmap = |bytes: &mut Bytes<'_>| {
        let bits = u64::from(bytes.u16()) & !1;
        Some(bits).filter(|&bits| bits != 0).into_iter().collect()
    };
    let newest = bytes.pick(&[way.packet.0, 0, u64::MAX, 1 << 24]);
    Ack { newest: PacketNumber(newest), bitmaps: [bitmap(bytes), bitmap(bytes)] }
}

fn tag(way: &Way, bytes: &mut Bytes<'_>) -> Tag {
    let slot = bytes.below(SLOTS);
    let step = bytes.pick(&[0, 1, 1, 1, 2, 0x7fff, 0x8000, u16::MAX]);
    Tag { slot: slot as u16, generation: way.generations[slot].wrapping_add(step) }
}

fn fence(adversary: &Adversary, bytes: &mut Bytes<'_>) -> Fence {
    let other = adversary.ways.get(bytes.below(adversary.ways.len()));
    let (cookie, channel) =
        other.map_or((Cookie(1), ChannelId(1)), |way| (way.cookie, way.channel));
    let tags = other.map(|way| (0..bytes.below(128)).map(|_| tag(way, bytes)).collect());
    Fence { cookie, channel, tags: tags.unwrap_or_default() }
}

fn fenced(adversary: &Adversary, bytes: &mut Bytes<'_>) -> Fenced {
    let Fence { cookie, channel, tags } = fence(adversary, bytes);
    let fates = [Fate::NotExecuted, Fate::Unknown, Fate::Executed(Status::Success)];
    let outcomes = tags.iter().map(|&tag| Outcome { tag, fate: bytes.pick(&fates) }).collect();
    Fenced { cookie, channel, outcomes }
}

fn entry(way: &Way, bytes: &mut Bytes<'_>, data: &mut Vec<u8>) -> Entry {
    let tag = tag(way, bytes);
    let damq_page = bytes.pick(&[0, 1, 2, 4, 8, 100, 255, 256, u32::MAX]);
    let len = bytes.pick(&[512, 512, 1024, 4096, 16384, 65536, REQUEST_LEN_MAX]);
    match bytes.below(8) {
        0..=2 => {
            let opcode = bytes.pick(Opcode::ALL);
            let offset = u64::from(bytes.u8()) * PLOT;
            let is_flush = opcode == Opcode::Flush;
            let is_status = opcode == Opcode::BlockStatus;
            let len = if is_status { len.min(STATUS_LEN_MAX) } else { len };
            Entry::Command(Command {
                opcode,
                flags: CommandFlags::NONE,
                tag,
                offset: if is_flush { 0 } else { offset },
                len: if is_flush { 0 } else { len },
                damq_page: if opcode.has_data() { damq_page } else { 0 },
            })
        }
        3..=5 => {
            let part = bytes.pick(&[512, 64, 1024, 512]);
            let room = DATA_MAX.saturating_sub(data.len()) as u32;
            let part = part.min(len).min(room).max(64);
            let offset = u32::from(bytes.u8() & 7) * 64;
            data.resize(data.len() + part as usize, 0xee);
            let damq_page = if way.to_target { damq_page } else { 0 };
            Entry::Data(Data { tag, offset, len: part, total: len, damq_page })
        }
        6 => Entry::Completion(Completion {
            tag,
            status: bytes.pick(Status::ALL),
            times: Times { wake_ns: u32::from(bytes.u8() == 1), ..Times::ZERO },
        }),
        _ => bytes.pick(&[
            Entry::Event(Event::Resized(0)),
            Entry::Event(Event::Resized(1 << 30)),
            Entry::Event(Event::Resized(u64::MAX)),
            Entry::Event(Event::Removed),
            Entry::Credit(CREDIT_MIN),
            Entry::Credit(256),
            Entry::Credit(DAMQ_PAGES_MAX),
        ]),
    }
}
