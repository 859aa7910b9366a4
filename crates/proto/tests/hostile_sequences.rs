//! The fuzzers' corpora, replayed: the sequences that they start from, and what they found worth
//! keeping. Builds with a rule off are run on them, too, so that the checks are known to see.

#![allow(missing_docs, clippy::unwrap_used)]

mod hostile;

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use hostile::Victim;
use tyche_proto::wire::Reject;
use tyche_proto::{Rules, Sound};
use tyche_testkit::corpus::corpus;

/// The inputs of the fuzzer for a victim.
fn inputs(victim: Victim) -> impl Iterator<Item = Vec<u8>> {
    let fuzzer = if victim == Victim::Target { "listener" } else { "session" };
    corpus(env!("CARGO_MANIFEST_DIR"), fuzzer)
}

/// Replays a corpus; the rejects, failures and numbers of all of it.
fn replay(victim: Victim) -> (BTreeSet<&'static str>, BTreeSet<String>, hostile::Report) {
    let (mut rejects, mut failures) = (BTreeSet::new(), BTreeSet::new());
    let mut sum = hostile::Report::default();
    for input in inputs(victim) {
        let report = hostile::check::<Sound>(victim, &input);
        rejects.extend(report.rejects);
        failures.extend(report.failure);
        sum.executions += report.executions;
        sum.modifications += report.modifications;
        sum.succeeded += report.succeeded;
        sum.failed += report.failed;
    }
    (rejects, failures, sum)
}

/// Asserts that the corpus gets everywhere: what is not among `but` is found.
fn assert_all_but(found: &BTreeSet<&'static str>, but: &[Reject]) {
    let missing = Reject::ALL.iter().filter(|reject| !found.contains(reject.name()));
    let missing: Vec<_> = missing.filter(|reject| !but.contains(reject)).collect();
    assert!(missing.is_empty(), "no sequence is rejected for {missing:?}");
}

#[test]
fn a_listener_may_hear_anything() {
    let (rejects, _, sum) = replay(Victim::Target);
    // No sequence of the corpus is as long as a flood.
    assert_all_but(&rejects, &[Reject::Busy]);
    assert!(sum.modifications > 0 && sum.executions > sum.modifications);
    assert!(sum.succeeded > 0 && sum.failed > 0);
}

#[test]
fn a_session_may_hear_anything() {
    let (rejects, failures, sum) = replay(Victim::Host);
    // Where data are placed is for a target to look at.
    assert_all_but(&rejects, &[Reject::Placement, Reject::Code, Reject::Busy]);
    assert!(failures.len() > 8, "sessions fail with {failures:?} only");
    assert!(sum.succeeded > 0 && sum.failed > 0);
}

/// Builds with one rule off, each with whether the corpora show it.
macro_rules! canaries {
    ($($rule:ident,)*) => {
        $(
            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types, reason = "named for the rule that it breaks")]
            struct $rule;

            impl Rules for $rule {
                const $rule: bool = false;
            }
        )*

        fn canaries() -> Vec<(&'static str, fn(Victim, &[u8]))> {
            vec![$((stringify!($rule), |victim, input| {
                hostile::check::<$rule>(victim, input);
            })),*]
        }
    };
}

canaries! {
    SUPPRESS_DUPLICATES,
    REMEMBER_EXECUTED,
    CHECK_COOKIE,
    CHECK_PAYLOAD,
    CHECK_TICKET,
    FENCE_BEFORE_REISSUE,
    FENCE_AFTER_RESET,
    USE_OUTCOMES,
    ENFORCE_READ_ONLY,
    TAKE_FRAMES_WHOLE,
    TRACK_RANGES,
    CLOSE_BEFORE_FENCED,
    DRAIN_BEFORE_FENCED,
}

#[test]
fn a_build_with_a_rule_off_is_seen() {
    let corpora = [Victim::Target, Victim::Host];
    let corpora = corpora.map(|victim| (victim, inputs(victim).collect::<Vec<_>>()));
    for (rule, check) in canaries() {
        let is_seen = corpora.iter().any(|(victim, inputs)| {
            inputs.iter().any(|input| catch_unwind(|| check(*victim, input)).is_err())
        });
        assert!(is_seen, "no sequence shows that {rule} is off");
    }
}
