//! Daemons in the machine with two nodes.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::MutexGuard;

use serde_json::Value;
use tempfile::TempDir;
use tyche_block::Arena;
use tyche_numa::{Node, Topology};
use tyche_testkit::alone;
use tyche_testkit::process::{Running, run};
pub(crate) use tyche_testkit::wait::wait_until;

/// The target's interfaces; those of the host are called `h0` and `h1`.
pub(crate) const TARGET: [&str; 2] = ["t0", "t1"];

/// One test's share of the machine.
pub(crate) struct Rig {
    dir: TempDir,
    pub(crate) topology: Topology,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    /// # Panics
    /// On any other machine.
    pub(crate) fn new() -> Self {
        let topology = Topology::read(Path::new("/sys")).unwrap();
        let nodes: Vec<_> = topology.nodes().collect();
        assert_eq!(nodes, [Node(0), Node(1)], "this is not the machine of cargo xtask numa");
        for (name, node) in [("t0", 0), ("t1", 1), ("h0", 0), ("h1", 1)] {
            assert_eq!(topology.node_of_interface(name), Some(Node(node)), "{name}");
        }
        Self { dir: tempfile::tempdir().unwrap(), topology, _alone: alone::in_program() }
    }

    /// The program, restricted to these CPUs if there are any.
    pub(crate) fn tyche(&self, cpus: Option<&str>, args: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_tyche"));
        let mut command = match cpus {
            Some(cpus) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cpus]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(args).env("TYCHE_RUNTIME_DIR", self.dir.path().join("run"));
        command.env("TYCHE_STATE_DIR", self.dir.path().join("state"));
        command.env("TYCHE_KNOWN_TARGETS", self.dir.path().join("known-targets"));
        command
    }

    /// Serves memory on both interfaces.
    pub(crate) fn serve(&self, cpus: Option<&str>, args: &[&str]) -> Running {
        let fixed = ["serve", "--export", "disk=sparse:64M", "--name", "numa"];
        let links = TARGET.iter().flat_map(|link| ["--link", *link]);
        let args: Vec<_> = fixed.into_iter().chain(links).chain(args.iter().copied()).collect();
        let mut command = self.tyche(cpus, &args);
        let mut target = Running::start(command.stdout(Stdio::piped()));
        let line = target.line();
        assert!(line.starts_with("tyche: serving "), "{line:?}");
        target
    }

    /// Connects the disk over these interfaces, as a file.
    pub(crate) fn connect(&self, cpus: Option<&str>, links: &[&str], args: &[&str]) -> Session<'_> {
        let links = links.iter().flat_map(|link| ["--link", *link]);
        let fixed = ["connect", "disk", "--as", "fuse", "-o", "json"];
        let args: Vec<_> = fixed.into_iter().chain(links).chain(args.iter().copied()).collect();
        let value = answer(&mut self.tyche(cpus, &args));
        let device = PathBuf::from(value["device"].as_str().unwrap());
        let pid = value["pid"].as_u64().unwrap() as u32;
        Session { rig: self, device, pid }
    }

    /// The JSON output of one of our commands.
    pub(crate) fn ask(&self, args: &[&str]) -> Value {
        answer(&mut self.tyche(None, args))
    }

    /// The only target's report.
    pub(crate) fn target(&self) -> Value {
        self.ask(&["stats", "-o", "json"])["targets"][0].take()
    }

    /// The only session's report.
    pub(crate) fn session(&self) -> Value {
        self.ask(&["stats", "-o", "json"])["sessions"][0].take()
    }
}

/// The JSON that a command prints.
fn answer(command: &mut Command) -> Value {
    let stdout = run(command);
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// A connected export.
pub(crate) struct Session<'a> {
    rig: &'a Rig,
    pub(crate) device: PathBuf,
    pub(crate) pid: u32,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut disconnect = self.rig.tyche(None, &["disconnect", "disk", "--force"]);
        let _ = disconnect.output();
    }
}

/// Reads a whole file; returns its number of bytes.
pub(crate) fn read_all(path: &Path) -> usize {
    // Direct I/O needs whole pages.
    let mut block = Arena::new(256).alloc(1 << 20).unwrap();
    let mut file = File::open(path).unwrap();
    std::iter::repeat_with(|| file.read(&mut block).unwrap()).take_while(|len| *len > 0).sum()
}

/// Writes a whole file, and has its data reach the target.
pub(crate) fn write_all(path: &Path) {
    let block = Arena::new(256).alloc(1 << 20).unwrap();
    let mut file = File::options().write(true).open(path).unwrap();
    (0..64).for_each(|_| file.write_all(&block).unwrap());
    file.sync_all().unwrap();
}
