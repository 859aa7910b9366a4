//! An initiator and a target on a network that loses, repeats and delays frames: every block has
//! what was written last, whatever happens.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../air/mod.rs"]
mod air;
mod disk;
mod host;
mod world;

use std::time::Duration;

use world::{Faults, World};

/// Runs a world for each seed; returns what has gone wrong in all of them.
fn run(faults: Faults, seeds: u64) -> [u64; 4] {
    let mut sum = [0; 4];
    for seed in 0..seeds {
        let mut world = World::new(seed, faults);
        world.run(400);
        sum.iter_mut().zip(world.incidents()).for_each(|(sum, it)| *sum += it);
    }
    sum
}

#[test]
fn a_perfect_network_needs_no_recovery() {
    assert_eq!(run(Faults::default(), 3), [0; 4]);
}

#[test]
fn blocks_have_what_was_written_last_though_frames_are_lost() {
    let [again, aborts, lost, _] = run(Faults { lost: 1, ..Faults::default() }, 20);
    assert!(again > 100 && aborts > 20 && lost > 20, "{again} {aborts} {lost}");
}

#[test]
fn blocks_have_what_was_written_last_though_frames_come_twice_and_late() {
    let [again, _, lost, _] = run(Faults { repeated: 5, ..Faults::default() }, 20);
    assert!(again > 500 && lost > 500, "{again} {lost}");
}

#[test]
fn blocks_have_what_was_written_last_though_everything_goes_wrong() {
    let slow = Duration::from_secs(3);
    let [again, aborts, lost, logouts] =
        run(Faults { lost: 2, repeated: 2, slow, logouts: true }, 60);
    assert!(again > 500 && aborts > 200 && lost > 200, "{again} {aborts} {lost}");
    assert!(logouts > 10, "{logouts}");
}
