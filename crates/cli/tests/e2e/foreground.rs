//! `connect --foreground`, and the signals that end it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::rig::{Rig, Running, Side, rig, run, wait_until};

const SIZE: u64 = 64 << 20;

/// A session in the foreground.
struct Foreground(Running);

impl Foreground {
    fn start(rig: &Rig, args: &[&str]) -> Self {
        let fixed = ["connect", "disk", "--foreground", "--link", rig.cable.link(Side::Host)];
        let mut command = rig.tyche(Side::Host, &[&fixed, args].concat());
        Self(Running::start(command.stdout(Stdio::piped())))
    }

    /// The device's path, as the command prints it.
    fn device(&mut self) -> String {
        self.0.line().trim_end().to_owned()
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
        let mut session = Foreground::start(&rig, &["--timeout", "600"]);
        // The session's directory exists once the daemon listens to signals.
        let sessions = rig.path("run/sessions");
        wait_until("it has begun", || {
            fs::read_dir(&sessions).is_ok_and(|mut it| it.next().is_some())
        });
        session.0.signal(signal);
        assert!(!session.0.end().success());
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
    session.0.signal(Signal::INT);
    wait_until("the first waits", || session.waits_for_disk("loop-keeper"));
    session.0.signal(Signal::INT);
    session.0.end();
}
