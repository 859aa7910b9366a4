//! `tyche exporter`: what Prometheus, node_exporter and a browser get from it, who may ask daemons,
//! and the rules of alerts.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::hung::HungDisk;
use crate::load::{LOAD_SIZE, Load};
use crate::refusals::expect;
use crate::rig::{DISK, PATIENCE, Rig, Running, Side, finish, rig, run, wait_until};

/// The form of metrics that Prometheus asks for.
const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";
/// The family of successful requests.
const REQUESTS: &str = "tyche_requests_total";
/// A user of Debian without rights, and its group.
const NOBODY: &str = "65534";

/// A running exporter.
struct Exporter {
    process: Running,
    address: SocketAddr,
}

impl Exporter {
    /// Starts it at a free port, and at a Unix socket.
    fn start(rig: &Rig, socket: &Path) -> Self {
        let at = ["--listen", "127.0.0.1:0", "--unix", socket.to_str().unwrap()];
        // Not in a namespace of the rig: those have no addresses.
        let mut command = Command::new(env!("CARGO_BIN_EXE_tyche"));
        command.arg("exporter").args(at).env("TYCHE_RUNTIME_DIR", rig.path("run"));
        let mut process = Running::start(command.stdout(Stdio::piped()));
        let line = process.line();
        let address = line.strip_prefix("tyche: exporting at http://").unwrap_or_else(|| {
            panic!("{line:?}");
        });
        let address = address.split('/').next().unwrap().parse().unwrap();
        assert!(line.ends_with(&format!(", unix:{}\n", socket.display())), "{line:?}");
        Self { process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn get(&self, path: &str, headers: &str) -> String {
        get(self.connect(), path, headers)
    }

    /// The metrics, each sample with its labels as in the text.
    fn metrics(&self) -> BTreeMap<String, f64> {
        samples(&self.get("/metrics", ""))
    }
}

/// The body of a response with success.
fn get(mut stream: impl Read + Write, path: &str, headers: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: tyche\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// Runs promtool with this at its standard input; it must have no objection.
fn promtool(rig: &Rig, args: &[&str], input: &str) {
    let path = rig.path("promtool.in");
    fs::write(&path, input).unwrap();
    let command = format!("promtool {} <{} 2>&1", args.join(" "), path.display());
    let done = finish(Command::new("sh").args(["-c", &command]), PATIENCE);
    assert!(done.success() && done.stdout.is_empty(), "{args:?}: {}\n{input}", done.stdout);
}

#[test]
fn prometheus_and_people_see_sessions_and_targets() {
    let rig = rig!(1500);
    let target = rig.serve_file(LOAD_SIZE);
    let session = rig.connect_as("fuse", &[]);
    let load = Load::start(&session.device);
    let socket = rig.path("exporter.sock");
    let exporter = Exporter::start(&rig, &socket);
    let metrics = exporter.metrics();
    let uuid = session.value["session"].as_str().unwrap().to_owned();
    let labels = format!("export=\"{DISK}\",uuid=\"{uuid}\"");
    let value = |name: &str| *metrics.get(name).unwrap_or_else(|| panic!("{name}: {metrics:#?}"));
    let link = rig.cable.link(Side::Host);
    for name in [
        format!("tyche_daemon_up{{side=\"host\",{labels}}}"),
        "tyche_daemon_up{side=\"target\",target=\"e2e\"}".to_owned(),
        format!("tyche_session_state{{{labels},state=\"live\"}}"),
        format!("tyche_links_live{{{labels}}}"),
        format!("tyche_link_up{{side=\"host\",{labels},link=\"{link}\"}}"),
        format!("tyche_export_up{{target=\"e2e\",export=\"{DISK}\"}}"),
    ] {
        assert_eq!(value(&name), 1.0, "{name}");
    }
    // Of reads and writes together: either may have begun.
    let requests = |metrics: &BTreeMap<String, f64>, family: &str| -> f64 {
        let of = |op: &str| metrics[&format!("{family}{{{labels},op=\"{op}\"}}")];
        of("read") + of("write")
    };
    assert!(requests(&metrics, REQUESTS) > 0.0);
    let counted = requests(&metrics, "tyche_request_duration_seconds_count");
    assert_eq!(requests(&metrics, REQUESTS), counted);
    let held = metrics.keys().find(|name| name.starts_with("tyche_export_held{"));
    assert!(held.unwrap().ends_with(",access=\"write\"}"), "{held:?}");
    load.await_progress();
    let later = requests(&exporter.metrics(), REQUESTS);
    assert!(later > counted, "each scrape asks again");
    load.finish();

    // Both addresses, both forms.
    let text = get(UnixStream::connect(&socket).unwrap(), "/metrics", "");
    promtool(&rig, &["check", "metrics"], &text);
    let open = exporter.get("/metrics", OPEN_METRICS);
    assert!(open.ends_with("# EOF\n"));
    assert_eq!(requests(&samples(&open), REQUESTS), requests(&samples(&text), REQUESTS));

    let page = exporter.get("/", "");
    for part in [DISK, "Target e2e", link, "Nothing is wrong.", session.device.to_str().unwrap()] {
        assert!(page.contains(part), "{part}: {page}");
    }
    session.disconnect();
    drop(target);
    let metrics = exporter.metrics();
    assert!(!metrics.keys().any(|name| name.contains("e2e") || name.contains(&uuid)));

    let mut process = exporter.process;
    process.signal(Signal::TERM);
    wait_until("the exporter ends", || !process.is_running());
    assert!(!socket.exists(), "it takes its socket with it");
}

#[test]
fn daemons_that_do_not_answer_are_seen_and_clients_that_say_nothing_keep_nobody_out() {
    let rig = rig!(1500);
    let target = rig.serve_file(LOAD_SIZE);
    let session = rig.connect_as("nbd-socket", &["--ctrl-loss-tmo", "-1"]);
    let exporter = Exporter::start(&rig, &rig.path("exporter.sock"));
    let silent: Vec<_> = (0..50).map(|_| exporter.connect()).collect();
    let stopped = HungDisk::hang(&target);
    let uuid = session.value["session"].as_str().unwrap();
    let labels = format!("export=\"{DISK}\",uuid=\"{uuid}\"");
    wait_until("the session is lost, and the target silent", || {
        let metrics = exporter.metrics();
        metrics["tyche_daemon_up{side=\"target\",target=\"e2e\"}"] == 0.0
            && metrics[&format!("tyche_session_state{{{labels},state=\"lost\"}}")] == 1.0
            && metrics[&format!("tyche_session_lost_seconds{{{labels}}}")] > 0.0
    });
    let page = exporter.get("/", "");
    assert!(page.contains("is lost for ") && page.contains("does not answer within"), "{page}");
    drop(silent);
    drop(stopped);
    session.kill();
    let is_dead = || {
        let metrics = exporter.metrics();
        let one = |name: &str| metrics.get(name).copied();
        one(&format!("tyche_session_state{{{labels},state=\"dead\"}}")) == Some(1.0)
            && one(&format!("tyche_daemon_up{{side=\"host\",{labels}}}")) == Some(0.0)
    };
    wait_until("the daemon is dead", is_dead);
    assert!(is_dead(), "looking has removed nothing");
}

/// A copy of the program that everybody may run, and a directory for everybody.
fn open_to_all(rig: &Rig) -> (PathBuf, PathBuf) {
    let (program, dir) = (rig.path("tyche"), rig.path("all"));
    fs::copy(env!("CARGO_BIN_EXE_tyche"), &program).unwrap();
    fs::create_dir(&dir).unwrap();
    for (path, mode) in [(program.parent().unwrap(), 0o711), (&program, 0o755), (&dir, 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    (program, dir)
}

#[test]
fn members_of_the_group_may_look_and_nothing_else() {
    let rig = rig!(1500);
    rig.file("disk.img", LOAD_SIZE);
    let export = rig.export();
    let (at_target, at_host) = (rig.cable.link(Side::Target), rig.cable.link(Side::Host));
    let grouped = |side, args: &[&str]| {
        let mut command = rig.tyche(side, args);
        command.env("TYCHE_GROUP", "nogroup");
        command
    };
    let serve = ["serve", "--name", "e2e", "--link", at_target, "--export", &export];
    let mut target = Running::start(grouped(Side::Target, &serve).stdout(Stdio::piped()));
    target.line();
    let connect = ["connect", DISK, "--link", at_host, "--as", "nbd-socket"];
    run(&mut grouped(Side::Host, &connect));
    let (program, dir) = open_to_all(&rig);
    let nobody = |group: &str, args: &[&str]| {
        let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={group}"));
        let words = [&user, &group, "--clear-groups", program.to_str().unwrap()];
        rig.at(Side::Host, Path::new("setpriv"), &[&words, args].concat())
    };
    let file = dir.join("tyche.prom");
    let write = ["exporter", "--textfile", file.to_str().unwrap()];
    run(&mut nobody(NOBODY, &write));
    let text = fs::read_to_string(&file).unwrap();
    let up = samples(&text);
    let up: Vec<_> = up.iter().filter(|(name, _)| name.starts_with("tyche_daemon_up")).collect();
    assert!(up.len() == 2 && up.iter().all(|(_, value)| **value == 1.0), "{up:?}");
    promtool(&rig, &["check", "metrics"], &text);
    assert!(run(&mut nobody(NOBODY, &["list"])).contains(DISK));
    for args in [["disconnect", DISK].as_slice(), &["export", "deny", DISK, "host1"]] {
        expect(&finish(&mut nobody(NOBODY, args), PATIENCE), args, 4, &["only root may change"]);
    }
    // Who could hold the lock of a daemon could keep the next one from starting.
    let lock = rig.path("run/targets/e2e/lock");
    let hold = ["flock", "--shared", "--nonblock", lock.to_str().unwrap(), "true"];
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    let words = [&[&user, &group, "--clear-groups"], hold.as_slice()].concat();
    let held = finish(&mut rig.at(Side::Host, Path::new("setpriv"), &words), PATIENCE);
    assert!(!held.status.success() && held.stderr.contains("Permission denied"), "{held:?}");
    // Others may not even look.
    expect(&finish(&mut nobody("12345", &write), PATIENCE), &write, 4, &["members of the group"]);
    let pid = rig.ask(&["list"])["sessions"][0]["pid"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_until("a dead daemon is listed", || {
        run(&mut nobody(NOBODY, &["list"])).contains("daemon died")
    });
}

#[test]
fn a_mistake_of_the_command_line_is_named() {
    let rig = rig!();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let exporter = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tyche"));
        command.arg("exporter").args(args).env("TYCHE_RUNTIME_DIR", rig.path("run"));
        finish(&mut command, PATIENCE)
    };
    let args = ["--listen", &address];
    expect(&exporter(&args), &args, 5, &[&address, "in use"]);
    let file = rig.file("file", 0);
    let args = ["--unix", file.to_str().unwrap()];
    expect(&exporter(&args), &args, 2, &["something else than a socket"]);
    let args = ["--textfile", "/no/such/dir/tyche.prom"];
    expect(&exporter(&args), &args, 1, &["/no/such/dir/tyche.prom"]);
}

#[test]
fn alerts_are_raised_by_what_they_are_about() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus");
    for args in [["check", "rules", "tyche.rules.yml"], ["test", "rules", "tyche.rules.test.yml"]] {
        run(Command::new("promtool").args(args).current_dir(&dir));
    }
}
