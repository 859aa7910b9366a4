//! `conformance/frames.json`, whose fields other implementations are tested with, and what the
//! suite's README says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use tyche_wire::{CipherSuite, ENTRY_LEN, HEAD_LEN, Introduction, Kind, Opcode, Reason, Status};

fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    fs::read_to_string(folder.join(name)).unwrap()
}

fn frames() -> Value {
    serde_json::from_str(&read("frames.json")).unwrap()
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

/// The length of fields whose length is fixed.
fn length(fields: &Value) -> usize {
    let kinds = fields.as_array().unwrap().iter().map(|field| field[1].as_str().unwrap());
    let words = kinds.map(|kind| kind.split(' ').collect::<Vec<_>>());
    let lengths = words.map(|words| match words[..] {
        ["u8", ..] => 1,
        ["u16", ..] => 2,
        ["u24", ..] => 3,
        ["u32", ..] | ["tag"] => 4,
        ["u64", ..] => 8,
        ["hex" | "text", len] => len.parse().unwrap(),
        _ => panic!("{words:?}"),
    });
    lengths.sum()
}

#[test]
fn each_kind_of_frame_has_its_fields() {
    let frames = frames();
    // An Ethernet header is before ours.
    assert_eq!(length(&frames["header"]), HEAD_LEN - 14);
    let entries = frames["entries"].as_object().unwrap();
    assert!(entries.values().all(|fields| length(fields) == ENTRY_LEN));
    assert_eq!(keys(&frames["entries"]), keys(&frames["names"]["entry"]));
    // A body follows each of them.
    let payloads = [("introduction", Introduction::LEN - 208), ("verdict", 8)];
    for (name, len) in payloads {
        assert_eq!(length(&frames["payloads"][name]), len, "{name}");
    }
    // Those of the others are their entries, or there are none.
    let has_body = |kind: &&Kind| {
        use Kind::{Command, Data, Disconnect, Echo, Keepalive, Void};
        !matches!(kind, Command | Data | Disconnect | Echo | Keepalive | Void)
    };
    let with_body = Kind::ALL.iter().filter(has_body).map(|kind| format!("{kind:?}"));
    assert_eq!(keys(&frames["bodies"]), with_body.collect());
}

#[test]
fn names_of_values_are_those_of_the_protocol() {
    fn codes<T: Copy + std::fmt::Debug>(
        all: &[T],
        code: impl Fn(T) -> u64,
    ) -> BTreeMap<String, u64> {
        all.iter().map(|&one| (format!("{one:?}"), code(one))).collect()
    }
    let names: BTreeMap<String, BTreeMap<String, u64>> =
        serde_json::from_value(frames()["names"].take()).unwrap();
    assert_eq!(names["kind"], codes(Kind::ALL, |kind| kind as u64));
    assert_eq!(names["operation"], codes(Opcode::ALL, |opcode| opcode as u64));
    assert_eq!(names["status"], codes(Status::ALL, |status| status as u64));
    assert_eq!(names["reason"], codes(Reason::ALL, |reason| reason as u64));
    assert_eq!(names["suite"], codes(CipherSuite::ALL, |suite| suite as u64));
}

#[test]
fn the_readme_names_fields_that_there_are() {
    let (readme, frames) = (read("README.md"), frames());
    let (_, after) = readme.split_once("the header's fields").unwrap();
    let named: Vec<_> = after.split(')').next().unwrap().split('`').skip(1).step_by(2).collect();
    assert!(named.len() > 1, "{named:?}");
    let header = frames["header"].as_array().unwrap();
    for name in named {
        assert!(header.iter().any(|field| field[0] == name), "no field {name:?}");
    }
}

/// The fields of Fibre Channel, whose layouts have the lengths of FC.md.
#[test]
fn kinds_of_frames_of_fibre_channel_are_those_of_the_protocol() {
    use tyche_fc::wire::{FC_HEADER_LEN, FCtl, Kind, fcp};
    let frames: Value = serde_json::from_str(&read("fc-frames.json")).unwrap();
    let code = |group: &str, name: &str| frames["names"][group][name].as_u64().unwrap();
    let kinds = [
        ("FcpData", Kind::FcpData),
        ("FcpConf", Kind::FcpConf),
        ("FcpXferRdy", Kind::FcpXferRdy),
        ("FcpCmnd", Kind::FcpCmnd),
        ("FcpRsp", Kind::FcpRsp),
        ("ElsRequest", Kind::ElsRequest),
        ("ElsReply", Kind::ElsReply),
        ("Abts", Kind::Abts),
        ("BaAcc", Kind::BaAcc),
        ("BaRjt", Kind::BaRjt),
    ];
    assert_eq!(keys(&frames["names"]["kind"]).len(), kinds.len());
    for (name, kind) in kinds {
        assert_eq!(code("kind", name), u64::from(kind.to_wire()), "{name}");
    }
    let values = [
        ("REQUEST", FCtl::REQUEST),
        ("REPLY", FCtl::REPLY),
        ("XFER_RDY", FCtl::XFER_RDY),
        ("WRITE_DATA", FCtl::WRITE_DATA),
        ("WRITE_DATA_END", FCtl::WRITE_DATA_END),
        ("READ_DATA", FCtl::READ_DATA),
        ("READ_DATA_END", FCtl::READ_DATA_END),
        ("RESPONSE", FCtl::RESPONSE),
        ("ABTS", FCtl::ABTS),
        ("CONFIRMATION", FCtl::CONFIRMATION),
    ];
    for (name, value) in values {
        assert_eq!(FCtl::from_wire(code("f_ctl", name) as u32), value, "{name}");
    }
    assert_eq!(length(&frames["header"]), FC_HEADER_LEN);
    assert_eq!(length(&frames["bodies"]["FcpCmnd"]), fcp::COMMAND_LEN);
    let lengths = [("FcpXferRdy", 12), ("BaAcc", 12), ("BaRjt", 4), ("Rec", 12), ("LsAcc", 24)];
    for (name, len) in lengths {
        assert_eq!(length(&frames["bodies"][name]), len, "{name}");
    }
}
