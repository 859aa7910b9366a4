//! The lines of the unit `tyche@.service` in the order in which systemd runs them, without systemd:
//! restart, stop and reload while the device is in use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::refusals::expect;
use crate::rig::{DISK, PATIENCE, Rig, Running, Side, finish, rig, run, wait_until};

const UNIT: &str = include_str!("../../../../packaging/systemd/tyche@.service");
const NAME: &str = "tyche@disk.service";
const SIZE: u64 = 64 << 20;

/// A unit of the host, with its tychetab, a supervisor's socket and a `systemctl`.
struct Unit<'a> {
    rig: &'a Rig,
    supervisor: UnixDatagram,
}

impl<'a> Unit<'a> {
    fn new(rig: &'a Rig, kind: &str) -> Self {
        let line = format!("{DISK} {} as={kind}\n", rig.cable.link(Side::Host));
        fs::write(rig.path("tychetab"), line).unwrap();
        let supervisor = UnixDatagram::bind(rig.path("notify")).unwrap();
        supervisor.set_read_timeout(Some(PATIENCE)).unwrap();
        let systemctl = rig.path("systemctl");
        let script = format!(
            "#!/bin/sh\necho \"$@\" >>{calls}\n[ \"$1\" != list-jobs ] || cat {jobs}\n",
            calls = rig.path("calls").display(),
            jobs = rig.path("jobs").display()
        );
        fs::write(&systemctl, script).unwrap();
        fs::set_permissions(&systemctl, PermissionsExt::from_mode(0o755)).unwrap();
        Self { rig, supervisor }
    }

    /// The command of a line of the unit.
    fn line(&self, key: &str) -> Command {
        let line = UNIT.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let words: Vec<_> = line.unwrap().split(' ').skip(1).filter(|it| *it != "@tyche").collect();
        let tab = format!("--tab={}", self.rig.path("tychetab").display());
        let filled = words.into_iter().map(|word| match word {
            "%I" => DISK,
            "%n" => NAME,
            "--tab" => &tab,
            word => word,
        });
        let mut command = self.rig.tyche(Side::Host, &filled.collect::<Vec<_>>());
        let path = std::env::var("PATH").unwrap();
        let own = self.rig.path("systemctl").parent().unwrap().display().to_string();
        command.env("PATH", format!("{own}:{path}"));
        command.env("NOTIFY_SOCKET", self.rig.path("notify"));
        command
    }

    /// Starts the daemon, and waits until the device is there.
    fn start(&self) -> (Running, PathBuf) {
        let mut daemon = Running::start(self.line("ExecStart").stdout(Stdio::piped()));
        let device = PathBuf::from(daemon.line().trim_end());
        self.await_message("READY=1");
        (daemon, device)
    }

    /// Waits for a message to the supervisor; returns it.
    fn await_message(&self, part: &str) -> String {
        let mut message = [0; 4096];
        loop {
            let len = self.supervisor.recv(&mut message).unwrap();
            let message = String::from_utf8_lossy(&message[..len]).into_owned();
            if message.contains(part) {
                return message;
            }
        }
    }

    /// Stops the daemon, as part of a job of that type.
    fn stop(&self, job: &str, pid: u32) -> tyche_testkit::process::Done {
        fs::write(self.rig.path("jobs"), format!("7 {NAME} {job} running\n")).unwrap();
        let mut stop = self.line("ExecStop");
        finish(stop.args(["--wait", "0.2"]).env("MAINPID", pid.to_string()), PATIENCE)
    }

    /// The calls of `systemctl` other than questions.
    fn orders(&self) -> String {
        let calls = fs::read_to_string(self.rig.path("calls")).unwrap_or_default();
        calls.lines().filter(|call| !call.starts_with("list-jobs")).collect()
    }

    /// The only session.
    fn session(&self) -> Value {
        let sessions = self.rig.ask(&["list"])["sessions"].clone();
        assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
        sessions[0].clone()
    }
}

fn make_file_system(device: &Path) {
    run(Command::new("mkfs.ext4").arg("-q").arg(device));
}

#[test]
fn a_restart_hands_a_device_in_use_to_the_next_daemon_and_a_stop_fails() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let unit = Unit::new(&rig, "vhost-user");
    let (mut first, socket) = unit.start();
    let before = unit.session();
    let _front_end = UnixStream::connect(&socket).unwrap();
    let done = unit.stop("restart", first.id());
    assert!(done.success(), "{}", done.stderr);
    assert!(first.end().success());
    assert_eq!(unit.orders(), "");
    let (mut second, device) = unit.start();
    let after = unit.session();
    assert_eq!((&after["state"], &device), (&"live".into(), &socket));
    assert_ne!(after["session"], before["session"]);
    assert_eq!(after["lasting"], before["lasting"], "it is the same device");

    // The same for a stop, which is cancelled.
    let _front_end = UnixStream::connect(&socket).unwrap();
    let done = unit.stop("stop", second.id());
    expect(&done, &["unit-stop"], 9, &["is in use", "it stays connected"]);
    assert!(second.end().success());
    assert_eq!(unit.orders(), format!("--no-block start -- {NAME}"));
    let (mut third, _) = unit.start();
    assert_eq!(unit.session()["state"], "live");
    let done = unit.stop("stop", third.id());
    assert!(done.success(), "{}", done.stderr);
    third.end();
    assert!(!socket.exists());
}

#[test]
fn a_unit_gets_back_the_daemon_of_a_device_that_ends_with_it() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let unit = Unit::new(&rig, "loop");
    let (mut daemon, device) = unit.start();
    make_file_system(&device);
    rig.mount(&device, "rw");
    let before = unit.session();
    for (job, part) in [("restart", "it keeps its daemon"), ("stop", "it stays connected")] {
        let done = unit.stop(job, daemon.id());
        expect(&done, &["unit-stop"], 9, &["unmount it first", part]);
        let again = finish(&mut unit.line("ExecStart"), PATIENCE);
        assert!(again.success(), "{}", again.stderr);
        let message = unit.await_message("MAINPID=");
        let wanted = format!("MAINPID={}", daemon.id());
        assert!(message.contains(&wanted) && message.contains("READY=1"), "{message}");
        assert_eq!(unit.session()["session"], before["session"]);
    }
    assert_eq!(unit.orders(), format!("--no-block start -- {NAME}"));
    let refused = finish(&mut unit.line("ExecReload"), PATIENCE);
    expect(&refused, &["reload"], 9, &["kind loop", "when it is not in use"]);
    rig.unmount();
    let done = unit.stop("stop", daemon.id());
    assert!(done.success(), "{}", done.stderr);
    daemon.end();
    // Without a daemon there is nothing to stop.
    let mut stop = unit.line("ExecStop");
    assert!(finish(stop.env_remove("MAINPID"), PATIENCE).success());
}

#[test]
fn a_daemon_goes_on_as_the_program_that_is_installed_now() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let unit = Unit::new(&rig, "vhost-user");
    let (daemon, socket) = unit.start();
    let _front_end = UnixStream::connect(&socket).unwrap();
    let before = unit.session();
    let done = finish(&mut unit.line("ExecReload"), PATIENCE);
    assert!(done.success(), "{}", done.stderr);
    unit.await_message("READY=1");
    let after = unit.session();
    assert_eq!(after["pid"], daemon.id(), "systemd knows it by that");
    assert_ne!(after["session"], before["session"]);
    assert_eq!((&after["state"], &after["lasting"]), (&"live".into(), &before["lasting"]));
    let end = ["disconnect", DISK, "--force"];
    run(&mut rig.tyche(Side::Host, &end));
}

/// Waits until `list` says why the device of a daemon that was reloaded waits.
fn await_attempt(rig: &Rig) {
    wait_until("the attempt is listed", || {
        let dead = rig.ask(&["list"])["sessions"][0].clone();
        let said = dead["attempt"].as_str().unwrap_or_default();
        said.contains("tries again and again: cannot connect `disk`") && dead["state"] == "dead"
    });
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    println!("{text}");
    assert!(text.contains("requests wait for the next, which tries again"), "{text}");
}

#[test]
fn a_reloaded_daemon_whose_device_is_given_up_ends() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let session = rig.connect_as("vhost-user", &["--timeout", "1"]);
    let process = format!("/proc/{}", session.pid());
    target.kill();
    let args = ["reload", "--all", "--timeout", "0.1"];
    finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    await_attempt(&rig);
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK, "--force"]));
    wait_until("it is gone", || !Path::new(&process).exists());
    assert_eq!(rig.ask(&["list"])["sessions"], serde_json::json!([]));
}

#[test]
fn a_detached_daemon_is_reloaded_even_if_its_target_is_away() {
    let rig = rig!(1500);
    let target = rig.serve_file(SIZE);
    let session = rig.connect_as("vhost-user", &["--timeout", "1"]);
    let before = rig.ask(&["list"])["sessions"][0].clone();
    let renewed = rig.ask(&["reload", DISK])["sessions"][0].clone();
    let after = rig.ask(&["list"])["sessions"][0].clone();
    assert_eq!((&after["session"], &after["pid"]), (&renewed, &before["pid"]));
    target.kill();
    let args = ["reload", "--all", "--timeout", "0.1"];
    let late = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    expect(&late, &args, 6, &["has not got its device back"]);
    // Its disk stays listed meanwhile.
    let state = rig.ask(&["list"])["sessions"][0]["state"].clone();
    assert!(state == "starting" || state == "dead", "{state}");
    await_attempt(&rig);
    // It goes on trying, beyond its time limit for connecting.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let _target = rig.serve_again();
    wait_until("it is live again", || {
        let now = rig.ask(&["list"])["sessions"][0].clone();
        now["state"] == "live" && now["pid"] == before["pid"]
    });
    wait_until("the device is there", || session.device.exists());
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK]));
}

#[test]
fn a_daemon_keeps_its_device_if_the_next_would_fail() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let unit = Unit::new(&rig, "vhost-user");
    let (mut daemon, socket) = unit.start();
    let _front_end = UnixStream::connect(&socket).unwrap();
    let before = unit.session();
    let tab = rig.path("tychetab");
    let line = fs::read_to_string(&tab).unwrap();
    for (broken, code) in [("", 3), (&*line.replace(" as=", " no-such-option,as="), 8)] {
        fs::write(&tab, broken).unwrap();
        let refused = finish(&mut unit.line("ExecReload"), PATIENCE);
        expect(&refused, &["reload"], code, &["keeps its daemon"]);
        let refused = unit.stop("restart", daemon.id());
        assert!(!refused.success() && refused.stderr.contains("keeps its daemon"));
        // What systemd starts after a stop that has failed.
        assert!(finish(&mut unit.line("ExecStart"), PATIENCE).success());
        unit.await_message(&format!("MAINPID={}", daemon.id()));
        assert_eq!(unit.session()["session"], before["session"]);
    }
    fs::write(&tab, line).unwrap();
    let done = unit.stop("restart", daemon.id());
    assert!(done.success(), "{}", done.stderr);
    assert!(daemon.end().success());
    let (_daemon, _) = unit.start();
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK, "--force"]));
}

#[test]
fn a_daemon_that_has_left_its_directory_is_reloaded_with_paths_relative_to_that() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let _unit = Unit::new(&rig, "vhost-user");
    let mut connect = rig.tyche(Side::Host, &["connect-all", "--tab=tychetab"]);
    run(connect.current_dir(rig.path("tychetab").parent().unwrap()));
    let session = || rig.ask(&["list"])["sessions"][0].clone();
    let before = session();
    for _ in 0..2 {
        rig.ask(&["reload", DISK]);
    }
    let after = session();
    assert_ne!(after["session"], before["session"]);
    assert_eq!((&after["state"], &after["pid"]), (&"live".into(), &before["pid"]));
    run(&mut rig.tyche(Side::Host, &["disconnect", DISK]));
}
