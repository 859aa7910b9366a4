//! Golden frames: one literal frame for every kind, parsed to its value and emitted from that value
//! to the same bytes. The literals were made from FC.md by code other than the crate's, so that an
//! error in one is not confirmed by the same error in the other.

use std::collections::BTreeSet;

use crate::frames;
use crate::frames::{Any, GOLDEN, Payload, golden, parse};
use crate::values::{Expected, expected};
use tyche_fc_wire::{Kind, ct, els, fip};

#[test]
fn frames_are_parsed_to_their_values() {
    for name in GOLDEN {
        let bytes = golden(name);
        match (parse(&bytes), expected(name)) {
            (Ok(Any::Fip(frame)), Expected::Fip(expected)) => assert_eq!(frame, expected, "{name}"),
            (Ok(Any::Fc(frame)), Expected::Fc(ethernet, header, payload)) => {
                assert_eq!((frame.ethernet, frame.header), (ethernet, header), "{name}");
                let meanings = Payload::parse(&frame.header, frame.payload);
                assert!(meanings.contains(&Ok(payload.clone())), "{name}: {meanings:?}");
            }
            (parsed, _) => panic!("{name}: {parsed:?}"),
        }
    }
}

#[test]
fn values_are_emitted_to_their_frames() {
    for name in GOLDEN {
        let bytes = golden(name);
        let emitted = match expected(name) {
            Expected::Fip(frame) => Any::Fip(frame).emit(),
            Expected::Fc(ethernet, header, payload) => {
                let payload = payload.emit();
                let frame = tyche_fc_wire::Frame { ethernet, header, payload: &payload };
                Any::Fc(frame).emit()
            }
        };
        assert_eq!(emitted, bytes, "{name}");
        assert!(frames::check(&bytes), "{name}");
    }
    frames::FILES.check_files(&GOLDEN);
}

#[test]
fn there_is_a_frame_for_every_kind_and_code() {
    let (mut operations, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let (mut requests, mut commands) = (BTreeSet::new(), BTreeSet::new());
    for name in GOLDEN {
        match expected(name) {
            Expected::Fip(frame) => _ = operations.insert(frame.message.operation()),
            Expected::Fc(_, header, payload) => {
                kinds.insert(header.kind);
                match payload {
                    Payload::Els(request) => _ = requests.insert(request.code()),
                    Payload::Ct(request) => _ = commands.insert(request.command()),
                    _ => {}
                }
            }
        }
    }
    assert_eq!(operations, fip::Operation::ALL.iter().copied().collect());
    assert_eq!(kinds, Kind::ALL.iter().copied().collect());
    assert_eq!(commands, ct::Command::ALL.iter().copied().collect());
    // FLOGI is in a frame of FIP; FDISC and PDISC are alike to FLOGI and PLOGI.
    use els::Code::*;
    let elsewhere = [LsRjt, LsAcc, Flogi, Fdisc, Pdisc];
    let all = els::Code::ALL.iter().copied().filter(|code| !elsewhere.contains(code));
    assert_eq!(requests, all.collect());
}
