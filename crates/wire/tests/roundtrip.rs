//! Any value survives emission and parsing, and the arithmetic of wire types wraps.

use crate::frames;
use crate::frames::{Payload, parse};
use proptest::collection::vec;
use proptest::prelude::*;
use tyche_wire::*;

fn text<const N: usize>() -> impl Strategy<Value = Text<N>> {
    // Long enough that most are cut, some within the last character.
    vec(any::<char>(), 0..N).prop_map(|chars| Text::truncated(&String::from_iter(chars)))
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn tag() -> impl Strategy<Value = Tag> {
    any::<u32>().prop_map(Tag::from_bits)
}

fn cookie() -> impl Strategy<Value = Cookie> {
    any::<u64>().prop_map(Cookie)
}

fn own_cookie() -> impl Strategy<Value = Cookie> {
    (1..=u64::MAX).prop_map(Cookie)
}

fn ticket() -> impl Strategy<Value = Ticket> {
    any::<[u8; Ticket::LEN]>().prop_map(Ticket)
}

fn versions() -> impl Strategy<Value = Versions> {
    (0..=VERSION, VERSION..=u8::MAX).prop_map(|(min, max)| Versions { min, max })
}

fn channel() -> impl Strategy<Value = ChannelId> {
    (0..u16::MAX).prop_map(ChannelId)
}

fn status() -> impl Strategy<Value = Status> {
    proptest::sample::select(Status::ALL)
}

/// Disks of any size, a whole number of blocks or not.
fn geometry() -> impl Strategy<Value = Geometry> {
    let block_size = prop_oneof![Just(512), Just(4096)];
    let disk = (any::<u64>(), block_size, any::<u32>());
    disk.prop_map(|(size, block_size, flags)| AcceptFlags(flags).geometry(size, block_size))
}

fn rings() -> impl Strategy<Value = [u16; 2]> {
    [4..=12u32, 4..=12].prop_map(|exponents| exponents.map(|exponent| 1 << exponent))
}

/// Queue size, frame length and keep-alive time, as in both sides' handshake PDUs.
fn sizes() -> impl Strategy<Value = (u16, u32, u32)> {
    (1..=1024u16, FRAME_LEN_MIN as u32..=FRAME_LEN_MAX as u32, 100..=KEEP_ALIVE_MS_MAX)
}

fn discover() -> impl Strategy<Value = Control> {
    let padding = 0..=Discover::PADDING_MAX as u16;
    let first = (any::<u16>(), padding);
    (any::<u64>(), versions(), first, [uuid(), uuid(), uuid()], text()).prop_map(
        |(nonce, versions, (first, padding), [host, target, uuid], name)| {
            let discover = Discover { nonce, versions, first, host, target, uuid, name, padding };
            Control::Discover(discover)
        },
    )
}

fn export_info() -> impl Strategy<Value = ExportInfo> {
    (text(), uuid(), geometry(), any::<bool>(), any::<bool>()).prop_map(
        |(name, uuid, geometry, held, shared)| {
            let geometry = Geometry { discard: false, rotational: false, ..geometry };
            ExportInfo { name, uuid, geometry, held, shared }
        },
    )
}

fn offer() -> impl Strategy<Value = Control> {
    let position = (any::<u16>(), any::<u16>());
    let who = (any::<u64>(), versions(), uuid(), text(), any::<Option<[u8; Offer::KEY_LEN]>>());
    (who, vec(export_info(), 0..=RECORDS_MAX), position).prop_map(
        |((nonce, versions, target, name, key), exports, (first, more))| {
            let exports: arrayvec::ArrayVec<_, RECORDS_MAX> = exports.into_iter().collect();
            let count = exports.len() as u16;
            let first = first.min(u16::MAX - count);
            let total = (first + count).saturating_add(more);
            let key = key.filter(|_| !exports.is_full());
            Control::Offer(Offer { nonce, versions, target, name, first, total, exports, key })
        },
    )
}

fn hello() -> impl Strategy<Value = Control> {
    let len_min = (HEAD_LEN + Hello::FIELDS_LEN) as u32;
    let len = prop_oneof![len_min..1600, len_min..=FRAME_LEN_MAX as u32];
    (any::<u64>(), uuid(), ticket(), len).prop_map(|(nonce, target, ticket, frame_len)| {
        Control::Hello(Hello { nonce, target, ticket, frame_len })
    })
}

fn connect() -> impl Strategy<Value = Control> {
    let names = (uuid(), uuid(), uuid(), uuid(), uuid(), text());
    let addresses = (any::<u64>(), ticket(), own_cookie(), channel());
    (names, addresses, rings(), sizes(), any::<u32>(), 0..16u32).prop_map(
        |(names, addresses, rings, sizes, damq_pages, flags)| {
            let (target, host, session, device, export, host_name) = names;
            let (attempt, ticket, cookie, channel) = addresses;
            let (queue_size, frame_len, keep_alive_ms) = sizes;
            Control::Connect(Connect {
                attempt,
                ticket,
                target,
                host,
                session,
                device,
                export,
                host_name,
                cookie,
                channel,
                queue_size,
                rings,
                frame_len,
                damq_pages,
                flags: ConnectFlags(flags),
                keep_alive_ms,
            })
        },
    )
}

fn accept() -> impl Strategy<Value = Control> {
    let names = (uuid(), uuid(), uuid());
    let addresses = (any::<u64>(), own_cookie(), channel());
    let options = (any::<bool>(), any::<bool>(), any::<bool>());
    (names, addresses, rings(), sizes(), 256..=1u32 << 20, geometry(), options).prop_map(
        |(names, addresses, rings, sizes, damq_pages, mut geometry, options)| {
            let (checksum, stages, block_status) = options;
            geometry.size -= geometry.size % u64::from(geometry.block_size);
            let (target, generation, export) = names;
            let (attempt, cookie, channel) = addresses;
            let (queue_size, frame_len, keep_alive_ms) = sizes;
            Control::Accept(Accept {
                attempt,
                target,
                generation,
                export,
                geometry,
                cookie,
                channel,
                queue_size,
                rings,
                frame_len,
                damq_pages,
                checksum,
                stages,
                block_status,
                keep_alive_ms,
            })
        },
    )
}

fn rejection() -> impl Strategy<Value = Control> {
    (any::<u64>(), versions(), proptest::sample::select(Reason::ALL), uuid(), text()).prop_map(
        |(attempt, versions, reason, target, detail)| {
            Control::Reject(Rejection { attempt, versions, reason, target, detail })
        },
    )
}

fn fence() -> impl Strategy<Value = Control> {
    (cookie(), channel(), vec(tag(), 0..=TAGS_MAX)).prop_map(|(cookie, channel, tags)| {
        let tags = tags.into_iter().collect();
        Control::Fence(Fence { cookie, channel, tags })
    })
}

fn fenced() -> impl Strategy<Value = Control> {
    let fate = prop_oneof![
        status().prop_map(Fate::Executed),
        Just(Fate::NotExecuted),
        Just(Fate::Unknown)
    ];
    let outcome = (tag(), fate).prop_map(|(tag, fate)| Outcome { tag, fate });
    (cookie(), channel(), vec(outcome, 0..=OUTCOMES_MAX)).prop_map(|(cookie, channel, outcomes)| {
        let outcomes = outcomes.into_iter().collect();
        Control::Fenced(Fenced { cookie, channel, outcomes })
    })
}

fn reset() -> impl Strategy<Value = Control> {
    (cookie(), channel(), any::<[u8; 6]>(), uuid()).prop_map(|(cookie, channel, token, target)| {
        Control::Reset(Reset { cookie, channel, token: ResetToken(token), target })
    })
}

/// Bytes of a message: of an encrypted one, any.
fn message<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().expect("it has that length"))
}

fn sealed() -> impl Strategy<Value = Control> {
    let connect = (any::<u64>(), ticket(), uuid(), message(), message()).prop_map(
        |(attempt, ticket, target, message, proof)| {
            Control::SealedConnect(SealedConnect { attempt, ticket, target, message, proof })
        },
    );
    let answer = (any::<u64>(), uuid(), message()).prop_map(|(attempt, target, message)| {
        Control::SealedAnswer(SealedAnswer { attempt, target, message })
    });
    prop_oneof![connect, answer]
}

fn suite() -> impl Strategy<Value = CipherSuite> {
    proptest::sample::select(CipherSuite::ALL)
}

fn bitmap() -> impl Strategy<Value = Bitmap> {
    vec(any::<u64>(), 0..=BITMAP_WORDS_MAX).prop_map(|mut words| {
        if let Some(first) = words.first_mut() {
            *first &= !1;
        }
        if let Some(last) = words.last_mut() {
            *last |= 2;
        }
        words.into_iter().collect()
    })
}

fn nack() -> impl Strategy<Value = Control> {
    (any::<u64>(), [bitmap(), bitmap()])
        .prop_map(|(newest, bitmaps)| Control::Ack(Ack { newest: PacketNumber(newest), bitmaps }))
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        discover(),
        offer(),
        hello(),
        connect(),
        accept(),
        rejection(),
        fence(),
        fenced(),
        reset(),
        sealed(),
        nack(),
    ]
}

/// Offset and length on a disk, in bytes: whole sectors, and no end past 2^64.
fn extent(len_max: u32) -> impl Strategy<Value = (u64, u32)> {
    (1..=len_max / 512, any::<u64>()).prop_map(|(sectors, offset)| {
        let len = sectors * 512;
        let offset = offset.min(u64::MAX - u64::from(len));
        (offset - offset % SECTOR_LEN, len)
    })
}

fn command() -> impl Strategy<Value = Command> {
    let moving = (
        prop_oneof![Just((Opcode::Read, 0)), Just((Opcode::Write, 0)), Just((Opcode::Write, 1))],
        extent(REQUEST_LEN_MAX),
        any::<u32>(),
    );
    let asking = (Just((Opcode::BlockStatus, 0)), extent(STATUS_LEN_MAX), any::<u32>());
    let clearing = (
        prop_oneof![
            Just((Opcode::Discard, 0)),
            (0..4u16).prop_map(|flags| (Opcode::WriteZeroes, flags))
        ],
        extent(u32::MAX),
        Just(0),
    );
    let flush = (Just((Opcode::Flush, 0)), Just((0, 0)), Just(0));
    (tag(), prop_oneof![moving, asking, clearing, flush]).prop_map(
        |(tag, ((opcode, flags), (offset, len), damq_page))| {
            let flags = CommandFlags(flags);
            Command { opcode, flags, tag, offset, len, damq_page }
        },
    )
}

fn data(len_max: u32) -> impl Strategy<Value = Data> {
    (tag(), 1..=REQUEST_LEN_MAX / 512, any::<[u32; 2]>(), any::<u32>()).prop_map(
        move |(tag, sectors, [offset, len], damq_page)| {
            let total = sectors * 512;
            let units = total / PART_UNIT;
            let first = offset % units;
            let offset = first * PART_UNIT;
            let len = (len % (units - first).min(len_max / PART_UNIT) + 1) * PART_UNIT;
            Data { tag, offset, len, total, damq_page }
        },
    )
}

/// Any entry but data.
fn small_entry() -> impl Strategy<Value = Entry> {
    let times = prop_oneof![Just([0; 4]), any::<[u32; 4]>()];
    let completion = (tag(), status(), times).prop_map(|(tag, status, times)| {
        let [wake_ns, receive_ns, store_ns, transmit_ns] = times;
        let times = Times { wake_ns, receive_ns, store_ns, transmit_ns };
        Entry::Completion(Completion { tag, status, times })
    });
    prop_oneof![
        4 => command().prop_map(Entry::Command),
        4 => completion,
        1 => any::<u64>().prop_map(|size| Entry::Event(Event::Resized(size))),
        1 => Just(Entry::Event(Event::Removed)),
        1 => (CREDIT_MIN..=DAMQ_PAGES_MAX).prop_map(Entry::Credit),
    ]
}

fn small_entries() -> impl Strategy<Value = Vec<Entry>> {
    vec(small_entry(), 1..=ENTRIES_MAX)
}

/// Data of up to half a KiB each among other entries, and a data section to go with them.
fn data_section() -> impl Strategy<Value = (Vec<u8>, Vec<Entry>)> {
    let entry = prop_oneof![data(512).prop_map(Entry::Data), small_entry()];
    (vec(entry, 1..=ENTRIES_MAX), any::<u8>()).prop_map(|(entries, fill)| {
        let len: u32 = entries
            .iter()
            .map(|entry| if let Entry::Data(part) = entry { part.len } else { 0 })
            .sum();
        ((0..len).map(|i| (i as u8).wrapping_mul(31) ^ fill).collect(), entries)
    })
}

fn flags(of: &'static [Flags]) -> impl Strategy<Value = Flags> {
    vec(any::<bool>(), of.len()).prop_map(|set| {
        let set = of.iter().zip(set).filter(|(_, set)| *set);
        Flags(set.map(|(flag, _)| flag.0).sum())
    })
}

/// Kind, flags and payload that are valid together.
fn contents() -> impl Strategy<Value = (Kind, Flags, Payload)> {
    let reply = || flags(&[Flags::REPLY]);
    let control = (control(), reply()).prop_map(|(mut control, reply)| {
        let flags = if control.kind() == Kind::Hello { reply } else { Flags::NONE };
        if let Control::Hello(question) = &mut control
            && flags == Flags::NONE
        {
            question.ticket = Ticket::NONE;
        }
        (control.kind(), flags, Payload::control(control))
    });
    let command = (flags(&[Flags::ACK_REQUEST, Flags::CONGESTED]), small_entries())
        .prop_map(|(flags, entries)| (Kind::Command, flags, Payload::entries(vec![], entries)));
    let data = flags(&[Flags::CHECKSUMMED, Flags::ACK_REQUEST, Flags::CONGESTED]);
    let data = (data, data_section())
        .prop_map(|(flags, (data, entries))| (Kind::Data, flags, Payload::entries(data, entries)));
    let echo =
        (reply(), any::<u64>(), 1..=ECHO_REPLIES_MAX, vec(any::<u8>(), 0..600), any::<u32>());
    let echo = echo.prop_map(|(reply, sequence, replies, filling, len)| {
        let span = (FRAME_LEN_MAX - Echo::LEN_MIN) as u32 + 1;
        let len = if reply == Flags::NONE { len % span } else { filling.len() as u32 };
        let reply_len = Echo::LEN_MIN as u32 + len;
        (Kind::Echo, reply, Payload::echo(filling, Echo { sequence, replies, reply_len }))
    });
    let void = flags(&[Flags::DATA_RING, Flags::ACK_REQUEST, Flags::CONGESTED])
        .prop_map(|flags| (Kind::Void, flags, Payload::empty()));
    prop_oneof![
        8 => control,
        4 => command,
        4 => data,
        1 => void,
        2 => echo,
        1 => flags(&[Flags::CONGESTED]).prop_map(|flags| (Kind::Ack, flags, Payload::empty())),
        1 => Just((Kind::Keepalive, Flags::NONE, Payload::empty())),
        1 => reply().prop_map(|flags| (Kind::Disconnect, flags, Payload::empty())),
    ]
}

fn frame() -> impl Strategy<Value = (Header, Payload)> {
    let numbers = (any::<u64>(), any::<u32>(), any::<[u32; 2]>(), any::<u16>());
    (contents(), channel(), cookie(), numbers).prop_map(|(contents, channel, cookie, numbers)| {
        let (kind, flags, payload) = contents;
        let (packet, position, acks, window) = numbers;
        let header = Header {
            flags,
            channel,
            cookie,
            packet: PacketNumber(packet),
            position: Position(position),
            acks: acks.map(Position),
            window,
            ..Header::new(kind)
        };
        (header, payload)
    })
}

proptest! {
    #[test]
    fn frames_survive((header, payload) in frame(), ethernet in any::<[[u8; 32]; 2]>()) {
        let ethernet: [u8; HEAD_LEN] = ethernet.concat().try_into().unwrap();
        let bytes = frames::emit(&header, &payload, &ethernet);
        prop_assert_eq!(&bytes[..ETHERNET_LEN], &ethernet[..ETHERNET_LEN]);
        let parsed = parse(&bytes).unwrap();
        prop_assert_eq!(Payload::from(&parsed.body), payload);
        // All fields that `seal` does not set.
        let Header { entries, data_len, payload_crc, .. } = parsed.header;
        prop_assert_eq!(parsed.header, Header { entries, data_len, payload_crc, ..header });
        prop_assert!(frames::check(&bytes));
    }

    #[test]
    fn introductions_survive(
        suite in suite(),
        (target_name, export_name) in (text(), text()),
        control in connect(),
    ) {
        let Control::Connect(connect) = control else { unreachable!("it makes these") };
        let introduction = Introduction { suite, target_name, export_name, connect };
        let bytes = introduction.to_bytes();
        prop_assert_eq!(Introduction::parse(&bytes), Ok(introduction));
        prop_assert!(Introduction::parse(&bytes[1..]).is_err());
    }

    #[test]
    fn verdicts_survive(
        suite in suite(),
        token in any::<[u8; 6]>(),
        key in any::<[u8; 32]>(),
        control in prop_oneof![accept(), rejection()],
    ) {
        let next_key = Some(key).filter(|key| key[0] & 1 == 1);
        let verdict = match control {
            Control::Accept(accept) => {
                Verdict::Accepted { suite, token: ResetToken(token), accept, next_key }
            }
            Control::Reject(rejection) => Verdict::Rejected(rejection),
            _ => unreachable!("they make these"),
        };
        let bytes = verdict.to_bytes();
        prop_assert_eq!(Verdict::parse(&bytes), Ok(verdict));
        prop_assert!(Verdict::parse(&bytes[1..]).is_err());
    }

    #[test]
    fn payloads_of_the_handshake_have_one_encoding(
        at in any::<proptest::sample::Index>(),
        byte: u8,
        control in prop_oneof![connect(), accept(), rejection()],
    ) {
        let (suite, token) = (CipherSuite::Aes128Gcm, ResetToken([7; 6]));
        let (target_name, export_name) = (Name::EMPTY, Name::EMPTY);
        let change = |bytes: &mut [u8]| {
            let index = at.index(bytes.len());
            bytes[index] = byte;
        };
        match control {
            Control::Connect(connect) => {
                let introduction = Introduction { suite, target_name, export_name, connect };
                let mut bytes = introduction.to_bytes();
                change(&mut bytes);
                if let Ok(parsed) = Introduction::parse(&bytes) {
                    prop_assert_eq!(parsed.to_bytes(), bytes);
                }
            }
            other => {
                let verdict = match other {
                    Control::Accept(accept) => {
                        Verdict::Accepted { suite, token, accept, next_key: None }
                    }
                    Control::Reject(rejection) => Verdict::Rejected(rejection),
                    _ => unreachable!("they make these"),
                };
                let mut bytes = verdict.to_bytes();
                change(&mut bytes);
                if let Ok(parsed) = Verdict::parse(&bytes) {
                    prop_assert_eq!(parsed.to_bytes(), bytes);
                }
            }
        }
    }

    #[test]
    fn entries_survive(entry in prop_oneof![
        small_entry(),
        data(REQUEST_LEN_MAX).prop_map(Entry::Data),
    ]) {
        let mut bytes = [0xa5; ENTRY_LEN];
        entry.emit(&mut bytes);
        prop_assert_eq!(Entry::parse(&bytes), Ok(entry));
    }

    #[test]
    fn accepted_entries_have_one_encoding(
        mut bytes in any::<[u8; ENTRY_LEN]>(),
        kind in 1..=4u8,
        code in 0..7u8,
        zeroed in any::<u32>(),
    ) {
        // Steered, for hardly any arbitrary bytes form an entry.
        bytes[0] = kind;
        bytes[1] = code;
        for (offset, byte) in bytes.iter_mut().enumerate().skip(2) {
            if zeroed >> offset & 1 != 0 { *byte = 0 }
        }
        if let Ok(entry) = Entry::parse(&bytes) {
            let mut again = [0xa5; ENTRY_LEN];
            entry.emit(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn texts_are_what_fits_without_control_characters(chars in vec(any::<char>(), 0..80)) {
        let whole = String::from_iter(chars);
        // Those that may not be in a text are not in one of their own either.
        let may_be = |c: &char| Name::new(c.encode_utf8(&mut [0; 4])).is_some();
        let clean: String = whole.chars().filter(may_be).collect();
        prop_assert!(!clean.contains(char::is_control));
        let cut = Name::truncated(&whole);
        prop_assert!(clean.starts_with(cut.as_str()));
        prop_assert_eq!(Name::new(cut.as_str()), Some(cut));
        // As long as possible: not even the next character would have fitted.
        let next = clean[cut.as_str().len()..].chars().next();
        prop_assert!(next.is_none_or(|c| cut.as_str().len() + c.len_utf8() > 63));
        let fits = clean == whole && whole.len() <= 63;
        prop_assert_eq!(Name::new(&whole).map(|name| name.to_string()), fits.then_some(whole));
    }

    #[test]
    fn positions_wrap(base: u32, n in 0..=i32::MAX.cast_unsigned()) {
        let base = Position(base);
        let ahead = base.plus(n);
        prop_assert_eq!(ahead.ahead_of(base), n.cast_signed());
        prop_assert_eq!(base.ahead_of(ahead), -n.cast_signed());
        prop_assert_eq!(base.plus(u32::MAX).ahead_of(base), -1);
        prop_assert_eq!(base.plus(1 << 31).ahead_of(base), i32::MIN);
    }

    #[test]
    fn tags_have_a_slot_below_a_generation(slot: u16, generation: u16) {
        let tag = Tag { slot, generation };
        prop_assert_eq!(tag.to_bits(), u32::from(generation) * 0x1_0000 + u32::from(slot));
        prop_assert_eq!(Tag::from_bits(tag.to_bits()), tag);
    }

    #[test]
    fn addresses_survive_their_text(bytes: [u8; 6]) {
        let mac = Mac(bytes);
        let text = mac.to_string();
        prop_assert_eq!(Mac::parse(&text), Some(mac));
        prop_assert_eq!(Mac::parse(&text.to_uppercase().replace(':', "-")), Some(mac));
    }
}

#[test]
fn texts_at_their_limits() {
    assert_eq!(Name::new(""), Some(Name::EMPTY));
    assert!(Name::EMPTY.is_empty() && Name::EMPTY.as_str().is_empty());
    let longest = "x".repeat(63);
    assert_eq!(Name::new(&longest).unwrap().as_str(), longest);
    assert_eq!(Name::new(&"x".repeat(64)), None);
    assert_eq!(Name::truncated(&"x".repeat(64)).as_str(), longest);
    // 62 bytes, and a character of two: it ends at the last usable byte, or after it.
    let even = "x".repeat(61) + "é";
    assert_eq!(Name::new(&even).unwrap().as_str(), even);
    let odd = "x".repeat(62) + "é";
    assert_eq!(Name::new(&odd), None);
    assert_eq!(Name::truncated(&odd).as_str(), "x".repeat(62));
    // The length is a byte, so no text is longer than 255, however large the field.
    assert_eq!(Text::<300>::new(&"x".repeat(256)), None);
    assert_eq!(Text::<300>::truncated(&"x".repeat(300)).as_str().len(), 255);
    for control in ["\0", "a\0b", "a\n", "\u{7f}", "\u{85}"] {
        assert_eq!(Name::new(control), None, "{control:?}");
    }
    assert_eq!(Name::truncated("a\0b\n\u{85}c").as_str(), "abc");
    assert_eq!(
        format!("[{:>4}] {:?}", Name::truncated("ab"), Name::truncated("a\"b")),
        r#"[  ab] "a\"b""#
    );
}

#[test]
fn what_is_no_address_is_refused() {
    for text in [
        "",
        "02:00:00:00:00",
        "02:00:00:00:00:01:02",
        "02:00:00:00:00:1",
        "02:00:00:00:00:001",
        "02:00:00:00:00:0g",
        "+2:00:00:00:00:01",
        "02:00:00:00:00: 1",
        "020000000001",
        "02:00:00:00:00:01 ",
    ] {
        assert_eq!(Mac::parse(text), None, "{text:?}");
    }
}
