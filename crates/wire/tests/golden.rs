//! Golden frames: one literal frame for every kind, parsed to its value and emitted from that value
//! to the same bytes. The literals were made from PROTOCOL.md by code other than the crate's, so
//! that an error in one is not confirmed by the same error in the other.

use std::collections::BTreeSet;

use crate::frames;
use crate::frames::Payload;
use tyche_wire::*;

const HOST: Uuid = Uuid::from_u128(0x00112233_4455_4677_8899_aabbccddeeff);
const SESSION: Uuid = Uuid::from_u128(0x5e551011_0203_4405_8607_08090a0b0c0d);
const DEVICE: Uuid = Uuid::from_u128(0xde71ce01_1111_4222_8333_444455556666);
const TARGET: Uuid = Uuid::from_u128(0x7a26e711_2233_4455_a677_8899aabbccdd);
const GENERATION: Uuid = Uuid::from_u128(0xb0070102_0304_4506_8708_090a0b0c0d0e);
const SCRATCH: Uuid = Uuid::from_u128(0xd15c0001_1111_4222_8333_444455556666);
const DONNEES: Uuid = Uuid::from_u128(0xd15c0002_1111_4222_8333_444455556666);
const HOST_COOKIE: Cookie = Cookie(0xc0c1_c2c3_c4c5_c6c7);
const TARGET_COOKIE: Cookie = Cookie(0x7071_7273_7475_7677);
const TICKET: Ticket = Ticket([
    0x71, 0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
]);
const VERSIONS: Versions = Versions { min: 2, max: 2 };
const NONCE: u64 = 0x0123_4567_89ab_cdef;
const ATTEMPT: u64 = 0x1f2e_3d4c_5b6a_7988;

/// The value of a golden frame.
struct Expected {
    header: Header,
    payload: Payload,
}

/// A frame outside of any channel. `data_len` and `payload_crc` are literal, for the parser.
fn control(data_len: u32, payload_crc: u32, control: Control) -> Expected {
    let header = Header { data_len, payload_crc, ..Header::new(control.kind()) };
    Expected { header, payload: Payload::control(control) }
}

/// Header of a frame to the target's channel.
fn to_target(kind: Kind, packet: u64, acks: [u32; 2]) -> Header {
    Header {
        channel: ChannelId(9),
        cookie: TARGET_COOKIE,
        packet: PacketNumber(packet),
        acks: acks.map(Position),
        window: 256,
        ..Header::new(kind)
    }
}

/// Header of a frame to the host's channel.
fn to_host(kind: Kind, packet: u64, acks: [u32; 2]) -> Header {
    let (channel, cookie) = (ChannelId(3), HOST_COOKIE);
    Header { channel, cookie, window: 128, ..to_target(kind, packet, acks) }
}

fn empty(header: Header) -> Expected {
    Expected { header, payload: Payload::empty() }
}

fn echo(header: Header, filling: Vec<u8>) -> Expected {
    let (entries, data_len) = (1, filling.len() as u32);
    let header = Header { entries, data_len, payload_crc: 0x9705_f968, ..header };
    let echo = Echo { sequence: NONCE, replies: 2, reply_len: 152 };
    Expected { header, payload: Payload::echo(filling, echo) }
}

fn with_entries(
    header: Header,
    (position, payload_crc): (u32, u32),
    data: Vec<u8>,
    entries: Vec<Entry>,
) -> Expected {
    let header = Header {
        position: Position(position),
        entries: entries.len() as u16,
        data_len: data.len() as u32,
        payload_crc,
        ..header
    };
    Expected { header, payload: Payload::entries(data, entries) }
}

fn tag(slot: u16, generation: u16) -> Tag {
    Tag { slot, generation }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn completion(tag: Tag, status: Status) -> Entry {
    Entry::Completion(Completion { tag, status, times: Times::ZERO })
}

fn timed(
    tag: Tag,
    status: Status,
    [wake_ns, receive_ns, store_ns, transmit_ns]: [u32; 4],
) -> Entry {
    let times = Times { wake_ns, receive_ns, store_ns, transmit_ns };
    Entry::Completion(Completion { tag, status, times })
}

fn data(tag: Tag, (offset, len, total): (u32, u32, u32), damq_page: u32) -> Entry {
    Entry::Data(Data { tag, offset, len, total, damq_page })
}

fn command(
    (opcode, flags): (Opcode, CommandFlags),
    tag: Tag,
    (offset, len): (u64, u32),
    damq_page: u32,
) -> Entry {
    Entry::Command(Command { opcode, flags, tag, offset, len, damq_page })
}

fn offer(key: Option<[u8; Offer::KEY_LEN]>) -> Control {
    let scratch = ExportInfo {
        name: name("scratch"),
        uuid: SCRATCH,
        geometry: Geometry { write_cache: true, ..Geometry::new(1 << 30, 512) },
        held: false,
        shared: true,
    };
    let donnees = ExportInfo {
        name: name("données"),
        uuid: DONNEES,
        geometry: Geometry::new(2 << 40, 4096),
        held: true,
        shared: false,
    };
    Control::Offer(Offer {
        nonce: NONCE,
        versions: VERSIONS,
        target: TARGET,
        name: name("depot"),
        first: 0,
        total: 2,
        exports: [scratch, donnees].into_iter().collect(),
        key,
    })
}

fn connect() -> Control {
    Control::Connect(Connect {
        attempt: ATTEMPT,
        ticket: TICKET,
        target: TARGET,
        host: HOST,
        session: SESSION,
        device: DEVICE,
        export: SCRATCH,
        host_name: name("reader-7"),
        cookie: HOST_COOKIE,
        channel: ChannelId(3),
        queue_size: 128,
        rings: [256, 1024],
        frame_len: 9014,
        damq_pages: 4096,
        flags: ConnectFlags::CHECKSUM | ConnectFlags::BLOCK_STATUS,
        keep_alive_ms: 5000,
    })
}

fn accept() -> Control {
    Control::Accept(Accept {
        attempt: ATTEMPT,
        target: TARGET,
        generation: GENERATION,
        export: SCRATCH,
        geometry: Geometry { write_cache: true, discard: true, ..Geometry::new(1 << 30, 512) },
        cookie: TARGET_COOKIE,
        channel: ChannelId(9),
        queue_size: 64,
        rings: [128, 512],
        frame_len: 9014,
        damq_pages: 2048,
        checksum: true,
        stages: false,
        block_status: true,
        keep_alive_ms: 5000,
    })
}

fn discover() -> Discover {
    Discover {
        nonce: NONCE,
        versions: VERSIONS,
        first: 0,
        host: HOST,
        target: Uuid::nil(),
        uuid: Uuid::nil(),
        name: name("scratch"),
        padding: 0,
    }
}

/// Frames outside of any channel.
fn outside(name: &str) -> Option<Expected> {
    let hello =
        |ticket| Control::Hello(Hello { nonce: ATTEMPT, target: TARGET, ticket, frame_len: 128 });
    Some(match name {
        "discover" => control(128, 0x440a_ab9b, Control::Discover(discover())),
        "discover-padded" => {
            let discover = discover().with_room_for(1);
            control(240, 0x05af_5c77, Control::Discover(discover))
        }
        "offer" => control(312, 0x7dfd_c994, offer(None)),
        "offer-with-key" => control(344, 0x2365_6638, offer(Some(pattern()))),
        "hello" => control(64, 0xa468_fcc0, hello(Ticket::NONE)),
        "hello-reply" => {
            let mut reply = control(64, 0x26c0_b6e1, hello(TICKET));
            reply.header.flags = Flags::REPLY;
            reply
        }
        "connect" => control(208, 0x6903_5996, connect()),
        "accept" => control(104, 0x110b_c9fc, accept()),
        "reject" => {
            let detail = Text::new("writer-2").expect("a good text");
            let rejection = Rejection {
                attempt: ATTEMPT,
                versions: VERSIONS,
                reason: Reason::Held,
                target: TARGET,
                detail,
            };
            control(160, 0xc35a_49f3, Control::Reject(rejection))
        }
        "reset" => {
            let token = ResetToken::default();
            let (cookie, channel) = (TARGET_COOKIE, ChannelId(9));
            let reset = Reset { cookie, channel, token, target: TARGET };
            control(32, 0x13d0_bcf4, Control::Reset(reset))
        }
        "sealed-connect" => {
            let connect = SealedConnect {
                attempt: ATTEMPT,
                ticket: TICKET,
                target: TARGET,
                message: pattern(),
                proof: pattern(),
            };
            let mut sealed = control(504, 0x1cb1_0a06, Control::SealedConnect(connect));
            sealed.header.cookie = Cookie(HOST_COOKIE.0 & 0xffff_ffff);
            sealed
        }
        "sealed-answer" => {
            let answer = SealedAnswer { attempt: ATTEMPT, target: TARGET, message: pattern() };
            control(240, 0x54ff_f1a3, Control::SealedAnswer(answer))
        }
        _ => return None,
    })
}

/// The bytes of a message, which are any.
fn pattern<const N: usize>() -> [u8; N] {
    std::array::from_fn(|index| (index * 7 + 3) as u8)
}

/// Frames in the command rings of a channel.
fn in_command_rings(name: &str) -> Option<Expected> {
    use Opcode::{BlockStatus, Discard, Flush, Read, Write, WriteZeroes};
    const FUA: CommandFlags = CommandFlags::FUA;
    const FUA_UNMAP: CommandFlags = CommandFlags(3);
    const NONE: CommandFlags = CommandFlags::NONE;
    Some(match name {
        "command-requests" => with_entries(
            Header {
                flags: Flags::ACK_REQUEST,
                ..to_target(Kind::Command, 70000, [0xffff_fffe, 41])
            },
            (0xffff_ffff, 0xa108_06fd),
            vec![],
            vec![
                command((Read, NONE), tag(5, 1), (1 << 32, 8192), 12),
                command((Write, FUA), tag(6, 1), (4096, 65536), 14),
                command((Flush, NONE), tag(7, 3), (0, 0), 0),
                command((Discard, NONE), tag(8, 1), (0, 1 << 30), 0),
                command((WriteZeroes, FUA_UNMAP), tag(9, 0xffff), (1 << 20, 1 << 21), 0),
                command((BlockStatus, NONE), tag(13, 1), (1 << 24, 4096), 40),
            ],
        ),
        "command-answers" => with_entries(
            to_host(Kind::Command, 70001, [0, 41]),
            (300, 0xb81b_967d),
            vec![],
            vec![
                completion(tag(6, 1), Status::Success),
                completion(tag(8, 1), Status::Unsupported),
                Entry::Event(Event::Resized(2 << 30)),
                Entry::Event(Event::Removed),
            ],
        ),
        "command-credit" => with_entries(
            to_host(Kind::Command, 70014, [0, 42]),
            (302, 0xf62b_03cd),
            vec![],
            vec![Entry::Credit(8192)],
        ),
        "command-times" => with_entries(
            to_host(Kind::Command, 70013, [0, 41]),
            (301, 0x7317_d77b),
            vec![],
            vec![
                timed(tag(6, 1), Status::Success, [7300, 850, 64_000, 410]),
                timed(tag(8, 1), Status::Invalid, [u32::MAX, 0, 1, u32::MAX - 1]),
            ],
        ),
        _ => return None,
    })
}

/// Frames in the data rings of a channel, and voids.
fn in_data_rings(name: &str) -> Option<Expected> {
    const NONE: CommandFlags = CommandFlags::NONE;
    Some(match name {
        "data-write" => with_entries(
            Header { flags: Flags(9), ..to_target(Kind::Data, 70002, [301, 77]) },
            (41, 0x366f_d6ce),
            vec![0xd7; 4096],
            vec![
                command((Opcode::Write, NONE), tag(10, 4), (8192, 4096), 30),
                data(tag(10, 4), (0, 4096, 4096), 30),
            ],
        ),
        "data-read" => with_entries(
            Header { flags: Flags::CHECKSUMMED, ..to_host(Kind::Data, 70003, [0, 42]) },
            (77, 0x4b88_7ea7),
            [[0x11; 512], [0x11; 512], [0x22; 512]].concat(),
            vec![
                data(tag(5, 1), (0, 1024, 1024), 0),
                data(tag(11, 2), (512, 512, 1024), 0),
                completion(tag(5, 1), Status::Success),
                completion(tag(11, 2), Status::Success),
            ],
        ),
        "data-unchecked" => with_entries(
            to_host(Kind::Data, 70004, [0, 42]),
            (78, 0xd94f_38cc),
            vec![0x33; 512],
            vec![data(tag(12, 7), (0, 512, 512), 0), completion(tag(12, 7), Status::Success)],
        ),
        "data-stripped" => with_entries(
            Header { flags: Flags::CHECKSUMMED, ..to_host(Kind::Data, 70012, [0, 42]) },
            (77, 0x8e66_6076),
            vec![],
            vec![completion(tag(5, 1), Status::Success), completion(tag(11, 2), Status::Success)],
        ),
        "void-command" => {
            empty(Header { position: Position(2), ..to_target(Kind::Void, 70005, [301, 79]) })
        }
        "void-data" => empty(Header {
            position: Position(42),
            flags: Flags::DATA_RING,
            ..to_target(Kind::Void, 70006, [301, 79])
        }),
        _ => return None,
    })
}

/// A frame on a channel with a body.
fn on_channel_control(header: Header, payload_crc: u32, control: Control) -> Expected {
    let mut body = [0; Control::LEN_MAX];
    let header = Header { data_len: control.emit(&mut body) as u32, payload_crc, ..header };
    Expected { header, payload: Payload::control(control) }
}

/// Frames on a channel but in no ring.
fn on_channel(name: &str) -> Option<Expected> {
    let tags = [tag(5, 1), tag(17, 0xfffe), tag(63, 2)];
    let (cookie, channel) = (Cookie(0x3031_3233_3435_3637), ChannelId(4));
    Some(match name {
        "fence" => {
            let fence = Fence { cookie, channel, tags: tags.into_iter().collect() };
            let header = to_target(Kind::Fence, 70015, [301, 79]);
            on_channel_control(header, 0x2ec0_9e40, Control::Fence(fence))
        }
        "fenced" => {
            let fates = [Fate::Executed(Status::Success), Fate::NotExecuted, Fate::Unknown];
            let outcomes = tags.into_iter().zip(fates).map(|(tag, fate)| Outcome { tag, fate });
            let fenced = Fenced { cookie, channel, outcomes: outcomes.collect() };
            on_channel_control(
                to_host(Kind::Fenced, 70016, [3, 43]),
                0x3450_0d62,
                Control::Fenced(fenced),
            )
        }
        "ack" => empty(to_host(Kind::Ack, 70007, [3, 43])),
        "nack" => {
            let bitmaps = [&[0b10][..], &[0b10100, 1][..]];
            let bitmaps = bitmaps.map(|words| words.iter().copied().collect());
            let ack = Ack { newest: PacketNumber(70106), bitmaps };
            let header = to_host(Kind::Ack, 70008, [3, 43]);
            on_channel_control(header, 0xf727_848a, Control::Ack(ack))
        }
        "keepalive" => empty(to_target(Kind::Keepalive, 70009, [301, 79])),
        "disconnect" => empty(to_target(Kind::Disconnect, 70010, [301, 79])),
        "disconnect-reply" => {
            let header = to_host(Kind::Disconnect, 70011, [3, 43]);
            empty(Header { flags: Flags::REPLY, ..header })
        }
        "echo" => echo(to_target(Kind::Echo, 70013, [301, 79]), vec![0xee; 40]),
        "echo-reply" => {
            let header = to_host(Kind::Echo, 70014, [3, 43]);
            echo(Header { flags: Flags::REPLY, ..header }, vec![0; 64])
        }
        _ => return None,
    })
}

fn expected(name: &str) -> Expected {
    outside(name)
        .or_else(|| in_command_rings(name))
        .or_else(|| in_data_rings(name))
        .or_else(|| on_channel(name))
        .unwrap_or_else(|| panic!("no value for the golden frame {name}"))
}

#[test]
fn frames_are_parsed_to_their_values() {
    for name in frames::GOLDEN {
        let bytes = frames::golden(name);
        let frame = frames::parse(&bytes).unwrap_or_else(|reject| panic!("{name}: {reject}"));
        let Expected { header, payload } = expected(name);
        assert_eq!(frame.header, header, "{name}");
        assert_eq!(Payload::from(&frame.body), payload, "{name}");
    }
}

#[test]
fn values_are_emitted_to_their_frames() {
    for name in frames::GOLDEN {
        let bytes = frames::golden(name);
        let (head, _) = frames::split(&bytes);
        let Expected { mut header, payload } = expected(name);
        // Fields that `seal` must set.
        (header.entries, header.data_len, header.payload_crc) = (0xa5a5, 0xa5a5_a5a5, 0xa5a5_a5a5);
        assert_eq!(frames::emit(&header, &payload, head), bytes, "{name}");
        assert_eq!(head[12..14], ETHERTYPE.to_be_bytes(), "{name}");
        assert!(frames::check(&bytes), "{name}");
    }
}

#[test]
fn there_is_a_frame_for_every_kind_opcode_and_flag() {
    let frames = frames::GOLDEN.map(frames::golden);
    let kinds: BTreeSet<u8> = frames.iter().map(|frame| frame[frames::KIND]).collect();
    assert_eq!(kinds, Kind::ALL.iter().map(|&kind| kind as u8).collect());
    let flags: BTreeSet<u8> = frames.iter().map(|frame| frame[frames::FLAGS]).collect();
    assert_eq!(flags, [0, 1, 2, 4, 8, 9].into());
    let requests = frames::golden("command-requests");
    let entries = requests[HEAD_LEN..].chunks(ENTRY_LEN);
    let opcodes: Vec<u8> = entries.map(|entry| entry[1]).collect();
    assert_eq!(opcodes, Opcode::ALL.iter().map(|&opcode| opcode as u8).collect::<Vec<_>>());
    frames::FILES.check_files(&frames::GOLDEN);
}

/// Check values of CRC-32C: the catalogue's, and those of RFC 3720, B.4.
#[test]
fn checksum_is_castagnolis() {
    assert_eq!(Checksum::of(b"123456789"), 0xe306_9283);
    assert_eq!(Checksum::of(&[0; 32]), 0x8a91_36aa);
    assert_eq!(Checksum::of(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(Checksum::of(&[]), 0);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(Checksum::of(&ascending), 0x46dd_794e);
    for cut in 0..=32 {
        let mut pieces = Checksum::default();
        pieces.update(&ascending[..cut]);
        pieces.update(&ascending[cut..]);
        assert_eq!(pieces.finish(), 0x46dd_794e);
    }
}
