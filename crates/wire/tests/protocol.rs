//! PROTOCOL.md matches the code: its golden frames are those of the tests, and its tables have the
//! codes, names and limits of the crate.

mod frames;

use std::fmt::Debug;
use std::fs;

use tyche_wire::*;

fn document() -> String {
    fs::read_to_string(frames::path("../../PROTOCOL.md")).expect("PROTOCOL.md is there")
}

fn golden_frames() -> String {
    let path = frames::path("../../docs/golden-frames.md");
    fs::read_to_string(path).expect("docs/golden-frames.md is there")
}

/// The code blocks marked as frames: name and text.
fn frames_of(document: &str) -> Vec<(&str, &str)> {
    let blocks = document.split("\n```frame ").skip(1);
    let blocks = blocks.map(|rest| {
        let (name, rest) = rest.split_once('\n').expect("a line with the name");
        let (text, _) = rest.split_once("\n```\n").expect("an end of the block");
        (name, text)
    });
    blocks.collect()
}

/// The rows of the table behind the heading, cell by cell.
fn table<'a>(document: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = document
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    section
        .lines()
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim_matches([' ', '`'])))
        .map(Iterator::collect)
        .collect()
}

/// The first two cells of all rows, without the head of the table.
fn codes(document: &str, heading: &str) -> Vec<(String, String)> {
    let rows = table(document, heading);
    let rows = rows.iter().filter(|row| row[0].starts_with(|first: char| first.is_numeric()));
    rows.map(|row| (row[0].to_string(), row[1].to_string())).collect()
}

fn decimal<T: Copy + Debug>(all: &[T], code: impl Fn(T) -> u32) -> Vec<(String, String)> {
    all.iter().map(|&one| (code(one).to_string(), format!("{one:?}"))).collect()
}

fn hexadecimal(flags: &[(u32, &str)]) -> Vec<(String, String)> {
    flags.iter().map(|(bit, name)| (format!("{bit:#06x}"), name.to_string())).collect()
}

#[test]
fn frames_are_the_golden_frames() {
    let document = golden_frames();
    let shown = frames_of(&document);
    let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, frames::GOLDEN);
    for (name, text) in shown {
        assert_eq!(frames::decode(text), frames::golden(name), "{name}");
        // Including its comments.
        assert_eq!(text, frames::golden_text(name).trim_end(), "{name}");
    }
}

#[test]
fn tables_have_the_codes() {
    let document = document();
    let kinds = Kind::ALL.iter().map(|&kind| (format!("{:#04x}", kind as u8), format!("{kind:?}")));
    assert_eq!(codes(&document, "### Kinds"), kinds.collect::<Vec<_>>());
    assert_eq!(codes(&document, "### Operations"), decimal(Opcode::ALL, |code| code as u32));
    assert_eq!(codes(&document, "### Statuses"), decimal(Status::ALL, |code| code as u32));
    assert_eq!(codes(&document, "### Reject"), decimal(Reason::ALL, |code| code as u32));
    let rejects = table(&document, "## Rejected frames");
    let rejects: Vec<&str> =
        rejects.iter().map(|row| row[0]).filter(|name| *name != "reason").collect();
    assert_eq!(rejects, Reject::ALL.iter().map(|reject| reject.name()).collect::<Vec<_>>());
}

#[test]
fn tables_have_the_flags() {
    let document = document();
    let flags = [
        (u32::from(Flags::CHECKSUMMED.0), "CHECKSUMMED"),
        (Flags::REPLY.0.into(), "REPLY"),
        (Flags::DATA_RING.0.into(), "DATA_RING"),
        (Flags::ACK_REQUEST.0.into(), "ACK_REQUEST"),
        (Flags::CONGESTED.0.into(), "CONGESTED"),
    ];
    assert_eq!(codes(&document, "### Flags"), hexadecimal(&flags));
    let flags =
        [(u32::from(CommandFlags::FUA.0), "FUA"), (CommandFlags::MAY_UNMAP.0.into(), "MAY_UNMAP")];
    assert_eq!(codes(&document, "### Command"), hexadecimal(&flags));
    let flags = [
        (ExportFlags::READ_ONLY.0, "READ_ONLY"),
        (ExportFlags::WRITE_CACHE.0, "WRITE_CACHE"),
        (ExportFlags::HELD.0, "HELD"),
        (ExportFlags::SHARED.0, "SHARED"),
    ];
    assert_eq!(codes(&document, "### Offer"), hexadecimal(&flags));
    let flags = [
        (ConnectFlags::READ_ONLY.0, "READ_ONLY"),
        (ConnectFlags::CHECKSUM.0, "CHECKSUM"),
        (ConnectFlags::RESUME.0, "RESUME"),
        (ConnectFlags::STAGES.0, "STAGES"),
    ];
    assert_eq!(codes(&document, "### Connect"), hexadecimal(&flags));
    let flags = [
        (AcceptFlags::READ_ONLY.0, "READ_ONLY"),
        (AcceptFlags::CHECKSUM.0, "CHECKSUM"),
        (AcceptFlags::WRITE_CACHE.0, "WRITE_CACHE"),
        (AcceptFlags::DISCARD.0, "DISCARD"),
        (AcceptFlags::STAGES.0, "STAGES"),
        (AcceptFlags::ROTATIONAL.0, "ROTATIONAL"),
    ];
    assert_eq!(codes(&document, "### Accept"), hexadecimal(&flags));
}

#[test]
fn the_table_of_limits_has_the_constants() {
    let document = document();
    let rows = table(&document, "## Limits");
    let rows: Vec<(&str, &str)> = rows.iter().skip(1).map(|row| (row[0], row[1])).collect();
    let limits = [
        ("VERSION", usize::from(VERSION)),
        ("ETHERNET_LEN", ETHERNET_LEN),
        ("HEAD_LEN", HEAD_LEN),
        ("ENTRY_LEN", ENTRY_LEN),
        ("ENTRIES_MAX", ENTRIES_MAX),
        ("BODY_LEN_MAX", Control::LEN_MAX),
        ("HELLO_LEN_MIN", HEAD_LEN + Hello::FIELDS_LEN),
        ("TICKET_LEN", Ticket::LEN),
        ("PAGE_LEN", PAGE_LEN),
        ("PART_UNIT", PART_UNIT as usize),
        ("SECTOR_LEN", SECTOR_LEN as usize),
        ("REQUEST_LEN_MAX", REQUEST_LEN_MAX as usize),
        ("FRAME_LEN_MIN", FRAME_LEN_MIN),
        ("FRAME_LEN_MAX", FRAME_LEN_MAX),
        ("KEEP_ALIVE_MS_MAX", KEEP_ALIVE_MS_MAX as usize),
        ("RECORDS_MAX", RECORDS_MAX),
        ("TAGS_MAX", TAGS_MAX),
        ("OUTCOMES_MAX", OUTCOMES_MAX),
        ("BITMAP_WORDS_MAX", BITMAP_WORDS_MAX),
        ("ECHO_REPLIES_MAX", ECHO_REPLIES_MAX.into()),
        ("ECHO_LEN_MIN", Echo::LEN_MIN),
    ];
    let limits = limits.map(|(name, value)| (name, value.to_string()));
    let limits: Vec<_> = limits.iter().map(|(name, value)| (*name, &value[..])).collect();
    assert_eq!(rows, limits);
}

/// Links within the document have a target.
#[test]
fn links_lead_to_headings() {
    let document = document();
    let mut anchors: Vec<String> = Vec::new();
    for heading in document.lines().filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let keep = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-');
        let anchor = text.chars().filter(keep).collect::<String>().replace(' ', "-");
        let repeats = anchors.iter().filter(|other| **other == anchor).count();
        anchors.push(anchor.clone());
        if repeats > 0 {
            anchors.push(format!("{anchor}-{repeats}"));
        }
    }
    let links = document.split("](#").skip(1).map(|rest| rest.split(')').next().unwrap());
    for link in links {
        assert!(anchors.iter().any(|anchor| anchor == link), "no heading for #{link}");
    }
}
