//! Access of hosts to exports, changed on a running target: allow, deny, evict, revert.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::Path;
use std::process::Stdio;
use std::thread::{self, JoinHandle};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hung::{HungDisk, serve_nested};
use crate::keys::make;
use crate::load::Load;
use crate::refusals::{expect, refused};
use crate::rig::{DISK, Done, PATIENCE, Rig, Running, Side, Target, finish, rig, run, wait_until};
use crate::udp::{LINK, OVER_TCP, addressed};

const SIZE: u64 = 64 << 20;
/// Bytes of a write.
const BLOCK: usize = 4096;

/// A target with a key, and hosts that it knows.
struct Configured {
    /// The public key of the target.
    target: String,
    /// The file of each host's key, and its public part, by name.
    hosts: Vec<(&'static str, String, String)>,
}

/// Makes a key; returns its file and its public part.
fn make_key(rig: &Rig, name: &str) -> (String, String) {
    (rig.path(name).display().to_string(), make(rig, name))
}

impl Configured {
    fn new(rig: &Rig, names: &[&'static str]) -> Self {
        let (_, target) = make_key(rig, "target");
        let host = |&name| {
            let (file, public) = make_key(rig, name);
            (name, file, public)
        };
        Self { target, hosts: names.iter().map(host).collect() }
    }

    /// Writes the configuration of the target; `more`: lines of its export.
    fn configure(&self, rig: &Rig, more: &str) -> String {
        let hosts = self
            .hosts
            .iter()
            .map(|(name, _, public)| format!("[[host]]\nname = {name:?}\nkey = {public:?}\n"));
        let (key, disk) = (rig.path("target"), rig.path("disk.img"));
        let hosts: String = hosts.collect();
        let export = format!("[[export]]\nname = {DISK:?}\npath = {disk:?}\n{more}\n");
        let path = rig.path("target.toml");
        fs::write(&path, format!("key = {key:?}\n{hosts}{export}")).unwrap();
        path.display().to_string()
    }

    /// Arguments of `connect` for a host.
    fn keys<'a>(&'a self, host: &str) -> [&'a str; 4] {
        let (_, file, _) = self.hosts.iter().find(|(name, ..)| *name == host).unwrap();
        ["--key", file, "--target-key", &self.target]
    }
}

fn export(rig: &Rig, args: &[&str]) -> Value {
    rig.ask_at(Side::Target, &[&["export"], args].concat())
}

/// The only export of the only target in `list`.
fn listed(rig: &Rig) -> Value {
    rig.ask_at(Side::Target, &["list"])["targets"][0]["exports"][0].take()
}

/// Tries to connect the disk, in vain.
fn connect_in_vain(rig: &Rig, keys: &[&str], said: &[&str]) {
    let link = rig.cable.link(Side::Host);
    let args = [&["connect", DISK, "--link", link, "--timeout", "5"], keys].concat();
    expect(&finish(&mut rig.tyche(Side::Host, &args), PATIENCE), &args, 7, said);
}

fn await_refused(rig: &Rig) {
    wait_until("the session is told", || {
        let session = rig.ask(&["list"])["sessions"][0].take();
        session["problem"].as_str().is_some_and(|it| it.contains("does not let this host in"))
    });
}

#[test]
fn a_host_is_denied_and_allowed_while_the_target_runs_and_after_restarts() {
    let rig = rig!(1500);
    let known = Configured::new(&rig, &["alpha", "beta"]);
    rig.file("disk.img", SIZE);
    let config = known.configure(&rig, "");
    let target = rig.serve(&["--config", &config]);
    let session = rig.connect_as("fuse", &known.keys("alpha"));
    let load = Load::start(&session.device);
    assert_eq!(export(&rig, &["deny", DISK, "beta"])["sessions_ended"], 0, "it has none");
    load.await_progress();
    load.finish();
    let denied = export(&rig, &["deny", DISK, "alpha"]);
    assert_eq!(denied["schema"], "tyche.access/1");
    assert_eq!((&denied["host"], &denied["sessions_ended"]), (&"alpha".into(), &1.into()));
    await_refused(&rig);
    session.disconnect_by_force();
    connect_in_vain(&rig, &known.keys("alpha"), &["alpha may not have disk"]);
    assert_eq!(listed(&rig)["denied"], json!(["alpha", "beta"]));
    let text = run(&mut rig.tyche(Side::Target, &["list"]));
    assert!(text.contains("kept out by `tyche export deny`: alpha, beta"), "{text}");
    let text = run(&mut rig.tyche(Side::Target, &["stats"]));
    assert!(text.contains("kept out by `tyche export deny`: alpha, beta"), "{text}");
    export(&rig, &["deny", DISK, "alpha"]);

    target.process.signal(Signal::HUP);
    let target = restart(&rig, target, &config);
    connect_in_vain(&rig, &known.keys("alpha"), &["alpha may not have disk"]);
    let text = run(&mut rig.tyche(Side::Target, &["export", "allow", DISK, "alpha"]));
    assert_eq!(text, "alpha may have disk\n");
    export(&rig, &["allow", DISK, "alpha"]);
    assert_eq!(listed(&rig)["denied"], json!(["beta"]));
    assert_eq!(listed(&rig)["allowed"], json!([]), "the configuration lets it in");
    rig.connect(&known.keys("alpha")).disconnect();
    let text = run(&mut rig.tyche(Side::Target, &["export", "revert", DISK]));
    assert_eq!(text, "the configuration decides whether all hosts may have disk\n");
    let _target = restart(&rig, target, &config);
    rig.connect(&known.keys("beta")).disconnect();
}

#[test]
fn a_host_that_waits_at_its_limit_is_evicted_all_the_same() {
    let rig = rig!(1500);
    let known = Configured::new(&rig, &["alpha"]);
    rig.file("disk.img", SIZE);
    let config = known.configure(&rig, "");
    let free = fs::read_to_string(&config).unwrap();
    // So few that a load is never without requests that wait.
    let limited = free.replacen("name = \"alpha\"", "name = \"alpha\"\niops = 10", 1);
    fs::write(&config, &limited).unwrap();
    let target = rig.serve(&["--config", &config]);
    let link = rig.cable.link(Side::Host);
    let args = ["bench", DISK, "--link", link, "--iodepth", "64", "--runtime", "600"];
    let mut bench = rig.tyche(Side::Host, &[&args[..], &known.keys("alpha")].concat());
    let mut bench = Running::start(bench.stderr(Stdio::null()));
    // It may not be there yet.
    let hosts = || rig.ask_at(Side::Target, &["hosts"]);
    let alpha = || hosts().pointer("/hosts/0").cloned().unwrap_or_default();
    let waiting = || alpha()["waiting"].as_u64().unwrap_or_default();
    wait_until("requests wait", || waiting() > 0);
    wait_until("requests have waited", || alpha()["requests"]["limited_ns"].as_u64() > Some(0));
    let text = run(&mut rig.tyche(Side::Target, &["hosts"]));
    assert!(text.contains(" wait"), "{text}");
    fs::write(&config, &free).unwrap();
    target.process.signal(Signal::HUP);
    wait_until("it has no limit", || alpha()["requests"]["reads"].as_u64() > Some(2000));
    assert_eq!(waiting(), 0);
    fs::write(&config, format!("{free}bytes_per_second = \"1M\"\n")).unwrap();
    target.process.signal(Signal::HUP);
    wait_until("requests wait at the export", || waiting() > 0);
    let text = run(&mut rig.tyche(Side::Target, &["export", "list"]));
    assert!(text.contains("1.0 MiB/s"), "{text}");
    assert_eq!(export(&rig, &["evict", DISK, "alpha"])["sessions_ended"], 1);
    target.await_log("host alpha has left disk after");
    wait_until("the load has failed", || !bench.is_running());
    let log = target.log();
    let left = log.lines().find(|line| line.contains("has left")).unwrap();
    for part in ["export=disk", "host=alpha", "key=SHA256:", "seconds=", "reads=", "failed=0"] {
        assert!(left.contains(part), "{part}: {left}");
    }
    let evicted = log.lines().find(|line| line.contains("`evict` of alpha")).unwrap();
    assert!(evicted.contains("key=\"SHA256:"), "{evicted}");
}

/// Ends a target, and starts the next.
fn restart(rig: &Rig, target: Target, config: &str) -> Target {
    target.kill();
    rig.serve(&["--config", config])
}

#[test]
fn the_configuration_and_decisions_count_together() {
    let rig = rig!(1500);
    let known = Configured::new(&rig, &["alpha", "beta"]);
    rig.file("disk.img", SIZE);
    let config = known.configure(&rig, "allow = [\"alpha\"]");
    let target = rig.serve(&["--config", &config]);
    connect_in_vain(&rig, &known.keys("beta"), &["beta may not have disk"]);
    export(&rig, &["allow", DISK, "beta"]);
    assert_eq!(listed(&rig)["allowed"], json!(["beta"]));
    let text = run(&mut rig.tyche(Side::Target, &["list"]));
    assert!(text.contains("let in by `tyche export allow`: beta"), "{text}");
    // Reading the configuration again changes nothing about it.
    target.process.signal(Signal::HUP);
    rig.connect(&known.keys("beta")).disconnect();
    // Until the configuration says the same.
    known.configure(&rig, "allow = [\"alpha\", \"beta\"]");
    target.process.signal(Signal::HUP);
    wait_until("the configuration is read", || listed(&rig)["allowed"] == json!([]));
    let session = rig.connect_as("fuse", &known.keys("beta"));
    known.configure(&rig, "allow = [\"alpha\"]");
    target.process.signal(Signal::HUP);
    await_refused(&rig);
    session.disconnect_by_force();
    // Who is denied by command is not let in by the configuration.
    export(&rig, &["deny", DISK, "beta"]);
    known.configure(&rig, "allow = [\"beta\"]");
    let target = restart(&rig, target, &config);
    connect_in_vain(&rig, &known.keys("beta"), &["beta may not have disk"]);
    connect_in_vain(&rig, &known.keys("alpha"), &["alpha may not have disk"]);
    export(&rig, &["revert", DISK, "beta"]);
    rig.connect(&known.keys("beta")).disconnect();
    // A configuration that is wrong changes nothing.
    known.configure(&rig, "allow = [\"gamma\"]");
    target.process.signal(Signal::HUP);
    wait_until("the mistake is logged", || {
        target.log().contains("who may connect, and what is exported, stay as they were")
    });
    rig.connect(&known.keys("beta")).disconnect();
}

/// Writes blocks of increasing numbers, all over a device, until a write fails.
pub(crate) fn write_until_it_fails(device: &Path, number: u64) -> JoinHandle<u64> {
    let file = File::options().write(true).open(device).unwrap();
    thread::spawn(move || {
        let blocks = SIZE / BLOCK as u64;
        for count in 1.. {
            let block = (count * 4 + number) * 0x9e37_79b9 % blocks;
            let content = count.to_le_bytes().repeat(BLOCK / 8);
            if file.write_all_at(&content, block * BLOCK as u64).is_err() {
                return count;
            }
        }
        unreachable!("there is no last number")
    })
}

/// The disk is the same when the command returns and when the host has long given up; on each link
/// with several threads at the target.
#[test]
fn nothing_of_an_evicted_host_reaches_the_disk_any_more() {
    let rig = addressed(rig!(9000));
    let known = Configured::new(&rig, &["alpha", "beta"]);
    rig.file("disk.img", SIZE);
    let links = [Side::Target, Side::Host].map(|side| rig.cable.link(side));
    for [target, host] in [links, [LINK; 2], [OVER_TCP; 2]] {
        evicted_host_is_silent(&rig, &known, (target, host));
    }
}

fn evicted_host_is_silent(rig: &Rig, known: &Configured, (target_link, link): (&str, &str)) {
    let image = rig.path("disk.img");
    let config = known.configure(rig, "");
    let several = ["--threads", "3", "--config", &config];
    let _target = rig.serve_on(&["--link", target_link], &several);
    let keys = known.keys("alpha");
    let several = [&keys[..], &["--queues", "3"]].concat();
    let session = rig.connect_at((Side::Host, link), "fuse", &several);
    let load = (0..4).map(|number| write_until_it_fails(&session.device, number));
    let load: Vec<_> = load.collect();
    wait_until("much is written", || {
        rig.stats().0["requests"]["writes"].as_u64().is_some_and(|writes| writes > 1000)
    });
    export(rig, &["evict", DISK, "alpha"]);
    let at_once = fs::read(&image).unwrap();
    assert_eq!(listed(rig)["sessions"], json!([]));
    for writer in load {
        println!("a writer failed with its write {}", writer.join().unwrap());
    }
    await_refused(rig);
    assert!(
        fs::read(&image).unwrap() == at_once,
        "{link}: the disk has changed since the eviction"
    );
    session.disconnect_by_force();
    rig.connect_at((Side::Host, link), "fuse", &known.keys("beta")).disconnect();
    // The next target knows nobody.
    export(rig, &["revert", DISK, "alpha"]);
}

/// A host without a key, by its UUID, while the disk at the target hangs.
#[test]
fn an_eviction_waits_for_the_disk_and_says_so_if_that_takes_too_long() {
    let rig = rig!();
    let (file, inner, _outer) = serve_nested(&rig, SIZE);
    let session = rig.connect_at((Side::Host, "h2"), "fuse", &[]);
    let host = session.value["host"].as_str().unwrap().to_owned();

    let hung = HungDisk::hang(&inner);
    let writing = write_until_it_fails(&session.device, 0);
    wait_until("a write is with the disk", || executing(&rig, "outer") > 0);
    let evict = ["export", "evict", DISK, &host, "--timeout", "0.5"];
    refused(&rig, Side::Target, &evict, 9, &["has not finished requests", "0.5 s", &host]);
    assert!(file.metadata().unwrap().len() > 0 && is_blank(&file), "the disk has hung all along");
    let mut evicting = rig.tyche(Side::Target, &["export", "evict", DISK, &host]);
    let evicting = thread::spawn(move || finish(&mut evicting, PATIENCE));
    assert_eq!(sessions(&rig, "outer"), 1, "its requests are with the disk");
    assert!(!evicting.is_finished());
    drop(hung);
    let Done { status, stdout, .. } = evicting.join().unwrap();
    assert_eq!(
        (status.code(), &*stdout),
        (Some(0), &*format!("{host} may not have {DISK}; nothing of it is left there\n"))
    );
    assert!(!is_blank(&file), "the write is executed when the command returns");
    assert_eq!(sessions(&rig, "outer"), 0);
    writing.join().unwrap();
    session.disconnect_by_force();
    let args = ["connect", DISK, "--link", "h2", "--timeout", "5"];
    let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    expect(&done, &args, 7, &[&format!("{host} may not have {DISK}")]);
    run(&mut rig.tyche(Side::Target, &["export", "allow", DISK, &host]));
    rig.connect_at((Side::Host, "h2"), "fuse", &[]).disconnect();
}

/// Sessions at a target with one export.
fn sessions(rig: &Rig, target: &str) -> usize {
    let report = rig.ask_at(Side::Target, &["stats", target])["targets"][0].take();
    report["exports"][0]["sessions"].as_array().unwrap().len()
}

/// Requests of open channels that are with the disks of a target.
fn executing(rig: &Rig, target: &str) -> u64 {
    let list = rig.ask_at(Side::Target, &["stats", target]);
    let channels = list["targets"][0]["links"][0]["channels"].as_array().unwrap().clone();
    channels.iter().map(|channel| channel["executing"].as_u64().unwrap()).sum()
}

fn is_blank(file: &Path) -> bool {
    fs::read(file).unwrap().iter().all(|&byte| byte == 0)
}

#[test]
fn mistakes_are_told_in_one_line() {
    let rig = rig!();
    let known = Configured::new(&rig, &["alpha", "beta"]);
    rig.file("disk.img", SIZE);
    let config = known.configure(&rig, "");
    let links = ["--link", "tcp:127.0.0.1:0"];
    let target = rig.serve_on(&links, &["--config", &config]);
    let wrong = |args: &[&str], code, parts: &[&str]| {
        refused(&rig, Side::Target, &[&["export"], args].concat(), code, parts);
    };
    let uuid = "11111111-2222-4333-8444-555555555555";
    for command in ["allow", "deny", "evict"] {
        wrong(&[command, DISK, "gamma"], 3, &["no host `gamma`", "alpha, beta"]);
        wrong(&[command, DISK, uuid], 2, &["hosts with a key", "alpha, beta"]);
        wrong(&[command, "nothing", "alpha"], 3, &["exports `nothing`", "tyche list"]);
        wrong(&[command, DISK, "alpha", "--target", "other"], 3, &["no target `other`"]);
    }
    wrong(&["revert", DISK, "gamma"], 3, &["no host `gamma`"]);
    let never = ["export", "evict", DISK, "alpha", "--timeout", "0"];
    let done = finish(&mut rig.tyche(Side::Target, &never), PATIENCE);
    expect(&done, &never, 2, &["greater than 0"]);
    // What cannot be kept is said, and done if it keeps somebody out.
    let kept = rig.path("state/targets/e2e/access.json");
    let obstacle = kept.with_extension("json.new");
    fs::create_dir(&obstacle).unwrap();
    let said = ["not after a restart", "access.json"];
    wrong(&["deny", DISK, "alpha"], 1, &said);
    wrong(&["evict", DISK, "beta"], 1, &said);
    assert_eq!(listed(&rig)["denied"], json!(["alpha", "beta"]));
    wrong(&["allow", DISK, "alpha"], 1, &["access.json"]);
    assert_eq!(listed(&rig)["denied"], json!(["alpha", "beta"]));
    fs::remove_dir(&obstacle).unwrap();
    export(&rig, &["deny", DISK, "alpha"]);
    assert!(fs::read_to_string(&kept).unwrap().contains("beta"), "the other is kept as well");
    target.kill();
    // Who is kept out is not let in because the record is damaged.
    fs::write(&kept, "{").unwrap();
    let fixed = ["serve", "--name", "e2e", "--config", &config];
    let args = [&fixed[..], &links].concat();
    refused(&rig, Side::Target, &args, 8, &["access.json", "tyche export deny"]);
    fs::remove_file(&kept).unwrap();
    // Without keys.
    let _target = rig.serve_on(&links, &["--export", &rig.export()]);
    wrong(&["deny", DISK, "alpha"], 3, &["no host `alpha`", "UUID"]);
    export(&rig, &["deny", DISK, uuid]);
    assert_eq!(listed(&rig)["denied"], json!([uuid]));
}

/// Each host that is refused is named once, with its address, the export and the reason.
#[test]
fn refused_hosts_are_in_the_log_of_the_target() {
    let rig = addressed(rig!(1500));
    let known = Configured::new(&rig, &["alpha", "beta"]);
    rig.file("disk.img", SIZE);
    let config = known.configure(&rig, "allow = [\"beta\"]");
    let links = ["--link", rig.cable.link(Side::Target), "--link", LINK];
    let target = rig.serve_on(&links, &["--config", &config]);
    let (stranger, key) = make_key(&rig, "stranger");
    let stranger = ["--key", &stranger, "--target-key", &known.target];
    connect_in_vain(&rig, &stranger, &["does not know the key", &key]);
    connect_in_vain(&rig, &known.keys("alpha"), &["alpha may not have disk"]);
    connect_in_vain(&rig, &[], &["only hosts with a key"]);
    let over_udp = [&["connect", DISK, "--link", LINK], &known.keys("alpha")[..]].concat();
    let done = finish(&mut rig.tyche(Side::Host, &over_udp), PATIENCE);
    expect(&done, &over_udp, 7, &["alpha may not have disk"]);
    let log = target.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("refused disk")).collect();
    println!("{log}");
    let [unknown, denied, bare, over_udp] = &lines[..] else { panic!("{log}") };
    let fingerprint = run(&mut rig.tyche(Side::Host, &["key", "fingerprint", &key]));
    let link = format!("link=\"{}\"", rig.cable.link(Side::Target));
    for (line, parts) in [
        (unknown, [fingerprint.trim(), "does not let this host in", &link]),
        (denied, ["host alpha", "does not let this host in", &link]),
        (bare, ["without a key", "takes only hosts with a key", &link]),
        (over_udp, ["host alpha", "link=\"udp:", "from=\"10."]),
    ] {
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
}

#[test]
fn a_silent_target_is_there_for_those_who_know_its_key() {
    let rig = rig!(1500);
    let known = Configured::new(&rig, &["alpha"]);
    rig.file("disk.img", SIZE);
    let config = known.configure(&rig, "");
    let target = rig.serve(&["--config", &config, "--silent"]);
    let link = rig.cable.link(Side::Host);
    let connect = |more: &[&str], code, said: &[&str]| {
        let args = [&["connect", DISK, "--link", link, "--timeout", "1"], more].concat();
        expect(&finish(&mut rig.tyche(Side::Host, &args), PATIENCE), &args, code, said);
    };
    connect(&[], 6, &["no target is heard"]);
    let (other, public) = make_key(&rig, "other");
    connect(&["--key", &other, "--target-key", &public], 6, &["no target is heard"]);
    let discover = ["discover", "--link", link];
    assert_eq!(rig.ask(&discover)["exports"], json!([]), "nobody answers");
    let found = rig.ask(&[&discover[..], &["--target-key", &known.target]].concat());
    assert_eq!(found["exports"][0]["export"], DISK);
    // One who does not know the host's key knows that of the target.
    connect(&["--key", &other, "--target-key", &known.target], 7, &["does not know the key"]);
    let session = rig.connect_as("fuse", &known.keys("alpha"));
    let load = Load::start(&session.device);
    let before = target.process.id();
    target.kill();
    let target = rig.serve(&["--config", &config, "--silent"]);
    assert_ne!(target.pid(), before);
    load.await_progress();
    load.finish();
    session.disconnect();
    target.kill();
    for (more, said) in [
        (&["--auth", "optional"][..], "without a key would get no answer"),
        (&["--fcoe", rig.cable.link(Side::Target)], "answer everybody"),
    ] {
        let args = [&["serve", "--config", &config, "--silent"], more].concat();
        refused(&rig, Side::Target, &args, 8, &["`silent`", said]);
    }
    let fcoe = ["--fcoe", rig.cable.link(Side::Target)];
    let args = [&["serve", "--config", &config], &fcoe[..]].concat();
    refused(&rig, Side::Target, &args, 8, &["FCoE, which has no keys", "initiators"]);
    let args = ["serve", "--export", &rig.export(), "--silent"];
    refused(&rig, Side::Target, &args, 8, &["`silent`", "tyche key generate"]);
}

/// The kernel gives what it says of a process to its user if the user may look into it.
#[test]
fn nobody_but_root_looks_into_a_program_with_a_key() {
    let rig = rig!();
    let (key, _) = make_key(&rig, "key");
    let user = 65534;
    for path in [&key, rig.path("").to_str().unwrap()] {
        chown(path, Some(user), None).unwrap();
    }
    let owner = |more: &[&str], core_dumps: &str| {
        let id = user.to_string();
        let reuid = ["--reuid", &id, "--clear-groups", env!("CARGO_BIN_EXE_tyche")];
        let serve =
            ["serve", "--name", "e2e", "--link", "tcp:127.0.0.1:0", "--export", "a=null:1M"];
        let args = [&reuid[..], &serve, more].concat();
        let mut command = rig.at(Side::Target, Path::new("setpriv"), &args);
        command.env("TYCHE_CORE_DUMPS", core_dumps).stdout(Stdio::piped());
        let mut target = Running::start(&mut command);
        assert!(target.line().starts_with("tyche: serving "));
        let environment = fs::metadata(format!("/proc/{}/environ", target.id())).unwrap();
        environment.uid()
    };
    assert_eq!(owner(&[], ""), user);
    assert_eq!(owner(&["--key", &key], ""), 0);
    assert_eq!(owner(&["--key", &key], "1"), user);
}
