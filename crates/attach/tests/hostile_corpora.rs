//! Replays the fuzzers' corpora: their seed sessions, and their findings.

#![allow(missing_docs, clippy::unwrap_used)]

mod hostile;

use std::collections::HashSet;

use tyche_attach::nbd::Ending;
use tyche_block::Operation::{self, BlockStatus, Discard, Flush, Read, Write, WriteZeroes};
use tyche_testkit::corpus::corpus;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Operations that sessions of every kind ask for.
const COMMON: [Operation; 5] = [Read, Write { fua: false }, Write { fua: true }, Flush, Discard];

#[test]
fn an_nbd_client_may_say_anything() {
    let (mut endings, mut executed) = (HashSet::new(), HashSet::new());
    for input in corpus(ROOT, "nbd_handshake") {
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
    for operation in COMMON.into_iter().chain(zeroes).chain([BlockStatus]) {
        assert!(executed.contains(&operation), "no session asks for {operation:?}");
    }
}

#[test]
fn a_guest_may_write_anything() {
    let (mut executed, mut broken, mut refused) = (HashSet::new(), 0, 0);
    let inputs = corpus(ROOT, "virtqueue_chain");
    for outcome in inputs.filter_map(|input| hostile::guest::check(&input)) {
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
