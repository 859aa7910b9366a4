//! The fuzzers' corpora, replayed: the sequences that they start from, and what they found worth
//! keeping. Builds with a rule off are run on them, too, so that the checks are known to see.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::catch_unwind;

use crate::hostile;
use crate::hostile::Victim;
use tyche_proto::wire::Reject;
use tyche_proto::{AllRules, Rule, Rules};
use tyche_testkit::corpus::corpus;

/// The inputs of the fuzzer for a victim, each as it is, and between ends with keys.
fn inputs(victim: Victim) -> impl Iterator<Item = Vec<u8>> {
    let fuzzer = if victim == Victim::Target { "listener" } else { "session" };
    let inputs = corpus(env!("CARGO_MANIFEST_DIR"), fuzzer);
    inputs.flat_map(|input| [hostile::with_keys(&input), input])
}

/// Replays a corpus; the rejects, failures and numbers of all of it.
fn replay(victim: Victim) -> (BTreeSet<&'static str>, BTreeSet<String>, hostile::Report) {
    let (mut rejects, mut failures) = (BTreeSet::new(), BTreeSet::new());
    let mut sum = hostile::Report::default();
    for input in inputs(victim) {
        let report = hostile::check::<AllRules>(victim, &input);
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

thread_local! {
    /// The rule that is off in this thread.
    static OFF: Cell<Option<Rule>> = const { Cell::new(None) };
}

/// The build with one rule off.
#[derive(Clone, Copy)]
struct Broken;

impl Rules for Broken {
    fn keeps(rule: Rule) -> bool {
        OFF.get() != Some(rule)
    }
}

/// The rules of which the corpora show that they are off.
const RULES: [Rule; 16] = [
    Rule::SuppressDuplicates,
    Rule::RememberExecuted,
    Rule::CheckCookie,
    Rule::CheckPayload,
    Rule::CheckTicket,
    Rule::RejectReplays,
    Rule::CheckTag,
    Rule::RefuseClear,
    Rule::FenceBeforeReissue,
    Rule::FenceAfterReset,
    Rule::UseOutcomes,
    Rule::EnforceReadOnly,
    Rule::TakeFramesWhole,
    Rule::TrackRanges,
    Rule::CloseBeforeFenced,
    Rule::DrainBeforeFenced,
];

#[test]
fn a_build_with_a_rule_off_is_seen() {
    let corpora = [Victim::Target, Victim::Host];
    let corpora = corpora.map(|victim| (victim, inputs(victim).collect::<Vec<_>>()));
    for rule in RULES {
        OFF.set(Some(rule));
        let is_seen = corpora.iter().any(|(victim, inputs)| {
            let check = |input: &Vec<u8>| hostile::check::<Broken>(*victim, input);
            inputs.iter().any(|input| catch_unwind(|| check(input)).is_err())
        });
        assert!(is_seen, "no sequence shows that {rule:?} is off");
    }
}
