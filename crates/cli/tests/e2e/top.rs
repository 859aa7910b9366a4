//! `tyche top`: rates in JSON and as lines, beside a daemon that hangs, and the whole terminal,
//! which is given back as it was.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::rig::{DISK, Rig, Running, Session, Side, rig, run, wait_until};

/// A disk that takes long to be read.
const EXPORT: &str = "disk=null:4G";

/// Reads from a session's device, one small block after the other.
fn load(session: &Session<'_>) -> Running {
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", session.device.display())).args(["of=/dev/null", "bs=4k"]);
    Running::start(dd.args(["iflag=direct", "status=none"]).stdout(Stdio::null()))
}

/// The only one of these that has that value of a field.
fn find<'a>(values: &'a Value, field: &str, value: &str) -> &'a Value {
    values.as_array().unwrap().iter().find(|it| it[field] == value).unwrap_or(&Value::Null)
}

#[test]
fn rates_are_of_sessions_links_and_queues_and_of_exports_and_hosts() {
    let rig = rig!(1500);
    let _target = rig.serve(&["--export", EXPORT]);
    let session = rig.connect_as("fuse", &[]);
    let load = load(&session);
    let host = rig.cable.link(Side::Host);
    // The machine may be too busy for a request within one interval.
    wait_until("all rates are there", || {
        let top = rig.ask(&["top", "--interval", "0.5"]);
        let (shown, target) = (&top["sessions"][0], &top["targets"][0]);
        assert_eq!((&shown["export"], &shown["state"]), (&DISK.into(), &"live".into()));
        assert_eq!(shown["links"][0]["link"], host);
        let reads = &shown["requests"]["reads"];
        let of_session = ["per_s", "bytes_per_s", "mean_us", "p99_us"].map(|it| &reads[it]);
        let export = &target["exports"][0];
        let others = [
            &shown["queues"][0],
            &shown["links"][0]["traffic"]["received_bytes_per_s"],
            &export["requests"]["reads"]["per_s"],
            &export["hosts"][0]["requests"]["reads"]["per_s"],
            &target["links"][0]["traffic"]["sent_bytes_per_s"],
        ];
        let mut all = of_session.into_iter().chain(others);
        all.all(|value| value.as_f64().is_some_and(|it| it > 0.0))
    });
    // As lines, since this is no terminal.
    let text = run(&mut rig.tyche(Side::Host, &["top", "--interval", "0.2", "--count", "2"]));
    let heads = text.lines().filter(|line| line.starts_with("EXPORT")).count();
    assert_eq!(heads, 2, "{text}");
    assert!(text.lines().any(|line| line.starts_with("TARGET")), "{text}");
    drop(load);
    session.disconnect();
}

#[test]
fn a_daemon_that_hangs_is_a_line_and_delays_no_other() {
    let rig = rig!(1500);
    let exports = ["--export", EXPORT, "--export", "other=mem:8M"];
    let _target = rig.serve(&exports);
    let session = rig.connect_as("fuse", &[]);
    let link = rig.cable.link(Side::Host);
    let other = rig.connect_disk(Side::Host, "other", &["--link", link, "--as", "fuse"]);
    other.signal(Signal::STOP);
    let load = load(&session);
    let top = rig.ask(&["top", "--interval", "0.3"]);
    let silent = find(&top["sessions"], "export", "other");
    assert_eq!(silent["state"], "silent", "{top}");
    assert!(silent["problem"].as_str().unwrap().contains("kill -CONT"), "{top}");
    assert!(silent["requests"].is_null(), "{top}");
    let shown = find(&top["sessions"], "export", DISK);
    assert!(shown["requests"]["reads"]["per_s"].is_number(), "{top}");
    other.signal(Signal::CONT);
    drop(load);
    other.disconnect();
    session.disconnect();
}

/// `tyche top` on a terminal of its own.
struct OnTerminal<'a> {
    rig: &'a Rig,
    script: Child,
}

impl<'a> OnTerminal<'a> {
    /// Starts it, and waits until it shows the session.
    fn start(rig: &'a Rig, (columns, rows): (u32, u32)) -> Self {
        let path = |name: &str| rig.path(name).display().to_string();
        let tyche = env!("CARGO_BIN_EXE_tyche");
        for name in ["top.pid", "top.screen"] {
            // Of an earlier one.
            let _ = fs::remove_file(rig.path(name));
        }
        // Its number, its exit code, and the terminal afterwards are kept.
        let line = format!(
            "stty rows {rows} cols {columns}; sh -c 'echo $$ >{pid}; exec {tyche} top -i 0.2'; \
             echo $? >{code}; stty -a >{after}",
            pid = path("top.pid"),
            code = path("top.code"),
            after = path("top.stty"),
        );
        let args = ["--quiet", "--flush", "--command", &line, &path("top.screen")];
        let mut command = rig.at(Side::Host, "script".as_ref(), &args);
        command.env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
        let script = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let top = Self { rig, script };
        wait_until("it shows the session", || {
            let screen = top.screen();
            screen.contains("EXPORT") && screen.contains(DISK) && screen.contains("live")
        });
        top
    }

    /// All that was written to the terminal.
    fn screen(&self) -> String {
        let bytes = fs::read(self.rig.path("top.screen")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = fs::read_to_string(self.rig.path("top.pid")).unwrap();
        kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), signal).unwrap();
    }

    /// Waits for its end, and checks that the terminal is as it was; returns the exit code.
    fn end(mut self) -> i32 {
        wait_until("it ends", || self.script.try_wait().unwrap().is_some());
        let screen = self.screen();
        let (taken, given) = ("\x1b[?1049h", "\x1b[?1049l");
        assert_eq!(screen.matches(taken).count(), 1, "{screen:?}");
        assert_eq!(screen.matches(given).count(), 1, "{screen:?}");
        let after = fs::read_to_string(self.rig.path("top.stty")).unwrap();
        let is_set = |flag: &str| after.split_whitespace().any(|it| it == flag);
        assert!(is_set("icanon") && is_set("echo") && is_set("isig"), "{after}");
        fs::read_to_string(self.rig.path("top.code")).unwrap().trim().parse().unwrap()
    }
}

impl Drop for OnTerminal<'_> {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn a_terminal_is_given_back_as_it_was_after_a_key_and_after_a_signal() {
    let rig = rig!(1500);
    let _target = rig.serve(&["--export", EXPORT]);
    let session = rig.connect_as("fuse", &[]);
    let load = load(&session);
    let mut top = OnTerminal::start(&rig, (160, 50));
    top.press("?");
    wait_until("the keys are listed", || top.screen().contains("reverse the order"));
    top.press("q");
    assert_eq!(top.end(), 0);
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let top = OnTerminal::start(&rig, (80, 24));
        top.signal(signal);
        assert_eq!(top.end(), code);
    }
    drop(load);
    session.disconnect();
}
