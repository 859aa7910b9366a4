//! The vectors of the conformance suite against the state machines themselves, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod frames;
mod host;
mod target;

use std::path::Path;

use tyche_conformance::{Outcome, Role, Subject, Suite};

/// Numbers that differ from each other.
fn random(mut state: u64) -> impl FnMut() -> u64 + Send + 'static {
    move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state ^ state >> 29
    }
}

/// Runs all vectors, each against a subject of its own.
fn run_all<S: Subject>(role: Role, mut subject: impl FnMut() -> S) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let suite = Suite::read(&folder, role).unwrap();
    let mut random = random(1);
    let mut failed = Vec::new();
    for name in suite.names() {
        match suite.run(&name, &mut subject(), &mut random) {
            Outcome::Passed => {}
            Outcome::Known(why) => println!("{name}: known: {why}"),
            Outcome::Failed(why) => failed.push(format!("{name}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_target_does_what_the_vectors_ask() {
    run_all(Role::Target, target::Target::new);
}

#[test]
fn the_host_does_what_the_vectors_ask() {
    run_all(Role::Host, host::Host::new);
}
