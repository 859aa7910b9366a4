//! Replays the fuzzer's corpus: the golden frames, and the fuzzer's findings.

use std::collections::BTreeSet;

use tyche_testkit::corpus::corpus;

use crate::frames;

/// Checks every file of the corpus by the fuzzer's own rules. The golden frames must be among
/// them, so that the fuzzer starts from frames of every kind.
#[test]
fn the_corpus_is_rejected_or_the_only_encoding_of_its_meaning() {
    let mut inputs = BTreeSet::new();
    let mut accepted = 0;
    for input in corpus(env!("CARGO_MANIFEST_DIR"), "frame") {
        accepted += frames::check_all(&input);
        inputs.insert(input);
    }
    for name in frames::GOLDEN {
        assert!(inputs.contains(&frames::golden(name)), "{name} is not in the corpus");
    }
    assert!(accepted >= 3 * frames::GOLDEN.len());
}
