//! Replays the fuzzer's corpus, and the changes of each byte of it.

use std::collections::BTreeSet;

use tyche_testkit::corpus::corpus;

use crate::hostile;

#[test]
fn a_port_may_hear_anything() {
    let (mut ends, mut requests) = (BTreeSet::new(), 0);
    for input in corpus(env!("CARGO_MANIFEST_DIR"), "control") {
        let reached = hostile::check(&input);
        ends.insert(format!("{:?}", reached.end));
        requests += reached.requests;
        for byte in 0..input.len() {
            let mut changed = input.clone();
            changed[byte] ^= 1 << (byte % 8);
            hostile::check(&changed);
        }
    }
    assert!(requests > 5, "{requests}");
    // The corpus gets everywhere; nobody is slow.
    for end in ["None", "Closed", "NoProof", "Forged", "TooLong"] {
        assert!(ends.iter().any(|it| it.contains(end)), "{end} is not in {ends:?}");
    }
}
