//! The real part: a disk over three links, with one incident after the other.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::incident::{CABLES, Incident, What};
use super::load;
use super::progress::Progress;
use super::random::Random;
use super::report::Links;
use super::target::{EXPORT, Target};
use crate::device::Disk;
use crate::network::{Link, Network};
use crate::process::{Doing, Failure, Result, Stop, failed};

/// How long requests may still wait after an incident.
const STUCK: Duration = Duration::from_secs(30);
/// Requests that must be done by then.
const ENOUGH: u64 = 16;
/// Bytes of a frame without its Ethernet header.
const MTU: u32 = 9000;

/// Runs incidents for the given time. After a failure the disk's file and the logs stay.
pub(super) fn run(
    tyche: &Path,
    random: Random,
    time: Duration,
    links: &mut Links,
    stop: &Stop,
) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("tyche-soak-").tempdir_in("/var/tmp");
    let dir = dir.doing("a directory in /var/tmp")?;
    let done = soak(tyche, dir.path(), random, time, links, stop);
    match done {
        Err(Failure::Failed(message)) => failed(format!(
            "{message}\nthe disk's file and the logs are in {}",
            dir.keep().display()
        )),
        done => done,
    }
}

fn soak(
    tyche: &Path,
    dir: &Path,
    mut random: Random,
    time: Duration,
    links: &mut Links,
    stop: &Stop,
) -> Result<()> {
    let network = &Network::lay(Link { cables: CABLES, ..Link::unshaped(MTU) }, stop)?;
    let target = Some(Target::start(tyche, network, dir, stop)?);
    let disk = Disk::connect(tyche, &[EXPORT, "--as", "loop"], network, dir, stop)?;
    let mut stage =
        Stage { tyche, dir, network, target, progress: &Progress::new(&disk.device), stop };
    let (progress, over) = (stage.progress, &AtomicBool::new(false));
    let for_load = Random::new(random.next());
    let Links { incidents, load } = links;
    let done = thread::scope(|scope| {
        let load = scope.spawn(|| load::run(&disk.device, for_load, load, over, stop));
        let follow = scope.spawn(|| progress.follow(over, stop));
        let (deadline, mut done) = (Instant::now() + time, Ok(()));
        while done.is_ok() && Instant::now() < deadline {
            let incident = Incident::draw(&mut random);
            eprintln!("soak: {incident}");
            done = stage.play(&incident, || load.is_finished());
            incidents.entry(incident.kind()).or_default().note(progress.stall());
            if load.is_finished() {
                break;
            }
        }
        over.store(true, Relaxed);
        // Saved now: the log goes with the session.
        let logged = fs::write(dir.join("session.log"), disk.log()).doing("the session's log");
        if done.is_err() {
            // Processes that wait for the disk are released.
            disk.force();
        }
        let ended = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| failed("a thread of the soak panicked"))
        };
        let (load, follow) = (ended(load), ended(follow));
        done.and(load).and(follow).and(logged)
    });
    if done.is_ok() {
        return disk.disconnect(stop);
    }
    stage.kill_target()?;
    done
}

/// The system that incidents affect.
struct Stage<'a> {
    tyche: &'a Path,
    dir: &'a Path,
    network: &'a Network,
    /// `None` while it is dead.
    target: Option<Target>,
    progress: &'a Progress,
    stop: &'a Stop,
}

impl Stage<'_> {
    /// Plays an incident, and waits until requests are done again, or `is_over`.
    fn play(&mut self, incident: &Incident, is_over: impl Fn() -> bool) -> Result<()> {
        let (network, stop) = (self.network, self.stop);
        incident.lose(network, stop)?;
        incident.begin(network, stop)?;
        if incident.what == What::Kill {
            self.kill_target()?;
        }
        stop.pause(incident.lasts)?;
        incident.end(network, stop)?;
        if self.target.is_none() {
            self.target = Some(Target::start(self.tyche, network, self.dir, stop)?);
        }
        let enough = self.progress.done() + ENOUGH;
        if !stop.until(STUCK, || Ok(is_over() || self.progress.done() >= enough))? {
            return failed(format!("{STUCK:?} after its end, requests wait still: {incident}"));
        }
        stop.pause(incident.quiet)
    }

    fn kill_target(&mut self) -> Result<()> {
        let log = self.dir.join("target.log");
        self.target.take().map_or(Ok(()), |target| target.kill(&log))
    }
}
