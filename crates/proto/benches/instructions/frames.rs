//! Single frames: written and sealed, or parsed and gone through entry by entry.

use std::hint::black_box;

use tyche_proto::wire::{
    Body, ChannelId, Checksum, Checksums, Command, CommandFlags, Completion, Content, Cookie, Data,
    ETHERTYPE, Encoded, Encoder, Entry, Flags, Frame, Header, Kind, Mac, Opcode, PAGE_LEN, Status,
    Tag, Times,
};
use tyche_testkit::instructions::{Case, Round, case};

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
struct Sample {
    header: Header,
    content: Content,
    /// The parts of the data section.
    data: Vec<Vec<u8>>,
}

fn header(kind: Kind, flags: Flags) -> Header {
    Header { flags, channel: ChannelId(3), cookie: Cookie(0x1234_5678), ..Header::new(kind) }
}

fn tag(slot: u16) -> Tag {
    Tag { slot, generation: 7 }
}

fn commands() -> Sample {
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
    let content = Content::Entries(entries);
    Sample { header: header(Kind::Command, Flags::NONE), content, data: Vec::new() }
}

fn completion(slot: u16) -> Entry {
    Entry::Completion(Completion { tag: tag(slot), status: Status::Success, times: Times::ZERO })
}

fn completions() -> Sample {
    let entries = (0..16).map(completion).collect();
    let content = Content::Entries(entries);
    Sample { header: header(Kind::Command, Flags::NONE), content, data: Vec::new() }
}

/// The answers to two reads of a page.
fn pages() -> Sample {
    let (len, total) = (PAGE_LEN as u32, PAGE_LEN as u32);
    let data = |slot| Entry::Data(Data { tag: tag(slot), offset: 0, len, total, damq_page: 0 });
    let entries = [data(0), data(1), completion(0), completion(1)];
    Sample {
        header: header(Kind::Data, Flags::CHECKSUMMED),
        content: Content::Entries(entries.into_iter().collect()),
        data: vec![vec![0xa5; PAGE_LEN]; 2],
    }
}

/// Writes the frame; its data stay where they are.
fn write<T>(sample: &Sample, encoder: &mut Encoder, take: impl FnOnce(&Encoded<'_, '_>) -> T) -> T {
    let Sample { header, content, data } = sample;
    let data = data.iter().map(Vec::as_slice);
    encoder.encode((TARGET, HOST, ETHERTYPE), header, content, &Checksums, data, take)
}

fn emit(sample: Sample) -> Round {
    let mut encoder = Encoder::new();
    Box::new(move |count| {
        count(&mut || {
            write(black_box(&sample), &mut encoder, |frame| {
                black_box(frame);
            });
        });
    })
}

fn parse(sample: &Sample) -> Round {
    let frame: Vec<u8> =
        write(sample, &mut Encoder::new(), |frame| frame.pieces().flatten().copied().collect());
    Box::new(move |count| {
        let (head, payload) = frame.split_first_chunk().expect("a frame has a head");
        count(&mut || {
            let frame = Frame::parse(black_box(head), black_box(payload));
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
