//! Replays the fuzzers' corpora: their seed sessions, and their findings.

#![allow(missing_docs, clippy::unwrap_used)]

mod hostile;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use tyche_attach::nbd::Ending;
use tyche_block::Operation::{self, Discard, Flush, Read, Write, WriteZeroes};

/// Operations that sessions of every kind ask for.
const COMMON: [Operation; 5] = [Read, Write { fua: false }, Write { fua: true }, Flush, Discard];

/// Each file of a target's corpus.
fn corpus(target: &str) -> impl Iterator<Item = Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    fs::read_dir(dir).unwrap().map(|file| {
        let path = file.unwrap().path();
        // Identifies the input of a failed check.
        println!("{}", path.display());
        fs::read(path).unwrap()
    })
}

#[test]
fn an_nbd_client_may_say_anything() {
    let (mut endings, mut executed) = (HashSet::new(), HashSet::new());
    for input in corpus("nbd_handshake") {
        let session = hostile::nbd::check(&input);
        endings.insert(session.ending.to_string());
        executed.extend(session.executed);
    }
    // The fuzzer's seeds reach all of these.
    for ending in [
        Ending::Disconnected,
        Ending::HungUp,
        Ending::Aborted,
        Ending::BadMagic,
        Ending::BadFlags,
        Ending::OptionTooLong,
        Ending::TooManyOptions,
        Ending::UnknownExport,
        Ending::WriteTooLong,
        Ending::Truncated,
    ] {
        assert!(endings.contains(&ending.to_string()), "no session ends with: {ending}");
    }
    let zeroes = [(false, false), (true, true)];
    let zeroes = zeroes.map(|(fua, may_unmap)| WriteZeroes { fua, may_unmap });
    for operation in COMMON.into_iter().chain(zeroes) {
        assert!(executed.contains(&operation), "no session asks for {operation:?}");
    }
}

#[test]
fn a_guest_may_write_anything() {
    let (mut executed, mut broken, mut refused) = (HashSet::new(), 0, 0);
    for outcome in corpus("virtqueue_chain").filter_map(|input| hostile::guest::check(&input)) {
        match outcome {
            Some((served, operations)) => {
                broken += u32::from(served.broken);
                executed.extend(operations);
            }
            None => refused += 1,
        }
    }
    assert!(broken > 0 && refused > 0, "{broken} queues are broken, {refused} refused");
    for operation in COMMON.into_iter().chain([WriteZeroes { fua: false, may_unmap: true }]) {
        assert!(executed.contains(&operation), "no guest asks for {operation:?}");
    }
}
