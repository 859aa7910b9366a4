//! The vectors of the conformance suite against the state machines themselves, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod host;
mod machine;
mod target;

use std::path::Path;

use tyche_conformance::{Outcome, Role, Suite};
use tyche_proto::{Rules, Sound};
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
    let failed = failures(Role::Target, target::Target::<Sound>::new);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_host_does_what_the_vectors_ask() {
    let failed = failures(Role::Host, host::Host::<Sound>::new);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Tests that the suite detects builds without a rule.
macro_rules! canaries {
    ($($test:ident: $rule:ident at $subject:path, $role:ident;)*) => {$(
        #[test]
        fn $test() {
            #[derive(Clone, Copy)]
            struct Broken;
            impl Rules for Broken {
                const $rule: bool = false;
            }
            let failed = failures(Role::$role, <$subject>::new);
            println!("{}:\n{}", stringify!($rule), failed.join("\n"));
            assert!(!failed.is_empty(), "no vector misses {}", stringify!($rule));
        }
    )*};
}

canaries! {
    bytes_that_are_counted_only_are_noticed: TRACK_RANGES at target::Target<Broken>, Target;
    frames_taken_in_part_are_noticed: TAKE_FRAMES_WHOLE at target::Target<Broken>, Target;
    foreign_cookies_are_noticed: CHECK_COOKIE at target::Target<Broken>, Target;
    damaged_payloads_are_noticed: CHECK_PAYLOAD at target::Target<Broken>, Target;
    stale_packets_are_noticed: REJECT_STALE at target::Target<Broken>, Target;
    missing_tickets_are_noticed: CHECK_TICKET at target::Target<Broken>, Target;
    displaced_sessions_are_noticed: PROBE_HOLDER at target::Target<Broken>, Target;
    readers_that_write_are_noticed: ENFORCE_READ_ONLY at target::Target<Broken>, Target;
    fences_that_close_nothing_are_noticed: CLOSE_BEFORE_FENCED at target::Target<Broken>, Target;
    unfenced_writes_are_noticed: FENCE_BEFORE_REISSUE at host::Host<Broken>, Host;
    unfenced_resets_are_noticed: FENCE_AFTER_RESET at host::Host<Broken>, Host;
    outcomes_that_are_ignored_are_noticed: USE_OUTCOMES at host::Host<Broken>, Host;
    lost_caches_without_an_error_are_noticed: LOST_CACHE_FAILS_FLUSH at host::Host<Broken>, Host;
}
