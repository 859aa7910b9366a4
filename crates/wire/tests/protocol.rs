//! PROTOCOL.md matches the code: its golden frames are those of the tests, and its tables have the
//! codes, names and limits of the crate.

use std::fs;

use tyche_testkit::document::{check_links, codes, decimal, hexadecimal, table};
use tyche_wire::*;

use crate::frames;

fn document() -> String {
    fs::read_to_string(frames::path("../../PROTOCOL.md")).expect("PROTOCOL.md is there")
}

fn annexes() -> String {
    fs::read_to_string(frames::path("../../docs/protocol-annexes.md"))
        .expect("the annexes are there")
}

fn golden_frames() -> String {
    let path = frames::path("../../docs/golden-frames.md");
    fs::read_to_string(path).expect("docs/golden-frames.md is there")
}

#[test]
fn frames_are_the_golden_frames() {
    frames::FILES.check_document(&golden_frames(), &frames::GOLDEN);
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
    let mut rejects: Vec<&str> =
        rejects.iter().map(|row| row[0]).filter(|name| *name != "reason").collect();
    let mut names: Vec<&str> = Reject::ALL.iter().map(|reject| reject.name()).collect();
    // The table is in the order of the checks.
    rejects.sort_unstable();
    names.sort_unstable();
    assert_eq!(rejects, names);
}

#[test]
fn rejects_are_in_the_order_of_the_checks() {
    let document = document();
    let rows = table(&document, "## Rejected frames");
    let steps = rows.iter().skip(1).map(|row| row[1].split(',').next().unwrap().parse::<u32>());
    let steps: Vec<u32> = steps.collect::<Result<_, _>>().expect("each has a first step");
    assert!(steps.is_sorted(), "{steps:?}");
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
    assert_eq!(codes(&document, "### Flags"), hexadecimal(4, &flags));
    let flags =
        [(u32::from(CommandFlags::FUA.0), "FUA"), (CommandFlags::MAY_UNMAP.0.into(), "MAY_UNMAP")];
    assert_eq!(codes(&document, "### Command"), hexadecimal(4, &flags));
    let flags = [
        (ExportFlags::READ_ONLY.0, "READ_ONLY"),
        (ExportFlags::WRITE_CACHE.0, "WRITE_CACHE"),
        (ExportFlags::HELD.0, "HELD"),
        (ExportFlags::SHARED.0, "SHARED"),
    ];
    assert_eq!(codes(&document, "### Offer"), hexadecimal(4, &flags));
    let flags = [
        (ConnectFlags::READ_ONLY.0, "READ_ONLY"),
        (ConnectFlags::CHECKSUM.0, "CHECKSUM"),
        (ConnectFlags::RESUME.0, "RESUME"),
        (ConnectFlags::STAGES.0, "STAGES"),
        (ConnectFlags::BLOCK_STATUS.0, "BLOCK_STATUS"),
    ];
    assert_eq!(codes(&document, "### Connect"), hexadecimal(4, &flags));
    let flags = [
        (AcceptFlags::READ_ONLY.0, "READ_ONLY"),
        (AcceptFlags::CHECKSUM.0, "CHECKSUM"),
        (AcceptFlags::WRITE_CACHE.0, "WRITE_CACHE"),
        (AcceptFlags::DISCARD.0, "DISCARD"),
        (AcceptFlags::STAGES.0, "STAGES"),
        (AcceptFlags::ROTATIONAL.0, "ROTATIONAL"),
        (AcceptFlags::BLOCK_STATUS.0, "BLOCK_STATUS"),
    ];
    assert_eq!(codes(&document, "### Accept"), hexadecimal(4, &flags));
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
        ("TAG_LEN", TAG_LEN),
        ("FRAME_LEN_MIN", FRAME_LEN_MIN),
        ("FRAME_LEN_MAX", FRAME_LEN_MAX),
        ("KEEP_ALIVE_MS_MAX", KEEP_ALIVE_MS_MAX as usize),
        ("RECORDS_MAX", RECORDS_MAX),
        ("KEY_LEN", Offer::KEY_LEN),
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

#[test]
fn links_lead_to_headings() {
    check_links(&document());
    check_links(&annexes());
}
