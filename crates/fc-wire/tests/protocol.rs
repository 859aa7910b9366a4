//! FC.md matches the code: its golden frames are those of the tests, and its tables have the codes,
//! names and limits of the crate.

use std::fs;

use tyche_fc_wire::*;
use tyche_testkit::document::{check_links, codes, decimal, hexadecimal, rows, table};

use crate::frames;

fn document() -> String {
    fs::read_to_string(frames::path("../../FC.md")).expect("FC.md is there")
}

#[test]
fn frames_are_the_golden_frames() {
    let path = frames::path("../../docs/golden-frames-fc.md");
    let document = fs::read_to_string(path).expect("docs/golden-frames-fc.md is there");
    frames::FILES.check_document(&document, &frames::GOLDEN);
}

#[test]
fn tables_have_the_codes() {
    let document = document();
    let codes = |heading| codes(&document, heading);
    assert_eq!(codes("### Kinds"), rows(4, Kind::ALL, Kind::to_wire));
    assert_eq!(codes("### SOF"), rows(2, Sof::ALL, Sof::to_wire));
    assert_eq!(codes("### EOF"), rows(2, Eof::ALL, Eof::to_wire));
    let operations = rows(3, fip::Operation::ALL, fip::Operation::to_wire);
    assert_eq!(codes("### Operations"), operations);
    let descriptors = decimal(fip::DescriptorKind::ALL, |kind| kind.to_wire().into());
    assert_eq!(codes("### Descriptors"), descriptors);
    assert_eq!(codes("### Codes"), rows(2, els::Code::ALL, els::Code::to_wire));
    let responses = decimal(fcp::ResponseCode::ALL, |code| code.to_wire().into());
    assert_eq!(codes("### Response codes"), responses);
    assert_eq!(codes("### Commands"), rows(4, ct::Command::ALL, ct::Command::to_wire));
    let rejects = table(&document, "## Rejected frames");
    let rejects: Vec<&str> = rejects.iter().skip(1).map(|row| row[0]).collect();
    assert_eq!(rejects, Reject::ALL.iter().map(|reject| reject.name()).collect::<Vec<_>>());
}

#[test]
fn tables_have_the_flags() {
    let document = document();
    let codes = |heading| codes(&document, heading);
    assert_eq!(codes("### F_CTL"), hexadecimal(6, FCtl::TABLE));
    let values = [
        (FCtl::REQUEST, "REQUEST"),
        (FCtl::REPLY, "REPLY"),
        (FCtl::XFER_RDY, "XFER_RDY"),
        (FCtl::WRITE_DATA, "WRITE_DATA"),
        (FCtl::WRITE_DATA_END, "WRITE_DATA_END"),
        (FCtl::READ_DATA, "READ_DATA"),
        (FCtl::READ_DATA_END, "READ_DATA_END"),
        (FCtl::RESPONSE, "RESPONSE"),
        (FCtl::RESPONSE_TO_CONFIRM, "RESPONSE_TO_CONFIRM"),
        (FCtl::ABTS, "ABTS"),
        (FCtl::CONFIRMATION, "CONFIRMATION"),
    ];
    let values = values.map(|(value, name)| (value.to_wire(), name));
    assert_eq!(codes("### Values of F_CTL"), hexadecimal(6, &values));
    assert_eq!(codes("### Flags"), hexadecimal(4, fip::Flags::TABLE));
    assert_eq!(codes("### Features"), hexadecimal(4, els::Features::TABLE));
    assert_eq!(codes("### Parameters of FCP"), hexadecimal(4, els::FcpParameters::TABLE));
    assert_eq!(codes("### Task management"), hexadecimal(2, fcp::TaskManagement::TABLE));
    assert_eq!(codes("### Flags of FCP_RSP"), hexadecimal(2, fcp::ResponseFlags::TABLE));
    use els::Rejection;
    let reasons = [
        (Rejection::LOGICAL, "LOGICAL"),
        (Rejection::BUSY, "BUSY"),
        (Rejection::UNABLE, "UNABLE"),
        (Rejection::UNSUPPORTED, "UNSUPPORTED"),
        (Rejection::IN_PROGRESS, "IN_PROGRESS"),
        (Rejection::FIP, "FIP"),
        (Rejection::INVALID_XID, "INVALID_XID"),
        (Rejection::NOT_LOGGED_IN, "NOT_LOGGED_IN"),
        (Rejection::UNKNOWN_NEIGHBOUR, "UNKNOWN_NEIGHBOUR"),
    ];
    assert_eq!(codes("### Refusals"), hexadecimal(2, &reasons));
}

#[test]
fn tables_have_the_limits_and_the_groups() {
    let document = document();
    let limits = [
        ("FRAME_LEN_MIN", FRAME_LEN_MIN),
        ("FRAME_LEN_MAX", FRAME_LEN_MAX),
        ("FCOE_LEN_MAX", fip::FCOE_LEN_MAX.into()),
        ("HEAD_LEN", HEAD_LEN),
        ("TAIL_LEN", TAIL_LEN),
        ("PAYLOAD_LEN_MAX", PAYLOAD_LEN_MAX),
        ("HEADER_LEN", fip::HEADER_LEN),
        ("LOGIN_LEN", els::LOGIN_LEN),
        ("SERVICE_LEN_MAX", fip::PAYLOAD_LEN_MAX),
        ("VN_PORTS_MAX", fip::VN_PORTS_MAX),
        ("VLANS_MAX", fip::VLANS_MAX),
        ("COMMAND_LEN", fcp::COMMAND_LEN),
        ("COMMAND_FRAME_LEN", fcp::COMMAND_FRAME_LEN),
        ("RESPONSE_LEN_MIN", fcp::Response::LEN_MIN),
        ("CT_HEADER_LEN", ct::CT_HEADER_LEN),
    ];
    let limits = limits.map(|(name, value)| [name.to_owned(), value.to_string()]);
    let shown = table(&document, "## Limits");
    let shown: Vec<_> = shown.iter().skip(1).map(|row| [row[0], row[1]]).collect();
    assert_eq!(shown, limits);
    let groups = [
        ("All-FCoE-MACs", fip::ALL_FCOE_MACS),
        ("All-ENode-MACs", fip::ALL_ENODE_MACS),
        ("All-FCF-MACs", fip::ALL_FCF_MACS),
        ("All-VN2VN-ENode-MACs", fip::ALL_VN2VN_ENODE_MACS),
        ("All-PT2PT-ENode-MACs", fip::ALL_PT2PT_ENODE_MACS),
    ];
    for (name, mac) in groups {
        let row = format!("| {name} | {mac} |");
        assert!(document.contains(&row), "no row {row}");
    }
}

#[test]
fn links_lead_to_headings() {
    check_links(&document());
}
