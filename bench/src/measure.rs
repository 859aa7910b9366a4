//! Measures turn by turn: each job once with every peer, starting with another peer each time, then
//! bare frames.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::cores::Cores;
use crate::counters::Counters;
use crate::crowd::{self, Crowd, CrowdMeasurement};
use crate::double::Double;
use crate::floor::{Floor, Outcome};
use crate::job::{Job, Pattern};
use crate::messages::{self, MessageMeasurement, Messages};
use crate::network::{Link, Network, Side, traffic};
use crate::outage;
use crate::own_load::{self, Load};
use crate::peer::{PATIENCE, Programs, Protocol, Server, TEMPORARY_DIR};
use crate::plan::{Contest, Entry, Outage, Set};
use crate::process::{Doing, Failure, Result, Running, Stop, failed};
use crate::result::{FailedTurn, FloorMeasurement, Latency, Measurement, Results};
use crate::stages::{self, StagedMeasurement};
use crate::switches;
use crate::timeline::Timeline;

/// The parts of fio's output that matter here.
#[derive(Debug, Deserialize)]
struct FioOutput {
    jobs: Vec<FioJob>,
}

#[derive(Debug, Deserialize)]
struct FioJob {
    error: i32,
    /// Reads and writes together, as the job file asks for.
    mixed: FioNumbers,
}

#[derive(Debug, Deserialize)]
struct FioNumbers {
    total_ios: u64,
    io_bytes: u64,
    /// Milliseconds.
    runtime: u64,
    lat_ns: FioLatency,
}

#[derive(Debug, Deserialize)]
struct FioLatency {
    mean: f64,
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, f64>,
}

impl FioLatency {
    fn percentile(&self, name: &str) -> f64 {
        self.percentile.get(name).copied().unwrap_or_default()
    }
}

/// The least work that fio can do.
const NOTHING: Job = Job::new(Pattern::Randread, 4096, 1);
const NO_TIME: Duration = Duration::from_millis(1);

/// A server with all of its memory written.
struct Ready {
    server: Server,
    /// CPU time of an almost empty fio run, in seconds: fio calibrates clocks, for instance.
    fio_cpu_s: f64,
}

/// Running servers, and everything needed to measure them.
pub(crate) struct Stage<'a> {
    set: &'a Set,
    programs: &'a Programs,
    stop: &'a Stop,
    // Before the network, in which they run: fields are dropped in order.
    /// One for each peer of the set; `None` if it did not start.
    servers: Vec<Option<Ready>>,
    network: Network,
    scratch: tempfile::TempDir,
}

impl<'a> Stage<'a> {
    /// Sets up the network, and starts and fills the servers that the contests need. A server that
    /// fails is recorded, and its jobs are left out.
    pub(crate) fn set_up(
        set: &'a Set,
        programs: &'a Programs,
        stop: &'a Stop,
        results: &mut Results,
    ) -> Result<Self> {
        let mut network = Network::lay(set.link, stop)?;
        network.pin(set.cores);
        let scratch = tempfile::tempdir().doing("a temporary directory")?;
        let mut stage = Self { set, programs, stop, servers: Vec::new(), network, scratch };
        stage.network.set_offloads(true, stop)?;
        for number in 0..set.peers.len() {
            let contests = set.contests.iter().chain(&set.staged);
            let mut entries = contests.flat_map(|contest| &contest.entries);
            let is_cut = set.outages.iter().any(|outage| outage.peer == number);
            let is_needed = is_cut || entries.any(|entry| entry.peer == number);
            let server = match is_needed.then(|| stage.start(number)).transpose() {
                Ok(server) => server,
                Err(failure) => {
                    let what = format!("{}: start", set.peers[number].name);
                    stage.note(results, 0, what, failure)?;
                    None
                }
            };
            stage.servers.push(server);
        }
        Ok(stage)
    }

    /// Starts and fills a server.
    fn start(&self, number: usize) -> Result<Ready> {
        let Self { set, programs, stop, network, .. } = self;
        let peer = &set.peers[number];
        let server = Server::start(peer, number as u16, set.export_mib, network, programs, stop)?;
        server.fill(network, programs, stop)?;
        if peer.protocol.has_own_load() {
            return Ok(Ready { server, fio_cpu_s: 0.0 });
        }
        let output = self.scratch.path().join("fio.json");
        let mut fio = server.load(&NOTHING, NOTHING.file(), NO_TIME, &output, network, programs);
        let fio_cpu_s = Running::start(&mut fio)?.succeed(stop, PATIENCE)?.cpu_s;
        Ok(Ready { server, fio_cpu_s })
    }

    /// Runs one turn of every contest. Failures are recorded; only an interruption ends the turn.
    pub(crate) fn turn(
        &mut self,
        turn: u32,
        cores: &mut Cores,
        results: &mut Results,
    ) -> Result<()> {
        let (set, stop) = (self.set, self.stop);
        for (number, contest) in set.contests.iter().enumerate() {
            for entry in self.order(contest, turn, number) {
                let name = &set.peers[entry.peer].name;
                let what = format!("{name} {}", contest.job);
                match cores.near(stop, || self.load(contest, entry, turn)) {
                    Ok((measurement, cores_ns)) => {
                        say(set.name, turn, &what, &measurement);
                        results.measurements.push(Measurement { cores_ns, ..measurement });
                    }
                    Err(failure) => self.note(results, turn, what, failure)?,
                }
            }
            for floor in &contest.floors {
                let Floor { kind, depth, links, .. } = floor;
                let what = format!("{kind:?} at depth {depth} over {links} link(s)");
                match cores.near(stop, || self.floor(floor)) {
                    Ok((outcome, cores_ns)) => {
                        println!("{} {turn} floor: {what}: {:.0}/s", set.name, outcome.per_s);
                        let (set, floor) = (set.name.to_owned(), *floor);
                        let measured = FloorMeasurement { set, turn, floor, outcome, cores_ns };
                        results.floors.push(measured);
                    }
                    Err(failure) => self.note(results, turn, what, failure)?,
                }
            }
        }
        self.stage_turn(turn, cores, results)?;
        self.message_turn(turn, results)?;
        self.crowd_turn(turn, results)?;
        self.outage_turn(turn, results)
    }

    /// The entries of a contest whose servers run, another one first in each turn.
    fn order(&self, contest: &Contest, turn: u32, number: usize) -> Vec<Entry> {
        let mut entries = contest.entries.clone();
        entries.retain(|entry| self.servers[entry.peer].is_some());
        let first = (turn as usize + number) % entries.len().max(1);
        entries.rotate_left(first);
        entries
    }

    fn stage_turn(&self, turn: u32, cores: &mut Cores, results: &mut Results) -> Result<()> {
        for (number, contest) in self.set.staged.iter().enumerate() {
            for entry in self.order(contest, turn, number) {
                let name = &self.set.peers[entry.peer].name;
                let what = format!("{name} {}: stages", contest.job);
                match cores.near(self.stop, || self.stages(contest.job, entry.peer, turn)) {
                    Ok((measured, cores_ns)) => {
                        let us = measured.whole() / 1e3;
                        println!("{} {turn} {what}: {us:.1} us in all", self.set.name);
                        results.stages.push(StagedMeasurement { cores_ns, ..measured });
                    }
                    Err(failure) => self.note(results, turn, what, failure)?,
                }
            }
        }
        Ok(())
    }

    fn stages(&self, job: Job, peer: usize, turn: u32) -> Result<StagedMeasurement> {
        let Some(Some(Ready { server, .. })) = self.servers.get(peer) else {
            return failed("the server has not started");
        };
        let runtime = self.set.runtime;
        let mut bench = server.stages(&job, runtime, &self.network, self.programs);
        let finished = Running::start(&mut bench)?.succeed(self.stop, runtime + PATIENCE)?;
        let (iops, stages) = stages::parse(&finished.stdout)?;
        Ok(StagedMeasurement {
            set: self.set.name.to_owned(),
            turn,
            peer: server.peer.name.clone(),
            spin_us: server.peer.spin_us,
            job,
            iops,
            stages,
            cores_ns: 0.0,
        })
    }

    /// The ends are threads of one process, on whichever cores.
    fn message_turn(&self, turn: u32, results: &mut Results) -> Result<()> {
        let messages = &self.set.messages;
        for index in 0..messages.len() {
            let (name, double) = messages[(index + turn as usize) % messages.len()];
            let what = format!("{name}: messages");
            match self.messages(double) {
                Ok(messages) => {
                    println!("{} {turn} {what}: {messages}", self.set.name);
                    let peer = name.to_owned();
                    results.messages.push(MessageMeasurement { turn, peer, messages });
                }
                Err(failure) => self.note(results, turn, what, failure)?,
            }
        }
        Ok(())
    }

    fn messages(&self, double: Double) -> Result<Messages> {
        let (runtime, lab) = (self.set.runtime, self.programs.lab.to_string_lossy());
        let mut command = self.network.inside(Side::Host, &lab);
        messages::ask(&mut command, double, runtime);
        command.env(TEMPORARY_DIR, self.scratch.path());
        let limit = messages::time(runtime) + PATIENCE;
        messages::parse(&Running::start(&mut command)?.succeed(self.stop, limit)?.stdout)
    }

    /// Each crowd comes to a target that has just started.
    fn crowd_turn(&self, turn: u32, results: &mut Results) -> Result<()> {
        let set = self.set;
        for index in 0..set.crowds.len() {
            let crowd = set.crowds[(index + turn as usize) % set.crowds.len()];
            let (sessions, busy) = (crowd.sessions, crowd.busy);
            let name = &set.peers[crowd.peer].name;
            let what = format!("{name}: {sessions} sessions, {busy} of them busy");
            match self.crowd(crowd, turn) {
                Ok(it) => {
                    println!("{} {turn} {what}: {it}", set.name);
                    results.crowds.push(it);
                }
                Err(failure) => self.note(results, turn, what, failure)?,
            }
        }
        Ok(())
    }

    fn crowd(&self, crowd: Crowd, turn: u32) -> Result<CrowdMeasurement> {
        let Self { set, programs, stop, network, .. } = self;
        let peer = &set.peers[crowd.peer];
        let mut server = Server::start(peer, 0, set.export_mib, network, programs, stop)?;
        let lab = server.crowd(network, programs);
        crowd::measure(crowd, (set.name, turn), &mut server, lab, set.runtime, stop)
    }

    fn outage_turn(&self, turn: u32, results: &mut Results) -> Result<()> {
        let set = self.set;
        for outage in &set.outages {
            let name = &set.peers[outage.peer].name;
            let what = format!("{name} {}, {} cut: {:?}", outage.job, outage.links, outage.how);
            match self.outage(outage, turn) {
                Ok(timeline) => {
                    println!("{} {turn} {what}: {timeline}", set.name);
                    results.timelines.push(timeline);
                }
                Err(failure) => self.note(results, turn, what, failure)?,
            }
        }
        Ok(())
    }

    fn outage(&self, planned: &Outage, turn: u32) -> Result<Timeline> {
        let Some(Some(Ready { server, .. })) = self.servers.get(planned.peer) else {
            return failed("the server has not started");
        };
        let output = self.scratch.path().join("fio.json");
        let mut fio = server.load(
            &planned.job,
            outage::JOB,
            outage::WHOLE,
            &output,
            &self.network,
            self.programs,
        );
        let place = (self.set.name, server.peer.name.as_str(), turn);
        let fio = (&mut fio, self.scratch.path());
        outage::measure(planned, place, fio, server.running.pid(), &self.network, self.stop)
    }

    fn note(&self, results: &mut Results, turn: u32, what: String, failure: Failure) -> Result<()> {
        let Failure::Failed(error) = failure else { return Err(failure) };
        let set = self.set.name.to_owned();
        eprintln!("{set} {turn} {what}: FAILED: {error}");
        results.failures.push(FailedTurn { set, turn, what, error });
        Ok(())
    }

    fn load(&mut self, contest: &Contest, entry: Entry, turn: u32) -> Result<Measurement> {
        self.network.set_offloads(entry.offloads, self.stop)?;
        let Some(Ready { server, fio_cpu_s }) = &mut self.servers[entry.peer] else {
            return failed("the server has not started");
        };
        server.running.check()?;
        if server.peer.protocol == Protocol::NbdMptcp {
            self.network.set_subflows(contest.job.bundle().links, self.stop)?;
        }
        let output = self.scratch.path().join("fio.json");
        let (job, runtime) = (&contest.job, server.peer.runtime(self.set.runtime));
        let is_own = server.peer.protocol.has_own_load();
        let mut client = if is_own {
            server.bench(job, runtime, &self.network, self.programs)
        } else {
            server.load(job, job.file(), runtime, &output, &self.network, self.programs)
        };
        let pid = server.running.pid();
        let engine_counters = server.engine_counters();
        let _ = fs::remove_file(&engine_counters);
        let (before, by_thread_before) = server.counters(self.programs, self.stop)?;
        let (traffic_before, cpu_before) = (traffic(pid)?, server.running.cpu_s()?);
        let daemon_before = server.daemon()?;
        let (asleep_before, fio_before) = (switches::of_process(pid), switches::of_ended());
        let finished = Running::start(&mut client)?.succeed(self.stop, runtime + PATIENCE)?;
        let (traffic_after, cpu_after) = (traffic(pid)?, server.running.cpu_s()?);
        let (asleep_after, fio_after) = (switches::of_process(pid), switches::of_ended());
        let daemon_after = server.daemon()?;
        let (after, by_thread_after) = server.counters(self.programs, self.stop)?;
        let has_counters = engine_counters.exists();
        let load = if is_own { own_load::parse(&finished.stdout)? } else { fio_load(&output)? };
        let daemon_cpu_s = daemon_after.0 - daemon_before.0;
        let fio_cpu_s = (finished.cpu_s - *fio_cpu_s).max(0.0) + daemon_cpu_s;
        let share = |count: u64| (count as f64 * load.share) as u64;
        Ok(Measurement {
            set: self.set.name.to_owned(),
            turn,
            peer: server.peer.name.clone(),
            mtu: self.set.link.mtu,
            link_rate: link_rate(self.set.link, job),
            offloads: entry.offloads,
            spin_us: server.peer.spin_us,
            job: *job,
            seconds: load.seconds,
            ios: load.ios,
            bytes: load.bytes,
            iops: load.ios as f64 / load.seconds,
            bytes_per_s: load.bytes as f64 / load.seconds,
            lat_ns: load.lat_ns,
            host_cpu_s: load.cpu_s.unwrap_or(fio_cpu_s),
            target_cpu_s: (cpu_after - cpu_before) * load.share,
            frames: share(traffic_after.frames - traffic_before.frames),
            wire_bytes: share(traffic_after.bytes - traffic_before.bytes),
            host_switches: share(fio_after - fio_before + daemon_after.1 - daemon_before.1),
            target_switches: share(asleep_after.saturating_sub(asleep_before)),
            host_counters: match load.counters {
                None if has_counters => Some(Counters::of_jobs(&engine_counters)?),
                counters => counters,
            },
            target_counters: after.zip(before).map(|(after, before)| after - before),
            requests_by_thread: by_thread_after
                .iter()
                .zip(by_thread_before)
                .map(|(after, before)| after.saturating_sub(before))
                .collect(),
            cores_ns: 0.0,
        })
    }

    fn floor(&self, floor: &Floor) -> Result<Outcome> {
        let program = std::env::current_exe().doing("the path of this program")?;
        let side = |side: Side, role: &str| {
            let mut command = self.network.pinned(side, &program.to_string_lossy());
            command.args(["floor", role]).args(floor.args());
            command
        };
        let mut server = Running::start(&mut side(Side::Target, "serve"))?;
        let ready = self.stop.until(PATIENCE, || {
            server.check()?;
            Ok(!server.output()?.is_empty())
        })?;
        if !ready {
            return failed("the floor's server does not get ready");
        }
        let runtime = self.set.runtime / 2;
        let mut ask = side(Side::Host, "ask");
        ask.arg("--runtime-ms").arg(runtime.as_millis().to_string());
        let finished = Running::start(&mut ask)?.succeed(self.stop, runtime + PATIENCE)?;
        serde_json::from_str(&finished.stdout).doing("the floor's result")
    }
}

/// Bits per second of all links of a job; `None`: they are not shaped.
fn link_rate(link: Link, job: &Job) -> Option<u64> {
    job.bundle().numbers().map(|cable| link.rate_of(cable)).sum()
}

fn fio_load(output: &Path) -> Result<Load> {
    let FioNumbers { total_ios, io_bytes, runtime, lat_ns } = numbers(output)?;
    Ok(Load {
        seconds: runtime as f64 / 1e3,
        ios: total_ios,
        bytes: io_bytes,
        lat_ns: Latency {
            mean: lat_ns.mean,
            p50: lat_ns.percentile("50.000000"),
            p99: lat_ns.percentile("99.000000"),
            p999: lat_ns.percentile("99.900000"),
        },
        cpu_s: None,
        share: 1.0,
        counters: None,
    })
}

/// The figures that fio has measured.
fn numbers(output: &Path) -> Result<FioNumbers> {
    let text = fs::read_to_string(output).doing("fio's results")?;
    // fio prints notes before and after the JSON.
    let json = text.find('{').zip(text.rfind('}')).map_or("", |(start, end)| &text[start..=end]);
    let mut parsed: FioOutput = serde_json::from_str(json).doing("fio's results")?;
    match parsed.jobs.pop() {
        Some(job) if job.error != 0 => failed(format!("fio: error {}", job.error)),
        Some(job) if job.mixed.total_ios == 0 || job.mixed.runtime == 0 => {
            failed("fio did nothing")
        }
        Some(job) => Ok(job.mixed),
        None => failed("fio ran no job"),
    }
}

fn say(set: &str, turn: u32, what: &str, measurement: &Measurement) {
    let Measurement { iops, bytes_per_s, offloads, .. } = measurement;
    let offloads = if *offloads { "" } else { " (no offloads)" };
    println!(
        "{set} {turn} {what}{offloads}: {iops:.0} IOPS, {:.0} MB/s, {:.1} us, {:.2} frames/IO",
        bytes_per_s / 1e6,
        measurement.mean_ns() / 1e3,
        measurement.frames_per_io()
    );
}

/// Estimated time of a set: each run with its overhead, and the time to touch memory for the first
/// time.
pub(crate) fn estimate(set: &Set, turns: u32) -> Duration {
    let of = |contest: &Contest| {
        let run =
            |entry: &Entry| set.peers[entry.peer].runtime(set.runtime) + Duration::from_millis(500);
        let runs: Duration = contest.entries.iter().map(run).sum();
        runs + (set.runtime / 2 + Duration::from_secs(1)) * contest.floors.len() as u32
    };
    let outages = (outage::WHOLE + Duration::from_secs(1)) * set.outages.len() as u32;
    let staged: usize = set.staged.iter().map(|contest| contest.entries.len()).sum();
    let staged = (set.runtime + Duration::from_secs(1)) * staged as u32;
    let messages =
        (messages::time(set.runtime) + Duration::from_secs(1)) * set.messages.len() as u32;
    let crowd = |it: &Crowd| crowd::time(set.runtime) + crowd::connecting(it.sessions);
    let crowds = set.crowds.iter().map(crowd).sum::<Duration>();
    let turn = set.contests.iter().map(of).sum::<Duration>() + staged + messages + outages + crowds;
    let server = Duration::from_secs(1) + Duration::from_millis(3) * set.export_mib;
    turn * set.turns(turns) + server * set.peers.len() as u32
}
