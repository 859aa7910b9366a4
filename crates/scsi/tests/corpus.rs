//! Replays the fuzzer's corpus: sequences of what initiators do, and the fuzzer's findings.

use std::collections::HashSet;

use tyche_scsi::Operation;
use tyche_testkit::corpus::corpus;

use crate::hostile;

#[test]
fn initiators_may_send_anything() {
    let mut operations = HashSet::new();
    let (mut answers, mut attentions, mut conflicts, mut refusals) = (0, 0, 0, 0);
    for input in corpus(env!("CARGO_MANIFEST_DIR"), "scsi") {
        let seen = hostile::check(&input);
        answers += seen.answers;
        attentions += seen.attentions;
        conflicts += seen.conflicts;
        refusals += seen.refusals;
        operations.extend(seen.operations);
    }
    // The fuzzer's seeds reach all of these.
    for count in [answers, attentions, conflicts, refusals] {
        assert!(count > 0, "{answers} {attentions} {conflicts} {refusals}");
    }
    for operation in [
        Operation::Read,
        Operation::Write { fua: false },
        Operation::Write { fua: true },
        Operation::Flush,
        Operation::Discard,
        Operation::WriteZeroes { fua: false, may_unmap: false },
        Operation::WriteZeroes { fua: false, may_unmap: true },
    ] {
        assert!(operations.contains(&operation), "no sequence asks for {operation:?}");
    }
}
