//! Replays the fuzzer's corpus: sequences of what initiators do, and the fuzzer's findings.

#![allow(missing_docs, clippy::unwrap_used)]

mod hostile;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use tyche_scsi::Operation;

#[test]
fn initiators_may_send_anything() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/scsi");
    let mut operations = HashSet::new();
    let (mut answers, mut attentions, mut conflicts, mut refusals) = (0, 0, 0, 0);
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        // Identifies the input of a failed check.
        println!("{}", path.display());
        let seen = hostile::check(&fs::read(path).unwrap());
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
