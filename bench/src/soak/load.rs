//! fio, round after round: it writes, reads back what it wrote, and reads it once more later,
//! because a write of the past may take effect late.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::Random;
use crate::process::{Doing, Result, Running, Stop, failed};

/// Time limit for a round with its incidents.
const ROUND_LIMIT: Duration = Duration::from_secs(300);

/// Bytes of a request, by round.
const BLOCKS: [&str; 4] = ["4k", "16k", "64k", "256k"];

/// Totals of the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Done {
    pub(super) rounds: u64,
    pub(super) requests: u64,
    /// Time of the slowest request, in milliseconds.
    pub(super) slowest_ms: u64,
}

/// The parts of fio's output that matter here.
#[derive(Debug, Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Debug, Deserialize)]
struct Direction {
    total_ios: u64,
    lat_ns: Latency,
}

#[derive(Debug, Deserialize)]
struct Latency {
    max: u64,
}

/// Runs rounds until `over`.
pub(super) fn run(
    device: &Path,
    mut random: Random,
    done: &mut Done,
    over: &AtomicBool,
    stop: &Stop,
) -> Result<()> {
    while !over.load(Relaxed) {
        let seed = random.next() >> 1;
        let block = random.pick(&BLOCKS);
        // Either recent writes are read between writes, or everything after the last write.
        let backlog = (random.within(0..=1) == 1).then_some("--verify_backlog=64");
        let mut write = fio(device, seed, block);
        write.args(backlog);
        done.add(write, stop)?;
        stop.pause(random.millis(0..=2000))?;
        let mut read = fio(device, seed, block);
        read.arg("--verify_only=1");
        done.add(read, stop)?;
        done.rounds += 1;
    }
    Ok(())
}

/// Every block is written once in a round. Its content is the round and the position: a checksum in
/// the block would be valid for an old block as well.
fn fio(device: &Path, seed: u64, block: &str) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--name=soak", "--rw=randwrite", "--size=48m", "--direct=1", "--ioengine=libaio"]);
    fio.args(["--iodepth=16", &format!("--bs={block}"), &format!("--randseed={seed}")]);
    fio.args(["--verify=pattern", &format!("--verify_pattern={seed:#018x}%o"), "--verify_fatal=1"]);
    fio.args(["--verify_state_save=0", "--output-format=json", "--eta=never"]);
    fio.arg(format!("--filename={}", device.display()));
    fio
}

impl Done {
    fn add(&mut self, mut fio: Command, stop: &Stop) -> Result<()> {
        let finished = Running::start(&mut fio)?.succeed(stop, ROUND_LIMIT)?;
        self.count(&finished.stdout)
    }

    fn count(&mut self, printed: &str) -> Result<()> {
        let output: Output = serde_json::from_str(printed).doing("what fio prints")?;
        for Job { error, read, write } in output.jobs {
            if error != 0 {
                return failed(format!("fio: error {error}"));
            }
            for Direction { total_ios, lat_ns } in [read, write] {
                self.requests += total_ios;
                self.slowest_ms = self.slowest_ms.max(lat_ns.max / 1_000_000);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_request_is_kept() {
        let direction = |ios: u64, max: u64| {
            format!(r#"{{ "total_ios": {ios}, "lat_ns": {{ "min": 1, "max": {max} }} }}"#)
        };
        let output = |error: i32| {
            let (read, write) = (direction(3, 5_000_000), direction(4, 9_999_999));
            format!(r#"{{ "jobs": [{{ "error": {error}, "read": {read}, "write": {write} }}] }}"#)
        };
        let mut done = Done::default();
        done.count(&output(0)).unwrap();
        assert_eq!(done, Done { rounds: 0, requests: 7, slowest_ms: 9 });
        assert!(done.count(&output(84)).is_err());
        assert!(done.count("fio: something").is_err());
    }
}
