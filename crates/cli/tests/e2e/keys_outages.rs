//! Sessions with keys whose daemon, links or target fail.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::files::Files;
use crate::keys::{Keys, hang_up, make, make_file_system};
use crate::links::{HOSTS, TARGETS, await_live, await_shares, connect, lay_cables, links};
use crate::load::{LOAD_SIZE, Load};
use crate::refusals::expect;
use crate::rig::{DISK, PATIENCE, Rig, Side, Target, check_ext4, finish, rig, wait_until};
use crate::trust::know;

const SIZE: u64 = 1 << 30;
/// A host that is not this machine.
const OTHER_HOST: &str = "11111111-2222-4333-8444-555555555555";

/// Serves the file on all interfaces.
fn serve(rig: &Rig, keys: &Keys) -> Target {
    keys.serve_on(rig, &[], &["--export", &rig.export()])
}

/// The devices that outlive their daemon need a kernel with ublk or nbd (`cargo xtask vm keys`),
/// but for the socket of a virtual machine: nobody needs to have it open.
#[test]
fn a_device_is_taken_over_unless_another_host_has_written() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    let beta = make(&rig, "beta.key");
    rig.file("disk.img", SIZE);
    let beta = format!("beta={beta}");
    let _target = keys.serve(&rig, &["--export", &rig.export(), "--host", &beta]);
    let session = rig.connect_as("vhost-user", &keys.connect());
    session.kill();
    assert_eq!(rig.ask(&["list"])["sessions"][0]["waits"], true);
    let next = rig.connect_as("vhost-user", &keys.connect());
    assert_eq!(next.device, session.device);
    assert!(rig.logs().contains("taken over"), "{}", rig.logs());
    let (stats, target) = rig.stats();
    assert!(stats["cipher"].is_string(), "{stats}");
    let served = &target["exports"][0]["sessions"];
    assert_eq!(served.as_array().map(Vec::len), Some(1), "{served}");
    assert_eq!((&served[0]["host_name"], &served[0]["writer"]), (&"alpha".into(), &true.into()));

    next.kill();
    let file = rig.path("beta.key").display().to_string();
    let args = ["--key", &file, "--target-key", &keys.target, "--host-id", OTHER_HOST];
    // The target has to notice that alpha is gone.
    let link = rig.cable.link(Side::Host);
    let connect_beta = [&["connect", DISK, "--as", "fuse", "--link", link][..], &args].concat();
    wait_until("beta may write", || {
        finish(&mut rig.tyche(Side::Host, &connect_beta), PATIENCE).success()
    });
    let device = rig.ask(&["list"]);
    let sessions = device["sessions"].as_array().unwrap();
    let live = sessions.iter().find(|it| it["state"] == "live").unwrap();
    let device = live["device"].as_str().unwrap();
    let done = finish(&mut rig.tyche(Side::Host, &["disconnect", device]), PATIENCE);
    assert!(done.success(), "{}", done.stderr);
    let again = ["connect", DISK, "--as", "vhost-user", "--link", link];
    let again = [&again[..], &keys.connect()].concat();
    let done = finish(&mut rig.tyche(Side::Host, &again), PATIENCE);
    expect(&done, &again, 7, &["connected elsewhere since", "--force"]);
}

/// A target with two disks whose key is changed, step by step.
struct Rotated<'a> {
    rig: &'a Rig,
    keys: Keys,
    next: String,
    target: Target,
}

impl<'a> Rotated<'a> {
    fn serve(rig: &'a Rig) -> Self {
        let (keys, next) = (Keys::new(rig), make(rig, "next.key"));
        configure(rig, &keys, &["target.key"]);
        let target = rig.serve(&["--config", rig.path("target.toml").to_str().unwrap()]);
        Self { rig, keys, next, target }
    }

    /// Both keys from now on.
    fn announce(&self) {
        configure(self.rig, &self.keys, &["target.key", "next.key"]);
        hang_up(&self.target);
    }

    /// The next key alone.
    fn finish(&self) {
        configure(self.rig, &self.keys, &["next.key"]);
        hang_up(&self.target);
        self.target.await_log("this key alone");
    }
}

fn configure(rig: &Rig, keys: &Keys, files: &[&str]) {
    let files: Vec<_> = files.iter().map(|file| rig.path(file)).collect();
    let text = format!(
        "key = {files:?}\n[[host]]\nname = \"alpha\"\nkey = {:?}\n[[export]]\nname = {DISK:?}\n\
         path = \"mem:16M\"\n[[export]]\nname = \"other\"\npath = \"mem:16M\"\n",
        keys.host
    );
    fs::write(rig.path("target.toml"), text).unwrap();
}

fn state(rig: &Rig, export: &str) -> Value {
    let sessions = rig.ask(&["list"])["sessions"].clone();
    let mut sessions = sessions.as_array().unwrap().iter();
    sessions.find(|it| it["export"] == export).map(|it| it["state"].clone()).unwrap_or_default()
}

/// It was not there to be told the next key, and reads what another session of its host has kept.
#[test]
fn a_session_that_is_lost_learns_the_next_key_from_another_one() {
    let rig = rig!(1500);
    let rotated = Rotated::serve(&rig);
    let link = rig.cable.link(Side::Host);
    let found = rig.ask(&["discover", "--link", link])["exports"][0].clone();
    let uuid = found["target"].as_str().unwrap().parse().unwrap();
    know(&rig, &rotated.keys.target, uuid);
    let key = rig.path("host.key").display().to_string();
    let args = ["--as", "fuse", "--link", link, "--key", &key, "--keep-alive-tmo", "0.5"];
    let names = [DISK, "other"].map(|export| format!("e2e/{export}"));
    let [lost, told] = [0, 1].map(|at| rig.connect_disk(Side::Host, &names[at], &args));
    lost.signal(Signal::STOP);
    rotated.announce();
    wait_until("the other keeps the next key", || {
        fs::read_to_string(rig.path("known-targets")).unwrap().starts_with(&rotated.next)
    });
    rotated.finish();
    wait_until("the other is live", || state(&rig, &names[1]) == "live");
    lost.signal(Signal::CONT);
    wait_until("it is live again", || {
        state(&rig, &names[0]) == "live" && rig.logs().contains("another key by now")
    });
    lost.disconnect();
    told.disconnect();
}

/// Where the key is the user's, the next daemon of a device has the next one from the record.
#[test]
fn the_next_daemon_knows_the_next_key_though_the_former_was_given() {
    let rig = rig!(1500);
    let rotated = Rotated::serve(&rig);
    let session = rig.connect_as("vhost-user", &rotated.keys.connect());
    rotated.announce();
    wait_until("it is told", || rig.logs().contains("give the next one"));
    rotated.finish();
    rig.ask(&["reload", DISK]);
    assert_eq!(state(&rig, DISK), "live");
    session.kill();
    let next = rig.connect_as("vhost-user", &rotated.keys.connect());
    assert_eq!((state(&rig, DISK), &next.device), ("live".into(), &session.device));
    rig.disconnect_all();
}

/// Every block is read back and compared while links fail, and at the end.
#[test]
fn a_sealed_session_goes_on_while_links_are_cut_and_come_back() {
    let rig = rig!();
    lay_cables(&rig, 3, 9000);
    let keys = Keys::new(&rig);
    rig.file("disk.img", LOAD_SIZE);
    let _target = serve(&rig, &keys);
    let session = connect(&rig, &[&["--io-policy", "round-robin"], &keys.connect()[..]].concat());
    await_live(&rig, &HOSTS[..3]);
    let load = Load::start(&session.device);
    await_shares(&rig, Side::Host, &HOSTS[..3]);
    // Silently, and with notice to both ends.
    for silent in [true, false] {
        let set = |state| {
            rig.cable.ip(Side::Target, &["link", "set", TARGETS[1], state]);
        };
        if silent {
            rig.cable.cut(Side::Target, &TARGETS[1..2]);
            rig.cable.cut(Side::Host, &HOSTS[1..2]);
        } else {
            set("down");
        }
        await_live(&rig, &[HOSTS[0], HOSTS[2]]);
        load.await_progress();
        if silent {
            rig.cable.mend(Side::Target);
            rig.cable.mend(Side::Host);
        } else {
            set("up");
        }
        await_live(&rig, &HOSTS[..3]);
        await_shares(&rig, Side::Host, &HOSTS[..3]);
    }
    load.finish();
    let (stats, target) = rig.stats();
    assert_eq!(stats["requests"]["errors"], 0);
    assert!(stats["cipher"].is_string(), "{stats}");
    println!("{}", target["links"][1]["rejects"]);
    session.disconnect();
}

#[test]
fn four_sealed_queues_over_two_links_keep_all_files() {
    let rig = rig!();
    lay_cables(&rig, 2, 9000);
    let keys = Keys::new(&rig);
    rig.file("disk.img", SIZE);
    let mut target = Some(serve(&rig, &keys));
    let args = [&["--as", "loop", "--queues", "4"], &keys.connect()[..]].concat();
    let session = rig.connect_over(Side::Host, &args);
    await_live(&rig, &HOSTS[..2]);
    for link in links(&rig, Side::Host) {
        assert_eq!(link["channels"].as_array().map(Vec::len), Some(4), "{link}");
    }
    let point = make_file_system(&rig, &session.device);
    let files = Files::new(8, 96 << 20);
    let mut disturbances = 0;
    files.write_disturbed(&point, 2, || {
        disturbances += 1;
        if disturbances == 1 {
            rig.cable.cut(Side::Target, &TARGETS[..1]);
            await_live(&rig, &HOSTS[1..2]);
            rig.cable.mend(Side::Target);
        } else {
            target.take().unwrap().kill();
            target = Some(serve(&rig, &keys));
        }
    });
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    rig.unmount();
    session.disconnect();
    let session = rig.connect_over(Side::Host, &[&args[..], &["--read-only"]].concat());
    files.assert_intact(&rig.mount(&session.device, "ro"));
    rig.unmount();
    check_ext4(&session.device);
    session.disconnect();
}
