//! A virtual machine whose only disk is served by a session on its host.

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::attachment::Kernel;
use crate::rig::{DISK, HOST, MIB, Machine, PATIENCE, Rig, is_in_order, run, wait_readable};

const SIZE: u64 = 256 * MIB;
/// Rounds of work of the machine in all.
const ROUNDS: u32 = 12;
/// Rounds between two deaths of the daemon.
const PACE: u32 = 2;
const DEATHS: u32 = 3;

/// A session on this machine, whose disk is for a virtual machine.
struct Session<'a> {
    rig: &'a Rig,
    socket: String,
    pid: u64,
}

impl<'a> Session<'a> {
    fn connect(rig: &'a Rig) -> Self {
        let (socket, pid) = connect(rig);
        Self { rig, socket, pid }
    }

    /// Kills the daemon, and waits until it is gone.
    fn kill(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).unwrap();
        let daemon = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        assert!(wait_readable(&daemon, PATIENCE), "the daemon does not end");
    }

    /// Runs the same command again.
    fn recover(&mut self) {
        let (socket, pid) = connect(self.rig);
        assert_eq!(socket, self.socket, "the machine looks for it where it was");
        self.pid = pid;
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // It may have ended with the test.
        let _ = tyche(self.rig).args(["disconnect", DISK, "--force"]).output();
    }
}

/// Connects; returns the socket, and the daemon's PID.
fn connect(rig: &Rig) -> (String, u64) {
    let mut command = tyche(rig);
    command.args(["connect", DISK, "--link", HOST, "--as", "vhost-user", "-o", "json"]);
    let said = run(&mut command);
    let value: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    (value["device"].as_str().unwrap().into(), value["pid"].as_u64().unwrap())
}

fn tyche(rig: &Rig) -> Command {
    rig.command(Path::new(env!("CARGO_BIN_EXE_tyche")))
}

/// Boots the machine, which checks its files and works on while the daemon is killed and started
/// again several times.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn only_disk() {
    let rig = Rig::new();
    Machine::install(&rig, SIZE, ROUNDS);
    let target = rig.serve(&[]);
    let mut session = Session::connect(&rig);
    let machine = Machine::boot(&rig, Kernel::V6_1, &session.socket);
    machine.await_line("VERIFIED");
    for death in 1..=DEATHS {
        machine.await_line(&format!("ROUND {}", death * PACE));
        session.kill();
        session.recover();
    }
    machine.end();
    drop(session);
    target.kill();
    assert!(is_in_order(&rig.disk()));
}
