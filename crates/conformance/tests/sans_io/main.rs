//! The vectors of the conformance suite against the state machines themselves, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod fc;
mod frames;
mod host;
mod machine;
mod target;
mod weak;

use std::cell::Cell;
use std::path::Path;

use tyche_conformance::{Outcome, Role, Suite};
use tyche_proto::{AllRules, Rule, Rules};
use tyche_testkit::random::Random;

use machine::{Machine, Simulated};

/// Runs all vectors, each against a new state machine; returns the failures.
fn failures<M: Machine>(role: Role, machine: impl Fn() -> M) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let suite = Suite::read(&folder, role).unwrap();
    let mut random = Random(1).numbers();
    let mut failed = Vec::new();
    for name in suite.names() {
        match suite.run(&name, &mut Simulated::new(machine()), &mut random) {
            Outcome::Passed => {}
            Outcome::Known(why) => println!("{name}: known: {why}"),
            Outcome::Failed(why) => failed.push(format!("{name}: {why}")),
        }
    }
    failed
}

#[test]
fn the_target_does_what_the_vectors_ask() {
    let failed = failures(Role::Target, target::Target::<AllRules>::new);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_host_does_what_the_vectors_ask() {
    let failed = failures(Role::Host, host::Host::<AllRules>::new);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_target_with_a_key_does_what_the_vectors_ask() {
    let failed = failures(Role::SealedTarget, target::Target::<AllRules>::keyed);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_silent_target_does_what_the_vectors_ask() {
    let failed = failures(Role::SilentTarget, target::Target::<AllRules>::silent);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_host_with_a_key_does_what_the_vectors_ask() {
    let failed = failures(Role::SealedHost, host::Host::<AllRules>::keyed);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
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

/// Tests that the suite detects builds without a rule.
macro_rules! canaries {
    ($($test:ident: $rule:ident at $role:ident;)*) => {$(
        #[test]
        fn $test() {
            OFF.set(Some(Rule::$rule));
            let failed = match Role::$role {
                Role::Target => failures(Role::Target, target::Target::<Broken>::new),
                Role::Host => failures(Role::Host, host::Host::<Broken>::new),
                Role::SealedTarget => failures(Role::SealedTarget, target::Target::<Broken>::keyed),
                Role::SilentTarget => {
                    failures(Role::SilentTarget, target::Target::<Broken>::silent)
                }
                Role::SealedHost => failures(Role::SealedHost, host::Host::<Broken>::keyed),
            };
            println!("{}:\n{}", stringify!($rule), failed.join("\n"));
            assert!(!failed.is_empty(), "no vector misses {}", stringify!($rule));
        }
    )*};
}

canaries! {
    bytes_that_are_counted_only_are_noticed: TrackRanges at Target;
    frames_taken_in_part_are_noticed: TakeFramesWhole at Target;
    foreign_cookies_are_noticed: CheckCookie at Target;
    damaged_payloads_are_noticed: CheckPayload at Target;
    stale_packets_are_noticed: RejectStale at Target;
    missing_tickets_are_noticed: CheckTicket at Target;
    displaced_sessions_are_noticed: ProbeHolder at Target;
    readers_that_write_are_noticed: EnforceReadOnly at Target;
    fences_that_close_nothing_are_noticed: CloseBeforeFenced at Target;
    unfenced_writes_are_noticed: FenceBeforeReissue at Host;
    unfenced_resets_are_noticed: FenceAfterReset at Host;
    outcomes_that_are_ignored_are_noticed: UseOutcomes at Host;
    replays_at_a_target_are_noticed: RejectReplays at SealedTarget;
    forged_frames_at_a_target_are_noticed: CheckTag at SealedTarget;
    sealed_connects_without_a_ticket_are_noticed: CheckTicket at SealedTarget;
    answers_to_strangers_are_noticed: StaySilent at SilentTarget;
    replays_at_a_host_are_noticed: RejectReplays at SealedHost;
    forged_frames_at_a_host_are_noticed: CheckTag at SealedHost;
    answers_in_the_clear_are_noticed: RefuseClear at SealedHost;
    lost_caches_without_an_error_are_noticed: LostCacheFailsFlush at Host;
}
