//! Many sessions at one target, of which some are busy, held by `tyche-lab crowd`.
//!
//! ```text
//! | before | sessions connect | all are held, some of them read | they end
//!   memory          CPU                   CPU, memory
//! ```
//!
//! The laboratory's program is one thread for all hosts; what its sessions cost is measured at the
//! target, from outside.

use std::fmt;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::peer::Server;
use crate::process::{Doing, Result, Running, Stop, failed};

/// A job's run time is this part of the time that a crowd is held.
const HOLD: u32 = 5;
/// The part of that in which the target is observed: from the moment when all are connected.
const OBSERVED: f64 = 0.9;
/// Time limit for all to connect, and for all to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time that one session takes to connect where nothing else runs, mostly waiting for offers.
const CONNECT: Duration = Duration::from_millis(65);
/// How the program says that all are connected.
const CONNECTED: &str = "are connected";

/// Sessions at one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crowd {
    pub(crate) sessions: u32,
    /// Those that read, 4 KiB at a time.
    pub(crate) busy: u32,
    /// Requests in flight of each that reads.
    pub(crate) depth: u16,
    /// Index of the peer among the set's.
    pub(crate) peer: usize,
}

/// A crowd in one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CrowdMeasurement {
    pub(crate) set: String,
    pub(crate) turn: u32,
    pub(crate) peer: String,
    pub(crate) sessions: u32,
    pub(crate) busy: u32,
    /// Time that a session took to connect, in milliseconds: the median, and the longest.
    pub(crate) connect_ms: [f64; 2],
    /// CPU time of the target in milliseconds, for each session that connected.
    pub(crate) connect_cpu_ms: f64,
    /// CPU of the target while the sessions were held, in cores.
    pub(crate) cores: f64,
    /// Resident memory of the target before the first session came, and with all of them.
    pub(crate) memory_before: u64,
    pub(crate) memory: u64,
    /// Requests a second of all busy sessions, and of the slowest and the fastest of them.
    pub(crate) iops: f64,
    pub(crate) range: [f64; 2],
}

impl CrowdMeasurement {
    pub(crate) fn memory_mib(&self) -> f64 {
        self.memory as f64 / f64::from(1 << 20)
    }

    pub(crate) fn percent_of_core(&self) -> f64 {
        self.cores * 100.0
    }
}

impl fmt::Display for CrowdMeasurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connect_cpu_ms, iops, .. } = self;
        let (percent, mib) = (self.percent_of_core(), self.memory_mib());
        write!(f, "{connect_cpu_ms:.2} ms of CPU to connect, then {percent:.1} % of a core, ")?;
        write!(f, "{mib:.0} MiB, {iops:.0} IOPS")
    }
}

/// The parts of the program's output that matter here.
#[derive(Deserialize)]
struct Output {
    connect_ms: [f64; 2],
    iops: f64,
    range: [f64; 2],
}

/// How long it takes to connect them, about.
pub(crate) fn connecting(sessions: u32) -> Duration {
    CONNECT * sessions
}

/// How long the sessions are held, where a job runs for `runtime`.
pub(crate) fn time(runtime: Duration) -> Duration {
    Duration::from_secs((runtime * HOLD).as_secs().max(1))
}

/// Holds a crowd at a server with `lab`, the program on its way to a link of that server, and
/// observes the server.
pub(crate) fn measure(
    crowd: Crowd,
    (set, turn): (&str, u32),
    server: &mut Server,
    mut lab: Command,
    runtime: Duration,
    stop: &Stop,
) -> Result<CrowdMeasurement> {
    let hold = time(runtime);
    let Crowd { sessions, busy, depth, .. } = crowd;
    let numbers = [sessions, busy, depth.into()].map(|number| number.to_string());
    for (option, number) in ["--sessions", "--busy", "--iodepth"].iter().zip(numbers) {
        lab.args([option, number.as_str()]);
    }
    lab.args(["--runtime", &hold.as_secs().to_string(), "-o", "json"]);
    let (pid, before) = (server.running.pid(), server.running.cpu_s()?);
    let memory_before = resident(pid)?;
    let mut client = Running::start(&mut lab)?;
    let are_connected = stop.until(PATIENCE, || {
        client.check()?;
        Ok(client.errors()?.contains(CONNECTED))
    })?;
    if !are_connected {
        return failed(format!("{sessions} sessions do not connect"));
    }
    let (start, connected) = (Instant::now(), server.running.cpu_s()?);
    stop.pause(hold.mul_f64(OBSERVED))?;
    let (memory, held) = (resident(pid)?, server.running.cpu_s()?);
    let seconds = start.elapsed().as_secs_f64();
    let finished = client.succeed(stop, hold + PATIENCE)?;
    server.running.check()?;
    let Output { connect_ms, iops, range } =
        serde_json::from_str(&finished.stdout).doing("the figures of `tyche-lab crowd`")?;
    Ok(CrowdMeasurement {
        set: set.to_owned(),
        turn,
        peer: server.peer.name.clone(),
        sessions,
        busy,
        connect_ms,
        connect_cpu_ms: (connected - before) * 1e3 / f64::from(sessions),
        cores: (held - connected) / seconds,
        memory_before,
        memory,
        iops,
        range,
    })
}

/// Bytes of a process that are in memory.
fn resident(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).doing(&path)?;
    match in_status(&status) {
        Some(bytes) => Ok(bytes),
        None => failed(format!("{path}: not understood")),
    }
}

fn in_status(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read() {
        assert_eq!(in_status("Name:\ta\nVmRSS:\t    42 kB\n"), Some(42 << 10));
        assert_eq!(in_status("Name:\ta\n"), None);
        assert!(resident(std::process::id()).unwrap() > 1 << 20);
    }

    #[test]
    fn a_crowd_is_held_for_whole_seconds() {
        assert_eq!(time(Duration::from_secs(2)), Duration::from_secs(10));
        assert_eq!(time(Duration::from_millis(100)), Duration::from_secs(1));
    }
}
