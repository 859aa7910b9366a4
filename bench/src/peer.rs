//! The peers: ways to reach the memory of another machine, each a server and a way for fio to get
//! at it.
//!
//! All export as much memory, and all of it has been written before anything is measured. Servers
//! of several peers run beside each other, for they sleep while nobody asks; so each has a port,
//! or an EtherType, of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::job::{Bundle, Job};
use crate::network::{Network, Odd, Side, address, interface};
use crate::process::{Doing, Result, Running, Stop, failed};

/// How long a server may take until it takes connections.
const READY: Duration = Duration::from_secs(30);
/// How long filling may take, and a job longer than it measures.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The EtherType of the first server, the port of the first target, and that of the first nbdkit.
const ETHERTYPE: u16 = 0x88b5;
const PORT: u16 = 8650;
const NBD_PORT: u16 = 10809;
/// Be the same host in every run, and none that is known elsewhere.
const HOST_ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/// Where the programs and job files are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) tyche: PathBuf,
    /// Tyche's engine for fio.
    pub(crate) engine: PathBuf,
    /// The directory of the job files.
    pub(crate) jobs: PathBuf,
}

/// What carries requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// Tyche over Ethernet frames.
    Tyche,
    /// Tyche's PDUs over TCP.
    Tsockets,
    /// NBD over TCP: nbdkit's memory plugin and fio's own engine.
    Nbd,
    /// The same over multipath TCP: neither of them knows, `mptcpize` gives both such sockets.
    NbdMptcp,
}

impl Protocol {
    fn is_nbd(self) -> bool {
        matches!(self, Self::Nbd | Self::NbdMptcp)
    }
}

/// What a server has to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exports {
    /// How many, each reached over a link of its own if there are several.
    pub(crate) count: u16,
    /// MiB of each.
    pub(crate) mib: u32,
}

/// A protocol and how it is set up on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    /// The longest time that either side spins before it sleeps; NBD has no such thing.
    pub(crate) spin_us: u32,
    /// Hand requests to a thread of the session rather than drive it from fio's.
    pub(crate) queue: bool,
    /// The batching policy; `None`: the default.
    pub(crate) batch: Option<String>,
    /// Hand work from thread to thread on both sides, with a receiving thread for `each` link or
    /// `one` for all; `None`: one thread does everything.
    pub(crate) hand_over: Option<String>,
    /// No delay on the link that has one, as it is for TCP.
    pub(crate) undelayed: bool,
}

impl Peer {
    pub(crate) fn new(protocol: Protocol, spin_us: u32) -> Self {
        let name = match protocol {
            Protocol::Tyche => "tyche",
            Protocol::Tsockets => "tsockets",
            Protocol::Nbd => "nbd",
            Protocol::NbdMptcp => "nbd-mptcp",
        };
        let name = name.to_owned();
        let (queue, batch, hand_over, undelayed) = (false, None, None, false);
        Self { name, protocol, spin_us, queue, batch, hand_over, undelayed }
    }

    /// How long a job runs that others run for `usual`. A multipath connection may need a second
    /// until it uses all of its paths, which is not to be most of what is measured.
    pub(crate) fn runtime(&self, usual: Duration) -> Duration {
        if self.protocol == Protocol::NbdMptcp { usual * 3 } else { usual }
    }

    /// Under another name, with another batching policy.
    pub(crate) fn batching(self, policy: &str) -> Self {
        Self { name: format!("{}-batch-{policy}", self.name), batch: Some(policy.into()), ..self }
    }

    /// Under another name, with a thread of the session's own.
    pub(crate) fn queueing(self) -> Self {
        Self { name: format!("{}-queue", self.name), queue: true, ..self }
    }

    /// Under another name, without the delay of a bad link.
    pub(crate) fn undelayed(self) -> Self {
        Self { name: format!("{}-undelayed", self.name), undelayed: true, ..self }
    }

    /// Under another name, with the threads of the papers' first design.
    pub(crate) fn handing_over(self, receivers: &str) -> Self {
        let name = format!("{}-hand-over-{receivers}", self.name);
        Self { name, hand_over: Some(receivers.to_owned()), ..self }
    }
}

/// A server that runs, with all of its memory written.
pub(crate) struct Server {
    pub(crate) peer: Peer,
    pub(crate) running: Running,
    /// Which of the servers that run at a time.
    number: u16,
    exports: Exports,
    /// Its files.
    dir: TempDir,
}

impl Server {
    /// Starts it and waits until it takes connections.
    pub(crate) fn start(
        peer: &Peer,
        number: u16,
        exports: Exports,
        network: &Network,
        programs: &Programs,
        stop: &Stop,
    ) -> Result<Self> {
        let dir = tempfile::tempdir().doing("a temporary directory")?;
        let pid_file = dir.path().join("pid");
        let mut command = match peer.protocol {
            Protocol::Tyche | Protocol::Tsockets => tyche(peer, number, exports, network, programs),
            Protocol::Nbd | Protocol::NbdMptcp => nbdkit(peer, number, exports, network, &pid_file),
        };
        command.env("TYCHE_RUNTIME_DIR", dir.path());
        command.env("TYCHE_STATE_DIR", dir.path().join("state"));
        let running = Running::start(&mut command)?;
        let peer = peer.clone();
        let mut server = Self { peer, running, number, exports, dir };
        let running = &mut server.running;
        // nbdkit writes its process id, and Tyche a line, once either can be connected to.
        let ready = stop.until(READY, || {
            running.check()?;
            let written = fs::metadata(&pid_file).is_ok_and(|file| file.len() > 0);
            Ok(written || !running.output()?.is_empty())
        })?;
        if !ready {
            return failed(format!("{}: the server does not get ready", server.peer.name));
        }
        Ok(server)
    }

    /// Writes all of its memory.
    pub(crate) fn fill(&self, network: &Network, programs: &Programs, stop: &Stop) -> Result<()> {
        for number in 0..self.exports.count {
            let mut fio = self.fio(number, Bundle::only(number), network, programs);
            fio.arg(programs.jobs.join("fill.fio"));
            Running::start(&mut fio)?.succeed(stop, PATIENCE)?;
        }
        Ok(())
    }

    /// fio with a job as that file has it, which writes its results to `output`.
    pub(crate) fn load(
        &self,
        job: &Job,
        file: &str,
        runtime: Duration,
        output: &Path,
        network: &Network,
        programs: &Programs,
    ) -> Command {
        let mut fio = self.fio(0, job.bundle(), network, programs);
        fio.arg("--output").arg(output).args(["--output-format=json", "--eta=never"]);
        fio.env("RUNTIME_MS", runtime.as_millis().to_string());
        fio.envs(job.environment()).arg(programs.jobs.join(file));
        fio
    }

    /// fio on one of the exports, over these links.
    fn fio(&self, export: u16, bundle: Bundle, network: &Network, programs: &Programs) -> Command {
        let peer = &self.peer;
        let mut fio = pinned(peer, network, Side::Host, "fio");
        fio.current_dir(self.dir.path()).env("SIZE", format!("{}m", self.exports.mib));
        if peer.protocol.is_nbd() {
            // One connection, over the first of the links; the others are for the kernel to find.
            let (host, port) = (address(Side::Target, bundle.first), NBD_PORT + self.number);
            fio.args(["--ioengine=nbd", &format!("--uri=nbd://{host}:{port}")]);
            return fio;
        }
        fio.arg(format!("--ioengine=external:{}", programs.engine.display()));
        fio.args([format!("--export=disk{export}"), format!("--host_id={HOST_ID}")]);
        fio.arg(format!("--spin_us={}", peer.spin_us));
        fio.arg(format!("--mode={}", if peer.queue { "queue" } else { "inline" }));
        let links: Vec<_> = bundle.numbers().map(|cable| link(peer, self.number, cable)).collect();
        fio.arg(format!("--link={}", links.join(",")));
        if bundle.channels > 1 {
            fio.arg(format!("--channels={}", bundle.channels));
        }
        if peer.protocol == Protocol::Tyche {
            fio.arg(format!("--ethertype={}", ETHERTYPE + self.number));
            fio.arg(format!("--qdisc={}", u8::from(network.link().rate.is_some())));
        }
        fio.args(peer.batch.iter().map(|policy| format!("--batch={policy}")));
        if peer.hand_over.is_some() {
            fio.arg("--hand_over=1");
        }
        fio
    }
}

/// A program on one side, as this peer needs it.
fn pinned(peer: &Peer, network: &Network, side: Side, program: &str) -> Command {
    if peer.protocol != Protocol::NbdMptcp {
        return network.pinned(side, program);
    }
    let mut command = network.pinned(side, "mptcpize");
    command.args(["run", program]);
    command
}

/// What our servers and hosts call a link.
fn link(peer: &Peer, number: u16, cable: u16) -> String {
    match peer.protocol {
        Protocol::Tsockets => format!("tcp:{}:{}", address(Side::Target, cable), PORT + number),
        _ => interface(cable),
    }
}

fn tyche(
    peer: &Peer,
    number: u16,
    exports: Exports,
    network: &Network,
    programs: &Programs,
) -> Command {
    let mut serve = network.pinned(Side::Target, &programs.tyche.to_string_lossy());
    serve.args(["serve", "--name", &format!("bench-{number}")]);
    for export in 0..exports.count {
        serve.arg("--export").arg(format!("disk{export}=mem:{}M", exports.mib));
    }
    serve.args(["--spin", &peer.spin_us.to_string()]);
    for cable in 0..network.link().cables {
        serve.arg("--link").arg(link(peer, number, cable));
    }
    let late = network.link().odd.filter(|_| !peer.undelayed);
    if let Some(Odd { cable, delay_ms: delay_ms @ 1.., .. }) = late {
        let fault = format!("{}:delay={delay_ms}ms", link(peer, number, cable));
        serve.args(["--fault", &fault]);
    }
    if peer.protocol == Protocol::Tyche {
        serve.args(["--ethertype", &format!("{:#06x}", ETHERTYPE + number)]);
        if network.link().rate.is_some() {
            serve.arg("--qdisc");
        }
    }
    if let Some(policy) = &peer.batch {
        serve.args(["--batch", policy]);
    }
    serve.args(peer.hand_over.iter().map(|receivers| format!("--hand-over={receivers}")));
    serve
}

fn nbdkit(
    peer: &Peer,
    number: u16,
    exports: Exports,
    network: &Network,
    pid_file: &Path,
) -> Command {
    let mut nbdkit = pinned(peer, network, Side::Target, "nbdkit");
    nbdkit.arg("--foreground").arg("--pidfile").arg(pid_file);
    // At every address of its namespace.
    nbdkit.args(["--port", &(NBD_PORT + number).to_string()]);
    nbdkit.args(["memory", &format!("{}M", exports.mib), "allocator=malloc"]);
    nbdkit
}
