//! Hosts that are let in by command, while a target runs.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use tyche_proto::crypto::SecretKey;

use crate::keys::make;
use crate::load::Load;
use crate::refusals::{expect, refused};
use crate::rig::{DISK, PATIENCE, Rig, Side, Target, finish, rig, run, wait_until};

const SIZE: u64 = 64 << 20;

/// A target with a key, whose file knows the host alpha, and the keys of others.
struct Keys<'r> {
    rig: &'r Rig,
    target: String,
}

impl<'r> Keys<'r> {
    fn new(rig: &'r Rig) -> Self {
        for name in ["alpha", "node1", "node2", "ops"] {
            make(rig, name);
        }
        for name in ["disk.img", "more.img"] {
            rig.file(name, SIZE);
        }
        Self { rig, target: make(rig, "target") }
    }

    fn file(&self, name: &str) -> String {
        self.rig.path(name).display().to_string()
    }

    fn public(&self, name: &str) -> String {
        let text = run(&mut self.rig.tyche(Side::Host, &["key", "show", &self.file(name)]));
        text.trim().to_owned()
    }

    /// Writes the configuration with alpha, and more tables; returns its path.
    fn configure(&self, more: &str) -> String {
        let (key, alpha, disk) = (self.file("target"), self.public("alpha"), self.file("disk.img"));
        let text = format!(
            "key = {key:?}\n[[host]]\nname = \"alpha\"\nkey = {alpha:?}\n{more}[[export]]\nname = \
             {DISK:?}\npath = {disk:?}\n"
        );
        fs::write(self.rig.path("target.toml"), text).unwrap();
        self.file("target.toml")
    }

    fn serve(&self) -> Target {
        self.rig.serve(&["--config", &self.file("target.toml")])
    }

    /// Arguments of `connect` with that key.
    fn keys(&self, name: &str) -> [String; 4] {
        ["--key", &self.file(name), "--target-key", &self.target].map(str::to_owned)
    }

    fn connect(&self, export: &str, name: &str) -> crate::rig::Session<'r> {
        let (link, keys) = (self.rig.cable.link(Side::Host), self.keys(name));
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let args = [&["--link", link, "--as", "fuse"], &keys[..]].concat();
        self.rig.connect_disk(Side::Host, export, &args)
    }

    /// Tries to connect an export, in vain.
    fn fails(&self, export: &str, name: &str, said: &str) {
        let (link, keys) = (self.rig.cable.link(Side::Host), self.keys(name));
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let args = [&["connect", export, "--link", link, "--timeout", "5"], &keys[..]].concat();
        expect(&finish(&mut self.rig.tyche(Side::Host, &args), PATIENCE), &args, 7, &[said]);
    }

    /// The output of a command at the target.
    fn ask(&self, args: &[&str]) -> Value {
        self.rig.ask_at(Side::Target, args)
    }

    fn add(&self, name: &str, key: &str) -> Value {
        self.ask(&["host", "add", name, key])
    }

    /// The hosts that the target knows, each with what says so and why it is not let in.
    fn listed(&self) -> Vec<(String, String, Value)> {
        let list = self.ask(&["host", "list"]);
        assert_eq!(list["schema"], "tyche.host-list/1");
        let hosts = list["targets"][0]["hosts"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of = |it: &Value| (text(&it["host"]), text(&it["defined_by"]), it["problem"].clone());
        hosts.iter().map(of).collect()
    }

    /// The hosts that may connect an export, as `export list` has them.
    fn may_connect(&self, export: &str) -> Value {
        let list = self.ask(&["export", "list"]);
        let exports = list["targets"][0]["exports"].as_array().unwrap();
        exports.iter().find(|it| it["export"] == export).unwrap()["may_connect"].clone()
    }

    /// Has the target read its file again, and waits until that is done.
    fn reload(&self, target: &Target) {
        let read = "who may connect was read again";
        let before = target.log().matches(read).count();
        target.process.signal(Signal::HUP);
        wait_until(read, || target.log().matches(read).count() > before);
        // The answer comes when it is over.
        self.ask(&["export", "set", "more", "iops=1000"]);
        self.ask(&["export", "set", "more", "iops=none"]);
    }
}

fn by(name: &str, place: &str) -> (String, String, Value) {
    (name.to_owned(), place.to_owned(), Value::Null)
}

#[test]
fn a_host_that_is_added_has_what_names_it_until_it_is_removed() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    keys.configure("");
    let target = keys.serve();
    let key = keys.public("node1");
    keys.fails(DISK, "node1", "does not know the key");
    let added = keys.add("node1", &key);
    assert_eq!(added["schema"], "tyche.host-changed/1");
    assert_eq!((&added["changed"], &added["key"]), (&json!(true), &json!(key)));
    assert_eq!(keys.add("node1", &key)["changed"], false);
    assert_eq!(keys.listed(), [by("alpha", "file"), by("node1", "command")]);
    // Exports that every [[host]] may have are not for it.
    keys.fails(DISK, "node1", "node1 may not have disk");
    keys.connect(DISK, "alpha").disconnect();
    let more = format!("more={}", keys.file("more.img"));
    keys.ask(&["export", "add", &more, "--allow", "node1"]);
    keys.ask(&["export", "allow", DISK, "node1"]);
    assert_eq!(keys.may_connect(DISK)["also"], json!(["node1"]));
    assert_eq!(keys.may_connect("more")["hosts"], json!(["node1"]));
    let text = run(&mut rig.tyche(Side::Target, &["export", "list"]));
    assert!(text.contains("any; added: node1"), "{text}");
    keys.fails("more", "alpha", "alpha may not have more");
    keys.connect("more", "node1").disconnect();
    let session = keys.connect(DISK, "node1");
    let load = Load::start(&session.device);
    load.await_progress();
    target.kill();
    let target = keys.serve();
    load.await_progress();
    keys.reload(&target);
    load.await_progress();
    load.finish();
    let text = run(&mut rig.tyche(Side::Target, &["host", "list"]));
    let fingerprint = added["fingerprint"].as_str().unwrap();
    let line = text.lines().find(|line| line.contains("node1")).unwrap();
    let is_whole = [fingerprint, "added", DISK].iter().all(|part| line.contains(part));
    assert!(is_whole, "{text}");

    let removed = keys.ask(&["host", "remove", "node1"]);
    assert_eq!((&removed["sessions_ended"], &removed["key"]), (&json!(1), &Value::Null));
    wait_until("the session is told", || {
        let session = rig.ask(&["list"])["sessions"][0].take();
        session["problem"].as_str().is_some_and(|it| it.contains("does not know the key"))
    });
    session.disconnect_by_force();
    let gone = ["host", "remove", "node1"];
    refused(&rig, Side::Target, &gone, 3, &["target `e2e` has no host `node1`"]);
    assert_eq!(keys.may_connect("more")["hosts"], json!([]), "for nobody, and not for all");
    target.kill();
    let _target = keys.serve();
    assert_eq!(keys.listed(), [by("alpha", "file")]);
    assert_eq!(keys.may_connect("more")["hosts"], json!([]));
    // Another of its name begins with nothing.
    keys.add("node1", &keys.public("node2"));
    for export in [DISK, "more"] {
        keys.fails(export, "node2", &format!("node1 may not have {export}"));
    }
}

#[test]
fn what_contradicts_others_is_refused_and_changes_nothing() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    let [alpha, node1, node2, ops] = ["alpha", "node1", "node2", "ops"].map(|it| keys.public(it));
    let admin = format!("[[admin]]\nname = \"ops\"\nkey = {ops:?}\n");
    let config = keys.configure(&admin);
    let target = keys.serve();
    let limited = ["host", "add", "node1", &node1, "--iops", "1000"];
    assert_eq!(keys.ask(&limited)["changed"], true);
    assert_eq!(keys.ask(&limited)["changed"], false);
    assert_eq!(keys.add("alpha", &alpha)["changed"], false, "the file says the same");
    let add = |name: &str, key: &str, code, said: &str| {
        refused(&rig, Side::Target, &["host", "add", name, key], code, &[said]);
    };
    add("node1", &node1, 10, "host node1 is there already, with other values of: iops");
    add("node1", &node2, 10, "with other values of: key, iops");
    add("alpha", &node2, 10, "[[host]] alpha of the configuration is there already");
    add("node2", &node1, 10, "is the key of host node1 already");
    add("node2", &alpha, 10, "is the key of [[host]] alpha already");
    add("node2", &ops, 10, "is the key of admin ops already");
    add("node2", &keys.target, 2, "is the key of target `e2e`");
    add("", &node2, 2, "1 to 63 bytes");
    let secret = fs::read_to_string(keys.file("node2")).unwrap();
    add("node2", secret.trim(), 2, "that is a secret key");
    let wrong = |args: &[&str], code, said: &[&str]| {
        refused(&rig, Side::Target, args, code, said);
    };
    let file = ["host `alpha` is from", "target.toml", "remove it there"];
    wrong(&["host", "remove", "alpha"], 8, &file);
    let export = ["export", "add", "x=mem:1M", "--allow", "node2"];
    wrong(&export, 8, &["there is no host `node2`", "tyche host add"]);
    wrong(&["export", "allow", DISK, "node2"], 3, &["no host `node2`", "alpha, node1"]);
    // What can't be kept is not done.
    let obstacle = rig.path("state/targets/e2e/hosts.json.new");
    fs::create_dir(&obstacle).unwrap();
    add("node2", &node2, 1, "hosts.json");
    wrong(&["host", "remove", "node1"], 1, &["hosts.json"]);
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(keys.listed(), [by("alpha", "file"), by("node1", "command")]);
    assert_eq!(keys.ask(&["host", "list"])["targets"][0]["hosts"][1]["iops"], 1000);
    // The file is valid without what commands have added.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}allow = [\"node1\"]\n")).unwrap();
    let check = ["serve", "--config", &config, "--name", "e2e", "--check"];
    let done = finish(&mut rig.tyche(Side::Target, &check), PATIENCE);
    expect(&done, &check, 8, &["no [[host]] `node1`", "tyche export allow"]);
    target.kill();
    fs::write(&config, text).unwrap();
    let state = rig.path("state/targets/e2e/hosts.json");
    fs::write(&state, "{").unwrap();
    let link = rig.cable.link(Side::Target);
    let serve = ["serve", "--config", &config, "--name", "e2e", "--link", link];
    refused(&rig, Side::Target, &serve, 8, &["hosts.json", "add them again"]);
    fs::remove_file(&state).unwrap();
    // Without keys there is nothing to tell hosts by.
    let _target = rig.serve_again();
    add("node2", &node2, 8, "has no key");
}

#[test]
fn the_configuration_wins_when_it_is_read() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    let config = keys.configure("");
    let target = keys.serve();
    let [node1, node2] = ["node1", "node2"].map(|it| keys.public(it));
    keys.add("node1", &node1);
    keys.add("node2", &node2);
    let more = format!("more={}", keys.file("more.img"));
    keys.ask(&["export", "add", &more, "--allow", "node2"]);
    keys.ask(&["export", "allow", DISK, "node1"]);
    let session = keys.connect(DISK, "node1");
    let load = Load::start(&session.device);
    let host = |key: &str| format!("[[host]]\nname = \"node1\"\nkey = {key:?}\n");
    let admin = format!("[[admin]]\nname = \"ops\"\nkey = {node2:?}\n");
    keys.configure(&(host(&node1) + &admin));
    let check = ["serve", "--config", &config, "--name", "e2e", "--check"];
    let left_out = keys.ask(&check)["left_out"].clone();
    let why = "its key is that of admin ops";
    let expected = json!([
        "[[host]] node1 counts instead of the host of that name",
        format!("host node2 is not let in: {why}"),
    ]);
    assert_eq!(left_out, expected);
    keys.reload(&target);
    load.await_progress();
    load.finish();
    let idle = ("node2".to_owned(), "command".to_owned(), json!(why));
    let known = [by("alpha", "file"), by("node1", "file"), idle];
    assert_eq!(keys.listed(), known);
    assert_eq!(keys.may_connect(DISK)["also"], json!([]), "as every [[host]]");
    assert_eq!(keys.may_connect("more")["hosts"], json!(["node2"]), "it is served");
    let again = ["host", "add", "node2", &node2];
    refused(&rig, Side::Target, &again, 10, &["is not let in", why]);
    // The same after a restart.
    target.kill();
    let target = keys.serve();
    assert_eq!(keys.listed(), known);
    keys.fails("more", "node2", "does not know the key");
    // What the file had taken over is gone with it, and the other is let in.
    keys.configure("");
    keys.reload(&target);
    assert_eq!(keys.listed(), [by("alpha", "file"), by("node2", "command")]);
    wait_until("the session is told", || {
        let session = rig.ask(&["list"])["sessions"][0].take();
        session["problem"].as_str().is_some_and(|it| it.contains("does not know the key"))
    });
    session.disconnect_by_force();
}

#[test]
fn a_target_keeps_as_many_hosts_as_is_said_and_they_cost_the_others_nothing() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    keys.configure("");
    let host = |number: u16| {
        let mut random = [7; 32];
        random[8..10].copy_from_slice(&number.to_le_bytes());
        let key = SecretKey::from_random(random).public().to_string();
        json!({ "name": format!("n{number}"), "key": key })
    };
    let hosts: Vec<_> = (0..4095).map(host).collect();
    let dir = rig.path("state/targets/e2e");
    fs::create_dir_all(&dir).unwrap();
    let text = json!({ "version": 1, "hosts": hosts }).to_string();
    fs::write(dir.join("hosts.json"), text).unwrap();
    let _target = keys.serve();
    assert_eq!(keys.listed().len(), 4096);
    let session = keys.connect(DISK, "alpha");
    let load = Load::start(&session.device);
    load.await_progress();
    keys.add("node1", &keys.public("node1"));
    keys.ask(&["export", "allow", DISK, "node1"]);
    let node2 = keys.public("node2");
    let add = ["host", "add", "node2", &node2];
    refused(&rig, Side::Target, &add, 7, &["4096 hosts were added by command"]);
    let unknown = ["export", "allow", DISK, "node2"];
    refused(&rig, Side::Target, &unknown, 3, &["no host `node2`", "and 4089 more"]);
    assert_eq!(keys.ask(&["host", "remove", "n7"])["changed"], true);
    assert_eq!(keys.ask(&add)["changed"], true);
    load.await_progress();
    load.finish();
    session.disconnect();
    keys.connect(DISK, "node1").disconnect();
}

/// Changes that were answered outlive a kill at any moment.
#[test]
fn hosts_outlive_targets_that_are_killed_while_they_are_changed() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    keys.configure("");
    let mut answered = vec!["alpha".to_owned()];
    for number in 0..8 {
        let target = keys.serve();
        let name = format!("node{number}");
        let key = make(&rig, &format!("key{number}"));
        let add = || rig.tyche(Side::Target, &["host", "add", &name, &key]);
        let mut adding = add().stdout(std::process::Stdio::null()).spawn().unwrap();
        // At another step each time, if the machine is as fast as that.
        let file = rig.path("state/targets/e2e/hosts.json");
        let has_begun = || match number % 4 {
            0 => true,
            1 => file.with_extension("json.new").exists() || is_in(&file, &name),
            2 => is_in(&file, &name),
            _ => target.log().contains(&format!("`host add {name}")),
        };
        wait_until("it is being added", has_begun);
        target.kill();
        let is_done = adding.wait().unwrap().success();
        let target = keys.serve();
        let names: Vec<_> = keys.listed().into_iter().map(|(name, ..)| name).collect();
        assert!(answered.iter().all(|it| names.contains(it)), "{answered:?}, {names:?}");
        assert!(!is_done || names.contains(&name), "{name} was answered: {names:?}");
        run(&mut add());
        answered.push(name);
        target.kill();
    }
    let _target = keys.serve();
    for name in &answered[1..] {
        assert_eq!(keys.ask(&["host", "remove", name])["changed"], true);
    }
    assert_eq!(keys.listed(), [by("alpha", "file")]);
}

/// True if the file of hosts has that name.
fn is_in(file: &std::path::Path, name: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("{name:?}")))
}
