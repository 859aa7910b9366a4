//! Replays the fuzzer's corpus of peers that write what they want.

use tyche_testkit::corpus::corpus;

use crate::hostile::{self, Outcome};

#[test]
fn a_peer_may_write_anything_into_our_window() {
    let mut all = Outcome::default();
    let mut broken = 0;
    for input in corpus(env!("CARGO_MANIFEST_DIR"), "rdma_window") {
        let outcome = hostile::check(&input);
        all.received += outcome.received;
        all.sent += outcome.sent;
        all.waited += outcome.waited;
        all.is_invited |= outcome.is_invited;
        broken += u32::from(outcome.is_broken);
    }
    // The corpus gets everywhere.
    assert!(all.received > 0 && all.sent > 0 && all.waited > 0 && all.is_invited, "{all:?}");
    assert!(broken > 0);
}
