//! The peers: ways to reach the memory of another machine, each a server and an engine of fio.
//!
//! All export the same amount of memory, and all of it is written before the measurements. Servers
//! of several peers run at the same time, since idle ones sleep; so each has a port, or an
//! EtherType, of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::counters::Counters;
use crate::device::{Disk, RUNTIME_DIR};
use crate::double::Double;
use crate::job::{Bundle, Job, Pattern};
use crate::network::{Network, Odd, Side, address, interface};
use crate::process::{Doing, Result, Running, Stop, cpu_s, failed, run};
use crate::secrets::{self, Keys};
use crate::switches;

/// Time limit for a server to accept connections.
const READY: Duration = Duration::from_secs(30);
/// Time limit for filling, and for a job beyond its run time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long our own load writes to fill an export: several times as long as that takes.
const FILLING: Duration = Duration::from_secs(3);
/// The EtherType of the first server, the port of the first target, and that of the first nbdkit.
const ETHERTYPE: u16 = 0x88b5;
const PORT: u16 = 8650;
const NBD_PORT: u16 = 10809;
/// The variable that names the directory of temporary files, in which ends of the double meet.
pub(crate) const TEMPORARY_DIR: &str = "TMPDIR";
/// The name of each server's export.
const EXPORT: &str = "disk";
/// The same host ID in every run, unknown elsewhere.
const HOST_ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/// Paths of the programs and job files.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) tyche: PathBuf,
    /// The laboratory, which serves over late links and with the threads of the first design.
    pub(crate) lab: PathBuf,
    /// Tyche's engine for fio.
    pub(crate) engine: PathBuf,
    /// The directory of the job files.
    pub(crate) jobs: PathBuf,
}

/// The protocol that carries requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// Tyche over Ethernet frames.
    Tyche,
    /// The same frames over UDP, in trains.
    Udp,
    /// Tyche's PDUs over TCP.
    Tsockets,
    /// Tyche over Ethernet frames with no option set, and a block device.
    Default,
    /// NBD over TCP: nbdkit's memory plugin and fio's own engine.
    Nbd,
    /// NBD over multipath TCP: `mptcpize` gives both sides such sockets without their knowledge.
    NbdMptcp,
    /// NBD over TLS, with a certificate of the server.
    NbdTls,
    /// Fibre Channel over Ethernet, and our own load in the thread of its initiator.
    Fcoe,
    /// The same target, and fio with our engine, inline: each thread drives its queue.
    FcoeInline,
    /// The same target, and an initiator in layers (`tyche-lab bench --layered`).
    FcoeLayered,
    /// Tyche over the double of RDMA, which needs no network: memory that both ends map.
    Rdma(Double),
}

impl Protocol {
    fn is_nbd(self) -> bool {
        matches!(self, Self::Nbd | Self::NbdMptcp | Self::NbdTls)
    }

    fn is_fcoe(self) -> bool {
        matches!(self, Self::Fcoe | Self::FcoeInline | Self::FcoeLayered)
    }

    /// Whether our own load takes the place of fio, which has no engine for it.
    pub(crate) fn has_own_load(self) -> bool {
        matches!(self, Self::Fcoe | Self::FcoeLayered | Self::Rdma(_))
    }
}

/// A protocol with the set-up of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    /// The longest time that either side spins before it sleeps; NBD never spins.
    pub(crate) spin_us: u32,
    /// Whether requests are handed to a thread of the session rather than sent by fio's thread.
    pub(crate) queue: bool,
    /// The batching policy; `None`: the default.
    pub(crate) batch: Option<String>,
    /// The parts of the work that have threads of their own at the target, as `tyche-lab serve
    /// --hand-over` names them; `None`: one thread does everything.
    pub(crate) hand_over: Option<String>,
    /// Removes the delay from the link that has one, as for TCP.
    pub(crate) undelayed: bool,
    /// Whether both sides have keys.
    pub(crate) keyed: bool,
    /// Threads of the target for each link; `None`: the default, one.
    pub(crate) threads: Option<u16>,
}

impl Peer {
    pub(crate) fn new(protocol: Protocol, spin_us: u32) -> Self {
        let name = match protocol {
            Protocol::Tyche => "tyche",
            Protocol::Udp => "udp",
            Protocol::Tsockets => "tsockets",
            Protocol::Default => "default",
            Protocol::Nbd => "nbd",
            Protocol::NbdMptcp => "nbd-mptcp",
            Protocol::NbdTls => "nbd-tls",
            Protocol::Fcoe | Protocol::FcoeInline => "fcoe",
            Protocol::FcoeLayered => "fcoe-layered",
            Protocol::Rdma(_) => "rdma",
        };
        let name = name.to_owned();
        let (queue, batch, hand_over) = (false, None, None);
        let (undelayed, keyed) = (false, false);
        let threads = None;
        Self { name, protocol, spin_us, queue, batch, hand_over, undelayed, keyed, threads }
    }

    /// A variant of the same name whose target has so many threads for each link.
    pub(crate) fn with_threads(self, threads: u16) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Run time of a job, where other peers take `usual`. A multipath connection may need a second
    /// until it uses all of its paths, which must not dominate the measurement.
    pub(crate) fn runtime(&self, usual: Duration) -> Duration {
        if self.protocol == Protocol::NbdMptcp { usual * 3 } else { usual }
    }

    /// A variant with another name and batching policy.
    pub(crate) fn batching(self, policy: &str) -> Self {
        Self { name: format!("{}-batch-{policy}", self.name), batch: Some(policy.into()), ..self }
    }

    /// A variant with another name and a thread of the session's own.
    pub(crate) fn queueing(self) -> Self {
        Self { name: format!("{}-queue", self.name), queue: true, ..self }
    }

    /// A variant with another name, without the delay of a bad link.
    pub(crate) fn undelayed(self) -> Self {
        Self { name: format!("{}-undelayed", self.name), undelayed: true, ..self }
    }

    /// A variant with another name, with keys.
    pub(crate) fn keyed(self) -> Self {
        Self { name: format!("{}-keys", self.name), keyed: true, ..self }
    }

    /// A variant with another name, in which nobody spins.
    pub(crate) fn sleeping(self) -> Self {
        Self { name: format!("{}-no-spin", self.name), spin_us: 0, ..self }
    }

    /// A variant with another name and the threads of the papers' first design.
    pub(crate) fn handing_over(self, parts: &str) -> Self {
        let name = format!("{}-hand-over-{}", self.name, parts.replace(',', "-"));
        Self { name, hand_over: Some(parts.to_owned()), ..self }
    }
}

/// A running server, with all of its memory written.
pub(crate) struct Server {
    /// The connected block device, if the peer has one. Dropped before the server.
    disk: Option<Disk>,
    keys: Option<Keys>,
    pub(crate) peer: Peer,
    pub(crate) running: Running,
    /// Index among the servers that run at the same time.
    number: u16,
    export_mib: u32,
    /// Directory of its files.
    dir: TempDir,
}

impl Server {
    /// Starts the server and waits until it accepts connections.
    pub(crate) fn start(
        peer: &Peer,
        number: u16,
        export_mib: u32,
        network: &Network,
        programs: &Programs,
        stop: &Stop,
    ) -> Result<Self> {
        let dir = tempfile::tempdir().doing("a temporary directory")?;
        let pid_file = dir.path().join("pid");
        let keys = match peer.keyed {
            true => Some(Keys::make(&programs.tyche, dir.path(), stop)?),
            false => None,
        };
        let mut command = match peer.protocol {
            Protocol::Tyche | Protocol::Udp | Protocol::Tsockets | Protocol::Rdma(_) => {
                tyche(peer, number, export_mib, network, programs)
            }
            Protocol::Default => plain(export_mib, network, programs),
            Protocol::Fcoe | Protocol::FcoeInline | Protocol::FcoeLayered => {
                let config = dir.path().join("target.toml");
                fs::write(&config, fcoe_config(number, export_mib)).doing(config.display())?;
                fcoe(peer, &config, network, programs)
            }
            Protocol::Nbd | Protocol::NbdMptcp => {
                nbdkit(peer, number, export_mib, network, (&pid_file, None))
            }
            Protocol::NbdTls => {
                let certificates = secrets::certify(dir.path(), stop)?;
                nbdkit(peer, number, export_mib, network, (&pid_file, Some(&certificates)))
            }
        };
        keys.iter().for_each(|keys| keys.serve(&mut command));
        command.env(RUNTIME_DIR, dir.path()).env(TEMPORARY_DIR, dir.path());
        command.env("TYCHE_STATE_DIR", dir.path().join("state"));
        command.env("TYCHE_KNOWN_TARGETS", dir.path().join("known-targets"));
        let running = Running::start(&mut command)?;
        let peer = peer.clone();
        let mut server = Self { disk: None, keys, peer, running, number, export_mib, dir };
        let running = &mut server.running;
        // nbdkit writes its PID, and Tyche a line, once it accepts connections.
        let ready = stop.until(READY, || {
            running.check()?;
            let written = fs::metadata(&pid_file).is_ok_and(|file| file.len() > 0);
            Ok(written || !running.output()?.is_empty())
        })?;
        if !ready {
            return failed(format!("{}: the server does not get ready", server.peer.name));
        }
        if server.peer.protocol == Protocol::Default {
            let arguments = [EXPORT, "--link", &interface(0)];
            let dir = server.dir.path();
            server.disk = Some(Disk::connect(&programs.tyche, &arguments, network, dir, stop)?);
        }
        Ok(server)
    }

    /// Writes all of its memory.
    pub(crate) fn fill(&self, network: &Network, programs: &Programs, stop: &Stop) -> Result<()> {
        if matches!(self.peer.protocol, Protocol::Rdma(_)) {
            // Its load reads and writes memory that the target has touched.
            return Ok(());
        }
        if self.peer.protocol.has_own_load() {
            let job = Job::new(Pattern::Write, 1 << 20, 4);
            let mut bench = self.bench(&job, FILLING, network, programs);
            Running::start(&mut bench)?.succeed(stop, PATIENCE)?;
            return Ok(());
        }
        let mut fio = self.fio(Bundle::only(0), network, programs);
        fio.env("SIZE", format!("{}m", self.export_mib)).arg(programs.jobs.join("fill.fio"));
        Running::start(&mut fio)?.succeed(stop, PATIENCE)?;
        Ok(())
    }

    /// Seconds of CPU time, and voluntary context switches, of the host's daemon so far; zeroes
    /// without one.
    pub(crate) fn daemon(&self) -> Result<(f64, u64)> {
        let Some(disk) = &self.disk else { return Ok((0.0, 0)) };
        let pid = disk.pid.unsigned_abs();
        Ok((cpu_s(pid)?, switches::of_process(pid)))
    }

    /// The target's counters so far, if it has those of our sessions; and requests by thread, if it
    /// was told how many threads to have.
    pub(crate) fn counters(
        &self,
        programs: &Programs,
        stop: &Stop,
    ) -> Result<(Option<Counters>, Vec<u64>)> {
        let Peer { protocol, threads, .. } = self.peer;
        let has_counters = !protocol.is_nbd() && !protocol.is_fcoe();
        if !has_counters && threads.is_none() {
            return Ok((None, Vec::new()));
        }
        let mut stats = Command::new(&programs.tyche);
        stats.args(["stats", "-o", "json"]).env(RUNTIME_DIR, self.dir.path());
        let stats = run(&mut stats, stop)?;
        let counters = has_counters.then(|| Counters::of_target(&stats)).transpose()?;
        let by_thread = threads.map(|_| Counters::by_thread(&stats)).transpose()?;
        Ok((counters, by_thread.unwrap_or_default()))
    }

    /// The file to which the engine of a job appends its counters.
    pub(crate) fn engine_counters(&self) -> PathBuf {
        self.dir.path().join("counters")
    }

    /// fio with a job from its file; writes its results to `output`.
    pub(crate) fn load(
        &self,
        job: &Job,
        file: &str,
        runtime: Duration,
        output: &Path,
        network: &Network,
        programs: &Programs,
    ) -> Command {
        let mut fio = self.fio(job.bundle(), network, programs);
        fio.arg("--output").arg(output).args(["--output-format=json", "--eta=never"]);
        fio.env("RUNTIME_MS", runtime.as_millis().to_string());
        if job.threads > 1 && self.has_engine() {
            fio.arg(format!("--queues={}", job.threads));
        }
        if self.has_engine() {
            fio.arg(format!("--counters={}", self.engine_counters().display()));
        }
        fio.envs(job.environment(self.export_mib)).arg(programs.jobs.join(file));
        fio
    }

    /// Whether fio reaches the server by our engine.
    fn has_engine(&self) -> bool {
        !self.peer.protocol.is_nbd() && self.disk.is_none()
    }

    /// fio on the export, over these links.
    fn fio(&self, bundle: Bundle, network: &Network, programs: &Programs) -> Command {
        let peer = &self.peer;
        let mut fio = pinned(peer, network, Side::Host, "fio");
        fio.current_dir(self.dir.path());
        if peer.protocol.is_nbd() {
            // One connection, over the first of the links; the kernel finds the others.
            let (host, port) = (address(Side::Target, bundle.first), NBD_PORT + self.number);
            let scheme = if peer.protocol == Protocol::NbdTls { "nbds" } else { "nbd" };
            fio.args(["--ioengine=nbd", &format!("--uri={scheme}://{host}:{port}")]);
            // The home of the certificate that it trusts.
            fio.env("HOME", self.dir.path());
            return fio;
        }
        if let Some(disk) = &self.disk {
            fio.args(["--ioengine=libaio", "--direct=1"]);
            fio.arg(format!("--filename={}", disk.device.display()));
            return fio;
        }
        fio.arg(format!("--ioengine=external:{}", programs.engine.display()));
        if peer.protocol.is_fcoe() {
            fio.args(["--fcoe=1".to_owned(), format!("--export={}", wwpn(self.number))]);
            fio.env(RUNTIME_DIR, self.dir.path().join("run"));
        } else {
            fio.args([format!("--export={EXPORT}"), format!("--host_id={HOST_ID}")]);
        }
        fio.arg(format!("--spin_us={}", peer.spin_us));
        fio.arg(format!("--mode={}", if peer.queue { "queue" } else { "inline" }));
        let links: Vec<_> = bundle.numbers().map(|cable| link(peer, self.number, cable)).collect();
        fio.arg(format!("--link={}", links.join(",")));
        self.keys.iter().for_each(|keys| keys.connect(&mut fio));
        if bundle.channels > 1 {
            fio.arg(format!("--channels={}", bundle.channels));
        }
        if peer.protocol == Protocol::Tyche {
            fio.arg(format!("--ethertype={}", ETHERTYPE + self.number));
            fio.arg(format!("--qdisc={}", u8::from(network.link().rate.is_some())));
        }
        fio.args(peer.batch.iter().map(|policy| format!("--batch={policy}")));
        fio
    }

    /// Our own load, for servers that fio has no engine for.
    pub(crate) fn bench(
        &self,
        job: &Job,
        runtime: Duration,
        network: &Network,
        programs: &Programs,
    ) -> Command {
        let mut bench = self.own_load(job, runtime, (network, programs));
        if let Protocol::Rdma(double) = self.peer.protocol {
            bench.args([EXPORT, "--counters", "--host-id", HOST_ID]);
            bench.args(["--link", &link(&self.peer, self.number, 0)]).args(double.link());
            return bench;
        }
        bench.args(["--fcoe", &wwpn(self.number), "--link", &interface(0)]);
        bench.args((self.peer.protocol == Protocol::FcoeLayered).then_some("--layered"));
        bench
    }

    /// The laboratory's crowd at the export, without its numbers.
    pub(crate) fn crowd(&self, network: &Network, programs: &Programs) -> Command {
        let mut crowd = network.pinned(Side::Host, &programs.lab.to_string_lossy());
        crowd.args(["crowd", EXPORT, "--link", &link(&self.peer, self.number, 0)]);
        crowd.env(RUNTIME_DIR, self.dir.path().join("run"));
        crowd
    }

    /// The laboratory's own load, which cuts the time of a request into stages. What the target
    /// receives in a thread of its own, the host does, too.
    pub(crate) fn stages(
        &self,
        job: &Job,
        runtime: Duration,
        network: &Network,
        programs: &Programs,
    ) -> Command {
        let Self { peer, number, .. } = self;
        let mut bench = self.own_load(job, runtime, (network, programs));
        bench.args([EXPORT, "--stages", "--host-id", HOST_ID]);
        bench.args(["--link", &link(peer, *number, job.bundle().first)]);
        bench.args(["--ethertype", &format!("{:#06x}", ETHERTYPE + number)]);
        let receives = peer.hand_over.iter().any(|parts| parts.contains("receive"));
        bench.args(receives.then_some("--hand-over=receive"));
        bench
    }

    /// The laboratory's own load with a job, without the links and the disk.
    fn own_load(
        &self,
        job: &Job,
        runtime: Duration,
        (network, programs): (&Network, &Programs),
    ) -> Command {
        let mut bench = network.pinned(Side::Host, &programs.lab.to_string_lossy());
        bench.args(["bench", "--yes", "-o", "json", "--spin", &self.peer.spin_us.to_string()]);
        bench.args(["--rw", job.rw.fio(), "--bs", &job.block_bytes.to_string()]);
        bench.args(["--iodepth", &job.depth.to_string()]);
        bench.args(["--runtime", &runtime.as_secs_f64().to_string()]);
        bench.args(["--jobs", &job.threads.to_string()]);
        bench.env(RUNTIME_DIR, self.dir.path().join("run")).env(TEMPORARY_DIR, self.dir.path());
        bench
    }
}

/// A program on one side, with multipath sockets if the peer needs them.
fn pinned(peer: &Peer, network: &Network, side: Side, program: &str) -> Command {
    if peer.protocol != Protocol::NbdMptcp {
        return network.pinned(side, program);
    }
    let mut command = network.pinned(side, "mptcpize");
    command.args(["run", program]);
    command
}

/// The name of a link for our servers and hosts.
fn link(peer: &Peer, number: u16, cable: u16) -> String {
    let place = |transport| {
        let host = address(Side::Target, cable);
        format!("{transport}:{host}:{}", PORT + number)
    };
    match peer.protocol {
        Protocol::Udp => place("udp"),
        Protocol::Tsockets => place("tcp"),
        Protocol::Rdma(_) => place("rdma"),
        _ => interface(cable),
    }
}

/// `tyche serve` as a user would type it first.
fn plain(export_mib: u32, network: &Network, programs: &Programs) -> Command {
    let mut serve = network.pinned(Side::Target, &programs.tyche.to_string_lossy());
    serve.args(["serve", "--export", &format!("{EXPORT}=mem:{export_mib}M")]);
    serve.args(["--link", &interface(0)]);
    serve
}

/// A target of Fibre Channel over Ethernet.
fn fcoe(peer: &Peer, config: &Path, network: &Network, programs: &Programs) -> Command {
    let mut serve = network.pinned(Side::Target, &programs.tyche.to_string_lossy());
    serve.args(["serve", "--spin", &peer.spin_us.to_string(), "--config"]).arg(config);
    serve.args(threads(peer));
    serve
}

/// The option for the threads of a target.
fn threads(peer: &Peer) -> Option<String> {
    peer.threads.map(|threads| format!("--threads={threads}"))
}

/// Its configuration: several have ports of their own on the interface.
fn fcoe_config(number: u16, export_mib: u32) -> String {
    format!(
        "name = \"bench-{number}\"\n\
         [[fcoe]]\nlink = \"{}\"\nwwpn = \"{}\"\n\
         [[export]]\nname = \"{EXPORT}\"\npath = \"mem:{export_mib}M\"\n",
        interface(0),
        wwpn(number)
    )
}

/// The name of the port of a server.
fn wwpn(number: u16) -> String {
    format!("20000000000a{number:04x}")
}

fn tyche(
    peer: &Peer,
    number: u16,
    export_mib: u32,
    network: &Network,
    programs: &Programs,
) -> Command {
    let late = network.link().odd.filter(|it| it.delay_ms > 0 && !peer.undelayed);
    let is_rdma = matches!(peer.protocol, Protocol::Rdma(_));
    let is_wrapped = is_rdma || late.is_some() || peer.hand_over.is_some();
    let program = if is_wrapped { &programs.lab } else { &programs.tyche };
    let mut serve = network.pinned(Side::Target, &program.to_string_lossy());
    serve.args(["serve", "--name", &format!("bench-{number}")]);
    serve.arg("--export").arg(format!("{EXPORT}=mem:{export_mib}M"));
    serve.args(["--spin", &peer.spin_us.to_string()]).args(threads(peer));
    for cable in 0..network.link().cables {
        serve.arg("--link").arg(link(peer, number, cable));
    }
    if let Some(Odd { cable, delay_ms, .. }) = late {
        let fault = format!("{}:delay={delay_ms}ms", link(peer, number, cable));
        serve.args(["--fault", &fault]);
    }
    if peer.protocol == Protocol::Tyche {
        serve.args(["--ethertype", &format!("{:#06x}", ETHERTYPE + number)]);
        if network.link().rate.is_some() {
            serve.arg("--qdisc");
        }
    }
    if let Protocol::Rdma(double) = peer.protocol {
        serve.args(double.link()).args(double.disks());
    }
    if let Some(policy) = &peer.batch {
        serve.args(["--batch", policy]);
    }
    if let Some(parts) = &peer.hand_over {
        serve.arg(format!("--hand-over={parts}"));
    }
    serve
}

/// nbdkit, which writes its PID to a file; with the directory of its certificates, over TLS alone.
fn nbdkit(
    peer: &Peer,
    number: u16,
    export_mib: u32,
    network: &Network,
    (pid_file, certificates): (&Path, Option<&Path>),
) -> Command {
    let mut nbdkit = pinned(peer, network, Side::Target, "nbdkit");
    nbdkit.arg("--foreground").arg("--pidfile").arg(pid_file);
    // It listens at every address of its namespace.
    nbdkit.args(["--port", &(NBD_PORT + number).to_string()]);
    if let Some(certificates) = certificates {
        nbdkit.arg("--tls=require").arg("--tls-certificates").arg(certificates);
    }
    nbdkit.args(["memory", &format!("{export_mib}M"), "allocator=malloc"]);
    nbdkit
}
