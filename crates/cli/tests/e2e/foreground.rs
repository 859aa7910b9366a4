//! `connect --foreground`, and the signals that end it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::rig::{PATIENCE, Rig, Side, rig, run, wait_readable, wait_until};

const SIZE: u64 = 64 << 20;

/// A session in the foreground.
struct Foreground(Child);

impl Foreground {
    fn start(rig: &Rig, args: &[&str]) -> Self {
        let fixed = ["connect", "disk", "--foreground", "--link", rig.cable.link(Side::Host)];
        let mut command = rig.tyche(Side::Host, &[&fixed, args].concat());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        Self(child.unwrap())
    }

    /// The device's path, as the command prints it.
    fn device(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn end(mut self) -> ExitStatus {
        let process = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()).unwrap();
        if !wait_readable(&process, PATIENCE) {
            self.0.kill().unwrap();
            panic!("it goes on after the signals");
        }
        self.0.wait().unwrap()
    }

    /// Whether the thread of that name is in state D.
    fn waits_for_disk(&self, name: &str) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().flatten();
        let waits = |path: &Path| {
            let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
            stat.contains(&format!("({name}) D"))
        };
        threads.map(|it| it.path()).any(|path| waits(&path))
    }
}

#[test]
fn a_signal_ends_it_though_there_is_no_target_yet() {
    let rig = rig!(1500);
    for signal in [Signal::INT, Signal::TERM] {
        let session = Foreground::start(&rig, &["--timeout", "600"]);
        // Its directory exists once it listens to signals.
        let sessions = rig.path("run/sessions");
        wait_until("it has begun", || {
            fs::read_dir(&sessions).is_ok_and(|mut it| it.next().is_some())
        });
        session.signal(signal);
        assert!(!session.end().success());
        wait_until("nothing is left", || fs::read_dir(&sessions).unwrap().next().is_none());
    }
}

#[test]
fn a_second_interrupt_ends_a_session_whose_first_waits_for_a_lost_target() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let args = ["--as", "loop", "--keep-alive-tmo", "1", "--ctrl-loss-tmo", "-1"];
    let mut session = Foreground::start(&rig, &args);
    let device = session.device();
    target.kill();
    // These writes stay in the page cache: they can't be written out.
    let of = format!("of={device}");
    run(Command::new("dd").args(["if=/dev/urandom", &of, "bs=4k", "count=64", "conv=nocreat"]));
    session.signal(Signal::INT);
    wait_until("the first waits", || session.waits_for_disk("loop-keeper"));
    session.signal(Signal::INT);
    session.end();
}
