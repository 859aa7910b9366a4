//! Replays the fuzzer's corpus of the contents of sealed connects and their answers.

use tyche_testkit::corpus::corpus;
use tyche_wire::{Introduction, Verdict};

use crate::sealed;

#[test]
fn what_is_sealed_is_rejected_or_the_only_encoding_of_its_meaning() {
    let (mut introductions, mut accepts, mut rejections) = (0, 0, 0);
    for input in corpus(env!("CARGO_MANIFEST_DIR"), "sealed") {
        sealed::check(&input);
        introductions += usize::from(Introduction::parse(&input).is_ok());
        match Verdict::parse(&input) {
            Ok(Verdict::Accepted { .. }) => accepts += 1,
            Ok(Verdict::Rejected(_)) => rejections += 1,
            Err(_) => {}
        }
        // Each byte counts, or is one of a text that may be another.
        for byte in 0..input.len() {
            let mut changed = input.clone();
            changed[byte] ^= 1;
            sealed::check(&changed);
        }
    }
    assert!(introductions > 0 && accepts > 0 && rejections > 0);
}
