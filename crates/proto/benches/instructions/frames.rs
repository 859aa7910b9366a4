//! Single frames: written and sealed, or parsed and gone through entry by entry.

use std::hint::black_box;

use tyche_proto::wire::{
    Body, ChannelId, Checksum, Command, CommandFlags, Completion, Cookie, Data, ENTRIES_MAX,
    ENTRY_LEN, ETHERTYPE, Entry, Flags, Frame, HEAD_LEN, Header, Kind, Mac, Opcode, PAGE_LEN,
    Status, Tag, Times, emit_entries,
};

use crate::{Case, Round, case};

const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TARGET: Mac = Mac([2, 0, 0, 0, 0, 2]);

pub(crate) const CASES: &[Case] = &[
    case("checksum_page", 1, checksum_page),
    case("emit_16_commands", 1, || emit(commands())),
    case("parse_16_commands", 1, || parse(&commands())),
    case("emit_16_completions", 1, || emit(completions())),
    case("parse_16_completions", 1, || parse(&completions())),
    case("emit_2_pages", 1, || emit(pages())),
    case("parse_2_pages", 1, || parse(&pages())),
];

/// The checksum of a page by itself, the greater part of every frame with data.
fn checksum_page() -> Round {
    let page = vec![0xa5; PAGE_LEN];
    Box::new(move |count| {
        count(&mut || {
            black_box(Checksum::of(black_box(&page)));
        });
    })
}

/// What a frame is made of.
struct Content {
    header: Header,
    entries: Vec<Entry>,
    /// The parts of the data section.
    data: Vec<Vec<u8>>,
}

fn header(kind: Kind, flags: Flags) -> Header {
    Header { flags, channel: ChannelId(3), cookie: Cookie(0x1234_5678), ..Header::new(kind) }
}

fn tag(slot: u16) -> Tag {
    Tag { slot, generation: 7 }
}

fn commands() -> Content {
    let command = |slot| {
        Entry::Command(Command {
            opcode: Opcode::Read,
            flags: CommandFlags::NONE,
            tag: tag(slot),
            offset: u64::from(slot) * PAGE_LEN as u64,
            len: PAGE_LEN as u32,
            damq_page: slot.into(),
        })
    };
    let entries = (0..16).map(command).collect();
    Content { header: header(Kind::Command, Flags::NONE), entries, data: Vec::new() }
}

fn completion(slot: u16) -> Entry {
    Entry::Completion(Completion { tag: tag(slot), status: Status::Success, times: Times::ZERO })
}

fn completions() -> Content {
    let entries = (0..16).map(completion).collect();
    Content { header: header(Kind::Command, Flags::NONE), entries, data: Vec::new() }
}

/// The answers to two reads of a page.
fn pages() -> Content {
    let (len, total) = (PAGE_LEN as u32, PAGE_LEN as u32);
    let data = |slot| Entry::Data(Data { tag: tag(slot), offset: 0, len, total, damq_page: 0 });
    Content {
        header: header(Kind::Data, Flags::CHECKSUMMED),
        entries: vec![data(0), data(1), completion(0), completion(1)],
        data: vec![vec![0xa5; PAGE_LEN]; 2],
    }
}

type Head = [u8; HEAD_LEN];
type Tail = [u8; ENTRIES_MAX * ENTRY_LEN];

/// Writes the frame but for its data section; returns how long the tail is.
fn write(content: &Content, head: &mut Head, tail: &mut Tail) -> usize {
    let len = emit_entries(&content.entries, tail);
    let data = content.data.iter().map(Vec::as_slice);
    content.header.seal((TARGET, HOST, ETHERTYPE), data, &tail[..len], head);
    len
}

fn emit(content: Content) -> Round {
    let (mut head, mut tail) = ([0; HEAD_LEN], [0; ENTRIES_MAX * ENTRY_LEN]);
    Box::new(move |count| {
        count(&mut || {
            black_box(write(black_box(&content), &mut head, &mut tail));
        });
    })
}

fn parse(content: &Content) -> Round {
    let (mut head, mut tail) = ([0; HEAD_LEN], [0; ENTRIES_MAX * ENTRY_LEN]);
    let len = write(content, &mut head, &mut tail);
    let payload = [content.data.concat(), tail[..len].to_vec()].concat();
    Box::new(move |count| {
        count(&mut || {
            let frame = Frame::parse(black_box(&head), black_box(&payload));
            let frame = frame.expect("what was emitted can be parsed");
            let Body::Entries { entries, .. } = frame.body else {
                unreachable!("a frame of a ring carries entries")
            };
            for entry in entries.iter() {
                black_box(entry);
            }
        });
    })
}
