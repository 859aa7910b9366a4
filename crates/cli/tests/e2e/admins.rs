//! Control from elsewhere: admins with keys ask a target over IP.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::keys::make;
use crate::load::Load;
use crate::refusals::{expect, refused};
use crate::rig::{DISK, PATIENCE, Rig, Side, Target, finish, rig, run, wait_until};
use crate::udp::addressed;

const SIZE: u64 = 64 << 20;
/// Where the target's control port is.
const PLACE: &str = "e2e@10.8.0.1";

/// The keys of a target, of its admins and of its host, by the names of their files.
struct Keys<'r> {
    rig: &'r Rig,
    target: String,
}

impl<'r> Keys<'r> {
    fn new(rig: &'r Rig) -> Self {
        for name in ["ops.key", "monitor.key", "host.key", "node.key", "stranger.key"] {
            make(rig, name);
        }
        rig.file("disk.img", SIZE);
        rig.file("more.img", SIZE);
        Self { rig, target: make(rig, "target.key") }
    }

    fn file(&self, name: &str) -> String {
        self.rig.path(name).display().to_string()
    }

    fn public(&self, name: &str) -> String {
        let text = run(&mut self.rig.tyche(Side::Host, &["key", "show", &self.file(name)]));
        text.trim().to_owned()
    }

    /// Writes the configuration, with these admins.
    fn configure(&self, admins: &[&str]) -> String {
        let table = |name: &&str| {
            let key = self.public(&format!("{name}.key"));
            let read_only = *name == "monitor";
            format!("[[admin]]\nname = {name:?}\nkey = {key:?}\nread_only = {read_only}\n")
        };
        let admins: String = admins.iter().map(table).collect();
        let (key, host) = (self.file("target.key"), self.public("host.key"));
        let (disk, pool) = (self.file("disk.img"), self.rig.path("vols"));
        fs::create_dir_all(&pool).unwrap();
        let pool = pool.display();
        let text = format!(
            "key = {key:?}\ncontrol = \"tcp:10.8.0.1:8652\"\n{admins}\
             [[pool]]\nname = \"fast\"\npath = \"dir:{pool}\"\n\
             [[host]]\nname = \"alpha\"\nkey = {host:?}\n\
             [[export]]\nname = {DISK:?}\npath = {disk:?}\n"
        );
        let path = self.rig.path("target.toml");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn serve(&self, admins: &[&str]) -> Target {
        self.rig.serve(&["--config", &self.configure(admins)])
    }

    /// The arguments of a command for the target, of the owner of that key.
    fn at<'a>(&'a self, file: &'a str) -> [&'a str; 6] {
        ["--at", PLACE, "--key", file, "--target-key", &self.target]
    }

    /// The output of a command of an admin.
    fn ask(&self, file: &str, args: &[&str]) -> Value {
        self.rig.ask(&[args, &self.at(&self.file(file))].concat())
    }

    fn refused(&self, file: &str, args: &[&str], code: i32, said: &[&str]) {
        let file = self.file(file);
        refused(self.rig, Side::Host, &[args, &self.at(&file)].concat(), code, said);
    }
}

fn hang_up(target: &Target) {
    let pid = Pid::from_raw(target.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}

/// Every command that asks a target, from the other end of the cable.
/// Gives an export another name and other properties, from elsewhere.
fn rename_and_set(keys: &Keys<'_>) {
    let ops = |args: &[&str]| keys.ask("ops.key", &[&["export"], args].concat());
    assert_eq!(ops(&["rename", "more", "most"])["changed"], true);
    assert_eq!(ops(&["rename", "more", "most"])["changed"], false);
    assert_eq!(ops(&["rename", "most", "more"])["changed"], true);
    assert_eq!(ops(&["set", "more", "iops=1000", "allow=alpha"])["changed"], true);
    keys.refused(
        "monitor.key",
        &["export", "set", "more", "iops=none"],
        7,
        &["may change nothing"],
    );
}

/// Lets a host in by its key, from elsewhere, to one export.
fn add_host(keys: &Keys<'_>) {
    let node = keys.public("node.key");
    let ops = |args: &[&str]| keys.ask("ops.key", args);
    assert_eq!(ops(&["host", "add", "node1", &node])["changed"], true);
    assert_eq!(ops(&["host", "add", "node1", &node])["changed"], false);
    assert_eq!(ops(&["export", "allow", "more", "node1"])["host"], "node1");
    let hosts = keys.ask("monitor.key", &["host", "list"]);
    let host = &hosts["targets"][0]["hosts"][1];
    assert_eq!((&host["host"], &host["keys"]), (&json!("node1"), &json!([node])));
    for change in [&["host", "add", "node2", &node][..], &["host", "remove", "node1"]] {
        keys.refused("monitor.key", change, 7, &["admin monitor may change nothing"]);
    }
    assert_eq!(ops(&["host", "remove", "node1"])["sessions_ended"], 0);
    keys.refused("ops.key", &["host", "remove", "node1"], 3, &["no host `node1`"]);
}

/// Waits until the log says of each change who has asked for it.
fn await_changes(target: &Target, more: &str, by: &str) {
    for change in [
        &*format!("`export add {more}`"),
        "`export resize more 134217728`",
        "`export rename more most`",
        "`export set more iops=1000 allow=alpha`",
        "`export deny more alpha`",
        "`export allow more alpha`",
        "`export revert more`",
        "`host add node1 tyche_",
        "`host remove node1`",
        "`export remove more`",
        "`export add made --pool fast --size 1048576`",
        "`export remove made --delete`",
        &format!("`export evict {DISK} alpha`"),
    ] {
        wait_until(change, || {
            let log = target.log();
            log.lines().any(|line| line.contains(change) && line.contains(by))
        });
    }
}

#[test]
fn every_command_works_from_elsewhere_and_the_log_says_who_asked() {
    let rig = addressed(rig!(1500));
    let keys = Keys::new(&rig);
    let target = keys.serve(&["ops", "monitor"]);
    target.await_log("admins are listened to at tcp:10.8.0.1:8652");
    let host = keys.file("host.key");
    let session = rig.connect_as("fuse", &["--key", &host, "--target-key", &keys.target]);
    let load = Load::start(&session.device);
    load.await_progress();
    load.finish();
    let list = keys.ask("ops.key", &["list"]);
    assert_eq!(list["targets"][0]["name"], "e2e");
    assert_eq!(list["sessions"], json!([]), "those of this machine are not the target's");
    let held = &list["targets"][0]["exports"][0]["sessions"][0];
    assert_eq!(held["host_name"], "alpha");
    let stats = keys.ask("monitor.key", &["stats", "e2e"]);
    assert!(stats["targets"][0]["links"][0]["requests"].as_u64() > Some(0), "{stats}");
    let hosts = keys.ask("monitor.key", &["hosts", "e2e"]);
    assert_eq!(
        (&hosts["hosts"][0]["host"], &hosts["hosts"][0]["export"]),
        (&json!("alpha"), &json!(DISK))
    );
    let (link, other) = (rig.cable.link(Side::Target), "udp:10.8.0.1:47009");
    assert_eq!(keys.ask("ops.key", &["link", "add", "e2e", other])["changed"], true);
    let only = format!("{link} is the only link of alpha ({DISK})");
    keys.refused("ops.key", &["link", "del", "e2e", link], 7, &[&only, "--force"]);
    assert_eq!(keys.ask("ops.key", &["link", "del", "e2e", other])["changed"], true);
    let ops = |args: &[&str]| keys.ask("ops.key", &[&["export"], args].concat());
    let more = format!("more={}", keys.file("more.img"));
    assert_eq!(ops(&["add", &more])["changed"], true);
    assert_eq!(ops(&["add", &more])["changed"], false, "it is there");
    let exports = keys.ask("monitor.key", &["export", "list"]);
    let names = exports["targets"][0]["exports"].as_array().unwrap();
    let names: Vec<_> = names.iter().map(|it| it["export"].as_str().unwrap()).collect();
    assert_eq!(names, [DISK, "more"]);
    assert_eq!(ops(&["resize", "more", "128M"])["size"], 128 << 20);
    rename_and_set(&keys);
    add_host(&keys);
    let may_connect = || {
        let list = keys.ask("monitor.key", &["export", "list"]);
        let exports = list["targets"][0]["exports"].as_array().unwrap();
        exports.iter().map(|it| it["may_connect"]["hosts"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(may_connect(), [Value::Null, json!(["alpha"])]);
    assert_eq!(ops(&["deny", "more", "alpha"])["sessions_ended"], 0);
    assert_eq!(may_connect(), [Value::Null, json!([])]);
    assert_eq!(ops(&["allow", "more", "alpha"])["host"], "alpha");
    assert_eq!(ops(&["revert", "more"])["host"], Value::Null);
    assert_eq!(ops(&["remove", "more"])["changed"], true);
    let make = ["add", "made", "--pool", "fast", "--size", "1M"];
    assert_eq!(ops(&make)["size"], 1 << 20);
    let snapshot = ["export", "snapshot", "made", "snap"];
    keys.refused("monitor.key", &snapshot, 7, &["may change nothing"]);
    assert_eq!(ops(&["remove", "made", "--delete"])["changed"], true);
    assert_eq!(fs::read_dir(rig.path("vols")).unwrap().count(), 0);
    assert_eq!(ops(&["evict", DISK, "alpha"])["sessions_ended"], 1);
    session.disconnect_by_force();
    let by = {
        let print = finish(
            &mut rig.tyche(Side::Host, &["key", "fingerprint", &keys.public("ops.key")]),
            PATIENCE,
        );
        format!("by=admin ops ({}) at 10.8.0.2:", print.stdout.trim())
    };
    await_changes(&target, &more, &by);
    rig.ask_at(Side::Target, &["export", "revert", DISK]);
    let local = format!("`export revert {DISK}` by=user 0 of this machine");
    target.await_log(&local);
}

#[test]
fn who_may_not_ask_is_told_why() {
    let rig = addressed(rig!(1500));
    let keys = Keys::new(&rig);
    let target = keys.serve(&["ops", "monitor"]);
    let add = ["export", "add", "a=mem:1M"];
    keys.refused("monitor.key", &add, 7, &["admin monitor may change nothing", "read_only"]);
    target.await_log("`export add a=mem:1M` is refused: the admin is read_only");
    keys.refused("monitor.key", &["export", "evict", DISK, "alpha"], 7, &["read_only"]);
    let (stranger, host) = (keys.public("stranger.key"), keys.public("host.key"));
    keys.refused("stranger.key", &["list"], 7, &["knows no admin with the key", &stranger]);
    keys.refused("stranger.key", &["top"], 7, &["knows no admin with the key", &stranger]);
    let top = keys.ask("monitor.key", &["top", "--interval", "0.1"]);
    assert_eq!((&top["targets"][0]["target"], &top["sessions"]), (&json!("e2e"), &json!([])));
    keys.refused("host.key", &["list"], 7, &["knows no admin with the key", &host]);
    target.await_log("refused at `control`: no [[admin]] has this key");
    keys.refused("ops.key", &["export", "add", "a=relative.img"], 2, &["absolute path"]);
    keys.refused(
        "ops.key",
        &["export", "deny", "nothing", "alpha"],
        3,
        &["no target at 10.8.0.1:8652 exports `nothing`"],
    );
    keys.refused("ops.key", &["hosts", "other"], 3, &["no target `other` runs at 10.8.0.1"]);
    let ops = keys.file("ops.key");
    let fails = |args: &[&str], code, said: &[&str]| {
        refused(&rig, Side::Host, &[args, &["--key", &ops]].concat(), code, said);
    };
    let key = &*keys.target;
    fails(&["list"], 2, &["give --at"]);
    fails(&["list", "--at", "e2e@::1"], 2, &["brackets"]);
    fails(&["list", "--at", PLACE], 8, &["key of target `e2e` is not known", "--target-key KEY"]);
    let closed = ["list", "--at", "10.8.0.1:8653", "--target-key", key];
    fails(&closed, 6, &["10.8.0.1:8653", "refused"]);
    fails(&["list", "--at", PLACE, "--target-key", &stranger], 6, &["the target has another key"]);
    let other = ["export", "remove", DISK, "--at", "other@10.8.0.1", "--target-key", key];
    let is = "the target at 10.8.0.1:8652 is `e2e` (";
    fails(&other, 3, &[is, "and not `other`"]);
    // The UUID, from the message.
    let said =
        finish(&mut rig.tyche(Side::Host, &[&other[..], &["--key", &ops]].concat()), PATIENCE);
    let uuid = said.stderr.split_once(is).unwrap().1.split_once(')').unwrap().0.to_owned();
    // Two targets that are known, with one key: the one is not taken for the other.
    let twin = "11111111-2222-4333-8444-555555555555";
    let known = format!("{key} {uuid} store1\n{key} {twin} store2\n");
    fs::write(rig.path("known-targets"), known).unwrap();
    for place in ["store1@10.8.0.1", "store1@10.8.0.1:8652", &*format!("{uuid}@10.8.0.1")] {
        let list = rig.ask(&["list", "--at", place, "--key", &ops]);
        assert_eq!(list["targets"][0]["name"], "e2e", "{place}");
    }
    let remove = ["export", "remove", DISK, "--at", "store2@10.8.0.1"];
    fails(&remove, 3, &[is, "and not `store2`", twin]);
    fails(&["list", "--at", "10.8.0.1"], 8, &["known: store1, store2"]);
}

#[test]
fn an_admin_that_is_taken_off_the_list_is_out_and_others_go_on() {
    let rig = addressed(rig!(1500));
    let keys = Keys::new(&rig);
    let target = keys.serve(&["ops", "monitor"]);
    let file = keys.file("ops.key");
    let watch = [&["stats", "--watch"][..], &keys.at(&file)].concat();
    let mut command = rig.tyche(Side::Host, &watch);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut watching = crate::rig::Running::start(&mut command);
    assert!(watching.line().starts_with("e2e"), "it watches");
    keys.configure(&["monitor"]);
    hang_up(&target);
    target.await_log("who may connect was read again");
    keys.refused("ops.key", &["list"], 7, &["knows no admin with the key"]);
    assert_eq!(keys.ask("monitor.key", &["list"])["targets"][0]["name"], "e2e");
    wait_until("who watched is out as well", || !watching.is_running());
    keys.configure(&["ops"]);
    hang_up(&target);
    wait_until("the other is", || {
        let file = keys.file("monitor.key");
        let args = [&["list"][..], &keys.at(&file)].concat();
        finish(&mut rig.tyche(Side::Host, &args), PATIENCE).status.code() == Some(7)
    });
    keys.ask("ops.key", &["export", "add", "a=mem:1M"]);
}

#[test]
fn an_admin_who_may_only_look_does_not_fill_the_log() {
    let rig = addressed(rig!(1500));
    let keys = Keys::new(&rig);
    let target = keys.serve(&["ops", "monitor"]);
    for number in 0..20 {
        let add = format!("a{number}=mem:1M");
        keys.refused("monitor.key", &["export", "add", &add], 7, &["may change nothing"]);
    }
    let lines = || target.log().lines().filter(|line| line.contains("is refused: the")).count();
    assert!(lines() <= 10, "{}", target.log());
    // The lines of others are there, as is each change.
    keys.refused("ops.key", &["export", "add", "b=/dev/null"], 9, &["/dev/null"]);
    target.await_log("`export add b=/dev/null` has failed");
    for number in 0..20 {
        let name = format!("c{number}");
        keys.ask("ops.key", &["export", "add", &format!("{name}=mem:1M")]);
        target.await_log(&format!("`export add {name}=mem:1M`"));
    }
}

/// The places in the kernel where threads of that name wait.
fn waits_of(target: &Target, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", target.pid())).unwrap().flatten();
    let read = |task: &fs::DirEntry, file| {
        fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_owned()
    };
    tasks.filter(|it| read(it, "comm") == name).map(|it| read(&it, "wchan")).collect()
}

#[test]
fn what_an_admin_has_asked_for_is_not_done_when_he_is_none_any_more() {
    let rig = addressed(rig!(1500));
    let keys = Keys::new(&rig);
    let target = keys.serve(&["ops"]);
    let host = keys.file("host.key");
    let session = rig.connect_as("fuse", &["--key", &host, "--target-key", &keys.target]);
    session.signal(Signal::STOP);
    let slow = format!("slow={}", session.device.display());
    let mut adding = rig.tyche(Side::Target, &["export", "add", &slow]);
    let mut adding = adding.spawn().unwrap();
    wait_until("it is being opened", || !waits_of(&target, "tyche-open").is_empty());
    let file = keys.file("ops.key");
    let args = [&["export", "add", "late=mem:1M"][..], &keys.at(&file)].concat();
    let mut asking = rig.tyche(Side::Host, &args).spawn().unwrap();
    wait_until("it waits for its turn", || {
        waits_of(&target, "control-guest").iter().any(|place| place.contains("futex"))
    });
    keys.configure(&[]);
    hang_up(&target);
    wait_until("he is out at once", || asking.try_wait().unwrap().is_some());
    session.signal(Signal::CONT);
    adding.wait().unwrap();
    target.await_log("`export add late=mem:1M` has failed: ops is no admin any more");
    target.await_log("who may connect was read again");
    let exports = rig.ask_at(Side::Target, &["export", "list"]);
    assert!(!exports.to_string().contains("late"), "{exports}");
    session.disconnect_by_force();
}

#[test]
fn a_configuration_that_admits_nobody_for_certain_is_refused() {
    let rig = addressed(rig!(1500));
    let keys = Keys::new(&rig);
    let (ops, host) = (keys.public("ops.key"), keys.public("host.key"));
    let own = keys.file("target.key");
    let serve = |text: &str, code, said: &[&str]| {
        let config = rig.path("target.toml");
        let disk = keys.file("disk.img");
        fs::write(&config, format!("{text}[[export]]\nname = \"a\"\npath = {disk:?}\n")).unwrap();
        let link = rig.cable.link(Side::Target);
        let args = ["serve", "--config", config.to_str().unwrap(), "--link", link, "--name", "e2e"];
        expect(&finish(&mut rig.tyche(Side::Target, &args), PATIENCE), &args, code, said);
    };
    let control = "control = \"tcp:10.8.0.1:8652\"\n";
    let admin = |key: &str| format!("[[admin]]\nname = \"ops\"\nkey = {key:?}\n");
    serve(control, 8, &["`control`", "this target has no key", "tyche key generate"]);
    serve("control = \"10.8.0.1:8652\"\n", 8, &["line 1", "tcp:ADDRESS:8652"]);
    let key = format!("key = {own:?}\n");
    let both = format!("[[host]]\nname = \"alpha\"\nkey = {host:?}\n");
    serve(
        &format!("{key}{control}{}{both}", admin(&host)),
        8,
        &["admin ops and host alpha have the same key", "tyche key generate FILE"],
    );
    serve(&format!("{key}{control}{}", admin(&keys.target)), 8, &["has the key of this target"]);
    let twice = format!("{key}{control}{}", admin(&ops));
    serve(&format!("{twice}{}", admin(&ops).replace("\"ops\"", "\"dev\"")), 8, &["the same key"]);
    // The port is taken.
    let _target = keys.serve(&["ops"]);
    let disk = "a=mem:1M";
    let config = keys.configure(&["ops"]);
    let text = fs::read_to_string(&config).unwrap().replace("disk.img", "more.img");
    fs::write(&config, text).unwrap();
    let link = rig.cable.link(Side::Target);
    let args = ["serve", "--config", &config, "--link", link, "--name", "b", "--export", disk];
    let done = finish(&mut rig.tyche(Side::Target, &args), PATIENCE);
    expect(&done, &args, 5, &["`control`: tcp:10.8.0.1:8652", "in use"]);
}
