//! Replays the fuzzers' corpora: the golden frames and their payloads, those of other
//! implementations (`captures`), and what the fuzzers found.

use std::collections::BTreeSet;
use std::fs;

use crate::frames;
use crate::frames::{Any, CAPTURES, ELS_KINDS, FCP_KINDS, GOLDEN, capture, captured, golden};
use crate::frames::{is_fip, parse};
use tyche_fc_wire::Kind;
use tyche_testkit::corpus::{corpus, folder};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Replays a corpus by the fuzzer's own rules. `seeds` must be in it, so that the fuzzer starts
/// from frames of every kind. `TYCHE_BLESS=1` adds them.
fn replay(fuzzer: &str, seeds: &[(String, Vec<u8>)], check: impl Fn(&[u8]) -> usize) {
    if std::env::var_os("TYCHE_BLESS").is_some() {
        let folder = folder(ROOT, fuzzer);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, seed) in seeds {
            fs::write(folder.join(name), seed).expect("a file that can be written");
        }
    }
    let (mut known, mut accepted) = (BTreeSet::new(), 0);
    for input in corpus(ROOT, fuzzer) {
        accepted += usize::from(check(&input) > 0);
        known.insert(input);
    }
    for (name, seed) in seeds {
        assert!(known.contains(seed), "{name} is not in the corpus of {fuzzer}");
    }
    assert!(accepted >= seeds.len(), "{accepted} of {} were accepted", known.len());
}

/// All golden frames and captured ones, with their names.
fn known_frames() -> Vec<(String, Vec<u8>)> {
    let mut frames = GOLDEN.map(|name| (name.to_owned(), golden(name))).to_vec();
    for name in CAPTURES {
        let file = capture(name);
        let numbered = (1..).zip(captured(&file));
        frames.extend(numbered.map(|(number, it)| (format!("{name}-{number}"), it.to_vec())));
    }
    unlike(frames)
}

/// Leaves out what is there already.
fn unlike(mut seeds: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut known = BTreeSet::new();
    seeds.retain(|(_, seed)| known.insert(seed.clone()));
    seeds
}

/// The frames for which `wanted` holds.
fn frames_where(wanted: impl Fn(&[u8]) -> bool) -> Vec<(String, Vec<u8>)> {
    let mut frames = known_frames();
    frames.retain(|(_, frame)| wanted(frame));
    frames
}

/// The payloads of frames of these kinds, as the fuzzer takes them.
fn payloads(kinds: &[Kind]) -> Vec<(String, Vec<u8>)> {
    let seed = |(name, bytes): (String, Vec<u8>)| {
        let Ok(Any::Fc(frame)) = parse(&bytes) else { return None };
        let choice = kinds.iter().position(|kind| *kind == frame.header.kind)?;
        let parameter = frame.header.parameter.to_be_bytes();
        let input = [&[choice as u8], &parameter[..], frame.payload].concat();
        Some((name, input))
    };
    unlike(known_frames().into_iter().filter_map(seed).collect())
}

#[test]
fn frames_of_fip() {
    replay("fip", &frames_where(is_fip), frames::fuzz_frame);
}

#[test]
fn encapsulated_frames() {
    replay("fc_frame", &frames_where(|frame| !is_fip(frame)), frames::fuzz_frame);
}

#[test]
fn link_services() {
    replay("els", &payloads(&ELS_KINDS), |input| frames::fuzz_payload(&ELS_KINDS, input));
}

#[test]
fn information_units() {
    replay("fcp", &payloads(&FCP_KINDS), |input| frames::fuzz_payload(&FCP_KINDS, input));
}
