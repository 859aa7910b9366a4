//! Seeds of the simulator, from random starts, in both kinds of worlds.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::random::Random;
use crate::process::{Result, Running, Stop, failed};

/// Seeds in one call: the granularity of progress reports and of the time limit.
const CHUNK: u64 = 200;
/// Time limit for such a call.
const CHUNK_LIMIT: Duration = Duration::from_secs(1200);
/// The options of each kind of worlds.
const PROFILES: [&[&str]; 2] = [&[], &["--multi-link"]];
/// The text after the number of a failed seed.
const FOUND: &str = "; to see it again: ";

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Violation {
    pub(super) seed: u64,
    /// The command that repeats it.
    pub(super) command: String,
    /// The violated rule.
    pub(super) what: String,
}

/// The results of the simulator.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Seeds {
    /// Number of seeds that were run.
    pub(super) run: u64,
    /// The first seed of each kind of worlds.
    pub(super) first: [u64; PROFILES.len()],
    pub(super) violations: Vec<Violation>,
}

/// Runs seeds for `time`, alternating between the kinds of worlds.
pub(super) fn run(
    lab: &Path,
    mut random: Random,
    time: Duration,
    seeds: &mut Seeds,
    stop: &Stop,
) -> Result<()> {
    let deadline = Instant::now() + time;
    // Short enough to be typed.
    seeds.first = PROFILES.map(|_| random.next() >> 32);
    let mut next = seeds.first;
    let worlds = (0..PROFILES.len()).cycle();
    for world in worlds {
        if Instant::now() >= deadline {
            break;
        }
        let (begin, end) = (next[world], next[world] + CHUNK);
        match chunk(lab, PROFILES[world], begin, stop)? {
            None => next[world] = end,
            // The call ended at that seed; the next call runs those that follow.
            Some(violation) => {
                eprintln!("soak: seed {}: {}", violation.seed, violation.what);
                next[world] = violation.seed.clamp(begin, end - 1) + 1;
                seeds.violations.push(violation);
            }
        }
        seeds.run += next[world] - begin;
    }
    Ok(())
}

fn chunk(lab: &Path, profile: &[&str], first: u64, stop: &Stop) -> Result<Option<Violation>> {
    let mut sim = Command::new(lab);
    sim.args(["sim", "--seeds", &CHUNK.to_string(), "--first", &first.to_string()]).args(profile);
    let finished = Running::start(&mut sim)?.finish(stop, CHUNK_LIMIT)?;
    if finished.status.success() {
        return Ok(None);
    }
    match parse(&finished.stderr) {
        Some(violation) => Ok(Some(violation)),
        None => failed(format!("tyche-lab sim: {}\n{}", finished.status, finished.stderr)),
    }
}

/// Parses the last output of a failed simulation.
fn parse(printed: &str) -> Option<Violation> {
    let (seed, command) = printed.lines().find_map(|line| {
        let (seed, command) = line.split_once(FOUND)?;
        Some((seed.rsplit(' ').next()?.parse().ok()?, command.trim().to_owned()))
    })?;
    let what = printed.lines().find_map(|line| line.split_once("VIOLATION: "));
    Some(Violation { seed, command, what: what?.1.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_has_a_seed_and_a_command() {
        let printed = "tyche-lab: something happened that must never happen\n  1.0 ms  a frame\n\
            \x20 2.500 ms  VIOLATION: session 15 was shut out\n\
            seed 77; to see it again: tyche-lab sim --seed 77 --multi-link\n";
        let command = "tyche-lab sim --seed 77 --multi-link".to_owned();
        let what = "session 15 was shut out".to_owned();
        assert_eq!(parse(printed), Some(Violation { seed: 77, command, what }));
        assert_eq!(parse("tyche-lab: no memory"), None);
    }
}
