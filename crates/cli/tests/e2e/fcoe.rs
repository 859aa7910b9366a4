//! Fibre Channel over Ethernet between two of ours: discovery, disks, and messages about mistakes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::files::Files;
use crate::refusals::{expect, refused};
use crate::rig::{
    DISK, PATIENCE, Rig, Session, Side, Target, check_ext4, finish, rig, run, wait_until,
};

const SIZE: u64 = 256 << 20;
/// An MTU that operators set for FCoE.
pub(crate) const MTU: u32 = 2500;

/// Options of both ends by which losses are noticed soon.
const SOON: [&str; 2] = ["--e-d-tov", "0.1"];
/// The time that a link is down in a copy.
const DOWN: Duration = Duration::from_secs(5);

/// Serves [`DISK`] over FCoE, with more arguments.
pub(crate) fn serve(rig: &Rig, args: &[&str]) -> Target {
    let fcoe = ["--fcoe", rig.cable.link(Side::Target)];
    rig.serve_on(&fcoe, args)
}

/// The ports that the host finds.
fn discover(rig: &Rig) -> Vec<Value> {
    let link = rig.cable.link(Side::Host);
    let found = rig.ask(&["discover", "--fcoe", "--link", link]);
    found["ports"].as_array().unwrap().clone()
}

/// The WWPN of the only target, once it can be found.
pub(crate) fn await_target(rig: &Rig) -> String {
    let mut ports = Vec::new();
    wait_until("the target is found", || {
        ports = discover(rig);
        !ports.is_empty()
    });
    let [port] = &ports[..] else { panic!("{ports:?}") };
    assert_eq!((&port["target"], &port["initiator"]), (&true.into(), &false.into()));
    port["wwpn"].as_str().unwrap().to_owned()
}

/// Connects a disk of the target; returns its device.
fn connect(rig: &Rig, disk: &str, kind: &str, args: &[&str]) -> PathBuf {
    connect_session(rig, disk, kind, args).device
}

fn connect_session<'a>(rig: &'a Rig, disk: &str, kind: &str, args: &[&str]) -> Session<'a> {
    let fcoe = ["--fcoe", "--link", rig.cable.link(Side::Host), "--as", kind];
    rig.connect_disk(Side::Host, disk, &[&fcoe, args].concat())
}

/// Checks the files below the mount point and their file system, as another session sees them.
fn assert_kept(rig: &Rig, disk: &str, parts: &[(String, Files)]) {
    let device = connect(rig, disk, "loop", &["--read-only"]);
    let point = rig.mount(&device, "ro");
    for (dir, files) in parts {
        files.assert_intact(&point.join(dir));
    }
    rig.unmount();
    check_ext4(&device);
    rig.disconnect_all();
}

/// Writes the first block of a disk, past all caches of this machine; false if that fails.
fn write(rig: &Rig, device: &Path, byte: u8, how: &str) -> bool {
    let block = rig.path("block");
    fs::write(&block, vec![byte; 4096]).unwrap();
    let (from, to) = (format!("if={}", block.display()), format!("of={}", device.display()));
    let flags = ["bs=4096", "oflag=direct", how];
    finish(Command::new("dd").args([from, to]).args(flags), PATIENCE).success()
}

/// The first byte of a disk, past all caches.
fn first_byte(device: &Path) -> u8 {
    let from = format!("if={}", device.display());
    let args = [&from, "bs=4096", "count=1", "iflag=direct", "status=none"];
    let block = Command::new("dd").args(args).output().unwrap();
    assert!(block.status.success(), "{}", String::from_utf8_lossy(&block.stderr));
    block.stdout[0]
}

#[test]
fn a_file_system_is_the_same_after_both_ends_were_started_anew() {
    for mtu in [1500, MTU, 9000] {
        let rig = rig!(mtu);
        let disk = rig.file("disk.img", SIZE);
        let export = format!("{DISK}={}", disk.display());
        let target = serve(&rig, &["--export", &export]);
        let port = await_target(&rig);
        let device = connect(&rig, &port, "loop", &[]);
        run(Command::new("mkfs.ext4").arg("-q").arg(&device));
        let files = Files::new(mtu.into(), 24 << 20);
        files.write(&rig.mount(&device, "rw")).unwrap();
        rig.unmount();
        rig.disconnect_all();
        drop(target);
        let _target = serve(&rig, &["--export", &export]);
        assert_eq!(await_target(&rig), port, "the name follows from the interface");
        let device = connect(&rig, &format!("{port}:0"), "loop", &["--read-only"]);
        files.assert_intact(&rig.mount(&device, "ro"));
        rig.unmount();
        check_ext4(&device);
        let (session, target) = rig.stats();
        assert!(session["requests"]["reads"].as_u64().unwrap() > 0, "{session}");
        assert_eq!(session["requests"]["errors"], 0, "{session}");
        let fcoe = &target["fcoe"][0];
        assert!(fcoe["commands"].as_u64().unwrap() > 0, "{target}");
        assert_eq!(fcoe["initiators"].as_array().unwrap().len(), 1, "{target}");
        rig.disconnect_all();
    }
}

/// Copies files again and again until that fails; returns the error.
fn copy_until_it_fails(files: &Files, to: &Path) -> io::Error {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Err(error) = files.write(to) {
            return error;
        }
    }
    panic!("the copy does not fail");
}

/// Waits until a copy goes on.
fn await_writes(rig: &Rig) {
    let written = || rig.stats().0["requests"]["writes"].as_u64();
    let before = written();
    wait_until("something is written", || written() > before);
}

/// The target is killed in the copy of each part, which waits for it. Then the host's daemon is
/// killed, and with it the loop device, so the copy fails: another device of the disk has all that
/// was written before, and the copy of the part begins anew.
#[test]
fn a_copy_is_complete_after_each_end_was_killed_five_times() {
    let rig = rig!(MTU);
    rig.file("disk.img", SIZE);
    let serve = || serve(&rig, &[&SOON[..], &["--export", &rig.export()]].concat());
    let mut target = Some(serve());
    let port = await_target(&rig);
    let connect = || connect_session(&rig, &port, "loop", &SOON);
    let mut session = connect();
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let parts = [1, 2, 3, 4, 5].map(|seed| (seed.to_string(), Files::new(seed, 1 << 20)));
    for (dir, files) in &parts {
        // Each write goes to the disk at once, so that there are some whenever an end is killed.
        let copy = rig.mount(&session.device, "rw,sync,commit=1").join(dir);
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| copy_until_it_fails(files, &copy));
            await_writes(&rig);
            target.take().unwrap().kill();
            target = Some(serve());
            await_writes(&rig);
            session.kill();
            println!("part {dir}: {}", copying.join().unwrap());
        });
        rig.unmount();
        session = connect();
        files.write(&rig.mount(&session.device, "rw").join(dir)).unwrap();
        rig.unmount();
    }
    rig.disconnect_all();
    assert_kept(&rig, &port, &parts);
}

#[test]
fn a_copy_waits_for_a_link_that_is_down() {
    let rig = rig!(MTU);
    rig.file("disk.img", SIZE);
    let _target = serve(&rig, &[&SOON[..], &["--export", &rig.export()]].concat());
    let port = await_target(&rig);
    let device = connect(&rig, &port, "loop", &SOON);
    run(Command::new("mkfs.ext4").arg("-q").arg(&device));
    let files = Files::new(5, 4 << 20);
    let far = rig.cable.link(Side::Target);
    files.write_disturbed(&rig.mount(&device, "rw,sync"), 1, || {
        rig.cable.ip(Side::Target, &["link", "set", far, "down"]);
        std::thread::sleep(DOWN);
        rig.cable.ip(Side::Target, &["link", "set", far, "up"]);
    });
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    rig.unmount();
    rig.disconnect_all();
    assert_kept(&rig, &port, &[(String::new(), files)]);
}

#[test]
fn requests_wait_for_a_target_that_was_killed_and_none_is_lost() {
    let rig = rig!(MTU);
    rig.file("disk.img", SIZE);
    let target = serve(&rig, &["--export", &rig.export()]);
    let port = await_target(&rig);
    let device = connect(&rig, &port, "loop", &["--e-d-tov", "0.1"]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&device));
    let point = rig.mount(&device, "rw");
    let files = Files::new(1, 24 << 20);
    files.write(&point).unwrap();
    target.kill();
    let copy = std::thread::spawn(move || {
        fs::write(point.join("late"), vec![7; 4 << 20]).unwrap();
        run(Command::new("sync").arg("-f").arg(point.join("late")));
        point
    });
    let _target = serve(&rig, &["--export", &rig.export()]);
    let point = copy.join().unwrap();
    assert!(fs::read(point.join("late")).unwrap() == vec![7; 4 << 20]);
    files.assert_intact(&point);
    rig.unmount();
    check_ext4(&device);
}

/// Has the state of the target say that it is from before a boot of its machine.
fn reboot(rig: &Rig) {
    let path = rig.path("state/targets/e2e/exports/disk.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["boot"] = "5aa6a92e-2e06-4a8f-9d0f-6d8b1c8a4d11".into();
    // In place: a copy would be doubted.
    fs::write(&path, record.to_string()).unwrap();
}

#[test]
fn a_cache_that_was_lost_fails_one_flush_and_a_restart_none() {
    let rig = rig!(MTU);
    rig.file("disk.img", SIZE);
    let args = ["--write-back", "--export", &rig.export()];
    for queues in ["1", "2"] {
        let target = serve(&rig, &args);
        let port = await_target(&rig);
        let device = connect(&rig, &port, "fuse", &["--e-d-tov", "0.1", "--queues", queues]);
        let flush = || finish(Command::new("sync").arg(&device), PATIENCE).success();
        assert!(write(&rig, &device, 1, "conv=notrunc") && flush());
        assert!(write(&rig, &device, 2, "conv=notrunc"));
        target.kill();
        let target = serve(&rig, &args);
        assert!(flush(), "the kernel has what the process had written");
        assert!(write(&rig, &device, 3, "conv=notrunc"));
        target.kill();
        reboot(&rig);
        let _target = serve(&rig, &args);
        assert!(!flush(), "the last write may be lost");
        assert!(flush(), "it is known");
        assert!(write(&rig, &device, 4, "conv=notrunc,fsync"));
        rig.disconnect_all();
    }
}

#[test]
fn files_survive_a_target_that_is_killed_with_several_queues() {
    for (queues, threads) in [(2, "1"), (3, "4")] {
        let rig = rig!(MTU);
        rig.file("disk.img", SIZE);
        let args = ["--threads", threads, "--export", &rig.export()];
        let serve = || serve(&rig, &[&SOON[..], &args].concat());
        let mut target = Some(serve());
        let port = await_target(&rig);
        let args = ["--queues", &queues.to_string(), SOON[0], SOON[1]];
        let device = connect(&rig, &port, "loop", &args);
        assert_eq!(rig.stats().0["queues"], queues);
        run(Command::new("mkfs.ext4").arg("-q").arg(&device));
        let files = Files::new(queues, 24 << 20);
        files.write_disturbed(&rig.mount(&device, "rw"), 3, || {
            target.take().unwrap().kill();
            target = Some(serve());
        });
        assert_eq!(rig.stats().0["requests"]["errors"], 0);
        rig.unmount();
        rig.disconnect_all();
        assert_kept(&rig, &port, &[(String::new(), files)]);
    }
}

#[test]
fn lost_and_damaged_frames_do_no_harm() {
    let rig = rig!(MTU);
    rig.file("disk.img", SIZE);
    let fault = ["--fault", "drop=0.3%,corrupt=0.1%,seed=1"];
    let args = ["--e-d-tov", "0.05", "--threads", "2", "--export", &rig.export()];
    let _target = serve(&rig, &[&args[..], &fault].concat());
    let port = await_target(&rig);
    let device = connect(&rig, &port, "loop", &["--e-d-tov", "0.05", "--queues", "2"]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&device));
    let files = Files::new(3, 4 << 20);
    files.write(&rig.mount(&device, "rw")).unwrap();
    rig.unmount();
    files.assert_intact(&rig.mount(&device, "ro"));
    rig.unmount();
    check_ext4(&device);
    let (session, target) = rig.stats();
    let links = session["links"].as_array().unwrap();
    let repairs = ["fc_data_lost", "fc_not_arrived", "fc_answer_lost", "fc_aborts"];
    let repairs = repairs.iter().flat_map(|name| links.iter().map(|link| link[*name].as_u64()));
    let repairs: u64 = repairs.map(Option::unwrap).sum();
    assert!(repairs > 0, "{session}");
    assert!(target["fcoe"][0]["rejects"]["crc"].as_u64().unwrap() > 0, "{target}");
    assert_eq!(session["requests"]["errors"], 0, "{session}");
}

#[test]
fn a_second_initiator_may_read_and_not_write() {
    let rig = rig!(MTU);
    let _target = serve(&rig, &["--export", "disk=mem:16M"]);
    let port = await_target(&rig);
    let (first, second) =
        (connect(&rig, &port, "fuse", &[]), connect(&rig, &format!("{port}:0"), "fuse", &[]));
    let write = |device: &Path, byte: u8| write(&rig, device, byte, "conv=notrunc,fsync");
    assert!(write(&first, 1));
    assert!(!write(&second, 2), "the first has written");
    assert_eq!(first_byte(&second), 1);
    // Whoever leaves gives up the right.
    run(&mut rig.tyche(Side::Host, &["disconnect", &port]));
    wait_until("the second may write", || write(&second, 2));
}

#[test]
fn a_disk_is_measured_without_a_device() {
    let rig = rig!(MTU);
    let _target = serve(&rig, &["--export", "disk=mem:16M"]);
    let (port, link) = (await_target(&rig), rig.cable.link(Side::Host));
    let bench = ["bench", "--yes", "--fcoe", &port, "--link", link, "--runtime", "0.3"];
    for (rw, queues) in [("randread", 1), ("randwrite", 1), ("randread", 2), ("randwrite", 3)] {
        let load = ["--rw", rw, "--iodepth", "16", "--queues", &queues.to_string()];
        let result = rig.ask(&[&bench[..], &load].concat());
        assert!(result["iops"].as_f64().unwrap() > 0.0, "{result}");
        assert_eq!(result["jobs"], queues);
        // The command, two of data, and the answer; to write, also what asks for the data.
        let frames = result["frames_per_io"].as_f64().unwrap();
        assert!((3.9..5.5).contains(&frames), "{result}");
    }
    refused(&rig, Side::Host, &[&bench[..], &["--jobs", "2"]].concat(), 2, &["--jobs 1"]);
    refused(&rig, Side::Host, &[&bench[..], &["--queues", "17"]].concat(), 2, &["1 to 16 queues"]);
}

#[test]
fn disks_have_their_luns_for_good() {
    let rig = rig!(MTU);
    let [a, b] = ["a", "b"].map(|name| {
        let path = rig.file(&format!("{name}.img"), 1 << 20);
        fs::write(&path, name.repeat(1 << 20)).unwrap();
        format!("{name}={}", path.display())
    });
    let both = serve(&rig, &["--export", &a, "--export", &b]);
    let port = await_target(&rig);
    let first = |lun: &str| {
        let device = connect(&rig, &format!("{port}:{lun}"), "fuse", &["--read-only"]);
        let byte = first_byte(&device);
        rig.disconnect_all();
        byte
    };
    assert_eq!((first("0"), first("1")), (b'a', b'b'));
    drop(both);
    let _one = serve(&rig, &["--export", &b]);
    await_target(&rig);
    assert_eq!(first("1"), b'b');
    let link = rig.cable.link(Side::Host);
    let disk = format!("{port}:0");
    let absent = ["connect", "--fcoe", &disk, "--link", link];
    refused(&rig, Side::Host, &absent, 3, &["no such LUN", "there are: 1"]);
}

#[test]
fn discovery_shows_the_disks_that_this_machine_may_see() {
    let rig = rig!(MTU);
    let file = rig.file("disk.img", SIZE);
    let serve = |name: &str, exports: &str| {
        let config = rig.path(&format!("{name}.toml"));
        let port = format!("[[fcoe]]\nlink = \"{}\"\n", rig.cable.link(Side::Target));
        fs::write(&config, port + exports).unwrap();
        rig.serve_as(name, &[], &["--config", config.to_str().unwrap()])
    };
    let (own, other) = ("21:00:00:00:00:00:00:01", "21:00:00:00:00:00:00:02");
    let (a, b, c) = (
        format!("[[export]]\nname = \"a\"\npath = \"{}\"\nread_only = true\n", file.display()),
        format!("[[export]]\nname = \"b\"\npath = \"mem:16M\"\ninitiators = [\"{own}\"]\n"),
        format!("[[export]]\nname = \"c\"\npath = \"mem:32M\"\ninitiators = [\"{other}\"]\n"),
    );
    let _one = serve("one", &(a + &b));
    let port = await_target(&rig);
    let _two = serve("two", &c);
    let link = rig.cable.link(Side::Host);
    let args = ["discover", "--fcoe", "--link", link, "--wwpn", own];
    let mut ports = Vec::new();
    wait_until("both are found", || {
        ports = rig.ask(&args)["ports"].as_array().unwrap().clone();
        ports.len() == 2
    });
    let one = ports.iter().find(|it| it["wwpn"] == port.as_str()).unwrap();
    let two = ports.iter().find(|it| it["wwpn"] != port.as_str()).unwrap();
    let luns = one["luns"].as_array().unwrap();
    let properties = |lun: usize, name: &str| luns[lun]["properties"][name].clone();
    assert_eq!((luns.len(), &one["problem"]), (2, &Value::Null), "{one}");
    assert_eq!(luns[1]["disk"], format!("{port}:1"));
    assert_eq!([0, 1].map(|lun| properties(lun, "size").as_u64().unwrap()), [SIZE, 16 << 20]);
    assert_eq!([0, 1].map(|lun| properties(lun, "read_only").as_bool().unwrap()), [true, false]);
    let targets = rig.ask(&["list"])["targets"].clone();
    let target = targets.as_array().unwrap().iter().find(|it| it["name"] == "one").unwrap();
    let uuids = [0, 1].map(|export| target["exports"][export]["uuid"].clone());
    assert_eq!([0, 1].map(|lun| properties(lun, "uuid")), uuids);
    assert_eq!(two["luns"].as_array().map(Vec::len), Some(0), "{two}");
    assert!(two["problem"].as_str().unwrap().contains("access list"), "{two}");
    let text = run(&mut rig.tyche(Side::Host, &args));
    println!("{text}");
    for part in [&format!("{port}:0"), "256.0 MiB", "read-only", "read-write", "access list"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Nobody stays logged in.
    let stats = rig.ask(&["stats", "one"]);
    assert_eq!(stats["targets"][0]["fcoe"][0]["initiators"], Value::Array(Vec::new()), "{stats}");
}

#[test]
fn a_port_that_is_evicted_has_no_disk_until_it_is_allowed() {
    let rig = rig!(MTU);
    let link = rig.cable.link(Side::Target);
    let config = rig.path("target.toml");
    let links = format!("threads = 2\nlink = [\"{link}\"]\n[[fcoe]]\nlink = \"{link}\"\n");
    let export =
        |name: &str| format!("[[export]]\nname = \"{name}\"\npath = \"mem:16M\"\nshared = true\n");
    fs::write(&config, links + &export("a") + &export("b")).unwrap();
    let target = rig.serve_on(&[], &["--config", config.to_str().unwrap()]);
    let port = await_target(&rig);
    let [ours, other] = ["21:00:00:00:00:00:00:01", "21:00:00:00:00:00:00:02"];
    let soon = [SOON[0], SOON[1], "--wwpn"];
    let [first, second] = [(ours, ":0"), (other, ":1")].map(|(wwpn, lun)| {
        connect(&rig, &format!("{port}{lun}"), "fuse", &[&soon[..], &[wwpn]].concat())
    });
    let write = |device: &Path| write(&rig, device, 1, "conv=notrunc,fsync");
    assert!(write(&first) && write(&second));
    let export = |args: &[&str]| run(&mut rig.tyche(Side::Target, &[&["export"], args].concat()));
    let said = export(&["evict", "a", ours]);
    assert!(said.contains(&format!("{ours} may not have a; nothing of it is left")), "{said}");
    assert!(!write(&first) && write(&second), "it is about one port at one export");
    assert_eq!(rig.stats().1["exports"][0]["denied"], Value::from(vec![ours]));
    export(&["allow", "a", ours]);
    wait_until("it has the disk again", || write(&first));
    // A host may be any of the ports.
    let host = "7a26e711-2233-4455-a677-8899aabbccdd";
    for change in ["deny", "evict"] {
        let again = format!("`tyche export {change} b WWPN`");
        let args = ["export", change, "b", host];
        refused(&rig, Side::Target, &args, 9, &["ports of FCoE may have it", &again]);
    }
    assert!(write(&second));
    // SIGHUP does not change what a command has decided.
    export(&["deny", "b", other]);
    target.process.signal(Signal::HUP);
    wait_until("it is read", || target.log().contains("who may connect was read again"));
    assert!(!write(&second));
    rig.disconnect_all();
}

/// Its record of LUNs is damaged, so that it could not be served anew.
#[test]
fn an_export_that_could_not_be_served_otherwise_is_served_on() {
    let rig = rig!(MTU);
    let _target = serve(&rig, &["--export", "own=mem:1M"]);
    let export = |args: &[&str]| rig.ask_at(Side::Target, &[&["export"], args].concat());
    let path = rig.file("more.img", 1 << 20);
    export(&["add", &format!("more={}", path.display())]);
    let luns = rig.path("state/targets/e2e/luns.json");
    let kept = fs::read(&luns).unwrap();
    fs::write(&luns, "{").unwrap();
    let set = ["set", "more", "read_only=true"];
    refused(&rig, Side::Target, &[&["export"], &set[..]].concat(), 8, &["luns.json", "remove it"]);
    let is_read_only = || {
        let list = export(&["list"]);
        let exports = list["targets"][0]["exports"].as_array().unwrap();
        let more =
            exports.iter().find(|it| it["export"] == "more").map(|it| it["read_only"].clone());
        more.unwrap_or_default()
    };
    assert_eq!(is_read_only(), false, "it is served as before");
    fs::write(&luns, kept).unwrap();
    assert_eq!(export(&set)["changed"], true);
    assert_eq!(is_read_only(), true);
}

/// The way has two more interfaces, of a bridge at the host, whose MTU neither end knows.
#[test]
fn a_read_waits_for_a_way_that_takes_its_data() {
    let rig = rig!(MTU);
    let (cable, [inner, outer]) = (rig.cable.link(Side::Host), ["tye-in", "tye-out"]);
    let ip = |args: &[&str]| rig.cable.ip(Side::Host, args);
    let mtu = MTU.to_string();
    ip(&["link", "add", "name", "tye-br", "type", "bridge"]);
    ip(&["link", "add", "name", inner, "type", "veth", "peer", "name", outer]);
    for link in [inner, outer] {
        ip(&["link", "set", link, "mtu", &mtu]);
    }
    for link in [inner, cable] {
        ip(&["link", "set", link, "master", "tye-br"]);
    }
    for link in ["tye-br", inner, outer, cable] {
        ip(&["link", "set", link, "up"]);
    }
    let args = [&SOON[..], &["--export", "disk=mem:16M"]].concat();
    let _target = serve(&rig, &args);
    let discover = ["discover", "--fcoe", "--link", outer];
    let mut port = Value::Null;
    wait_until("the target is found", || {
        port = rig.ask(&discover)["ports"][0]["wwpn"].clone();
        port.is_string()
    });
    let port = port.as_str().unwrap();
    let args = ["--fcoe", "--link", outer, "--as", "fuse", SOON[0], SOON[1]];
    let device = rig.connect_disk(Side::Host, port, &args).device;
    assert!(write(&rig, &device, 7, "conv=notrunc,fsync"));
    ip(&["link", "set", inner, "mtu", "1500"]);
    let reading = std::thread::spawn(move || first_byte(&device));
    wait_until("the port begins anew", || rig.logs().contains("data have been lost for long"));
    wait_until("the target is lost", || rig.ask(&["list"])["sessions"][0]["state"] != "live");
    ip(&["link", "set", inner, "mtu", &mtu]);
    assert_eq!(reading.join().unwrap(), 7);
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    rig.disconnect_all();
}

#[test]
fn a_target_that_is_started_anew_has_its_former_n_port_id() {
    let rig = rig!(MTU);
    let first = serve(&rig, &["--export", "disk=mem:16M"]);
    let port = await_target(&rig);
    // Its N_Port_ID is the one that the name of the other target asks for.
    connect(&rig, &port, "fuse", &["--wwpn", "20:00:00:00:00:01:0b:0b"]);
    first.kill();
    let config = rig.path("target.toml");
    let link = rig.cable.link(Side::Target);
    let fcoe = format!("[[fcoe]]\nlink = \"{link}\"\nwwpn = \"20:00:00:00:00:00:0b:0b\"\n");
    fs::write(&config, fcoe + "[[export]]\nname = \"a\"\npath = \"mem:16M\"\n").unwrap();
    let serve = || {
        let target = rig.serve_on(&[], &["--config", config.to_str().unwrap()]);
        let mut id = Value::Null;
        wait_until("the target has an N_Port_ID", || {
            let stats = rig.ask(&["stats", "e2e"]);
            id = stats.pointer("/targets/0/fcoe/0/n_port_id").cloned().unwrap_or_default();
            !id.is_null()
        });
        (target, id)
    };
    let (target, former) = serve();
    assert_ne!(former, "000b0b", "another port has it");
    run(&mut rig.tyche(Side::Host, &["disconnect", "--all", "--force"]));
    target.kill();
    assert_eq!(serve().1, former, "although that port is gone");
}

#[test]
fn a_target_says_on_which_vlans_fcoe_is_spoken() {
    let rig = rig!(MTU);
    let (link, far) = (rig.cable.link(Side::Host), rig.cable.link(Side::Target));
    let vlans = [format!("{far}:100"), format!("{far}:200")];
    let told = ["--fcoe-vlan", &vlans[0], "--fcoe-vlan", &vlans[1]];
    let _target = serve(&rig, &[&told[..], &["--export", "disk=mem:1M"]].concat());
    await_target(&rig);
    let found = rig.ask(&["discover", "--fcoe", "--link", link]);
    let told: Vec<_> = found["vlans"].as_array().unwrap().iter().map(|it| &it["vid"]).collect();
    assert_eq!(told, [100, 200]);
    let words = rig.tyche(Side::Host, &["discover", "--fcoe", "--link", link]).output().unwrap();
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    let way = format!("ip link add link {link} name {link}.100 type vlan id 100");
    assert!(words.contains(&way), "{words}");
    let tag = format!("{far}:4095");
    let wrong = ["serve", "--fcoe", far, "--fcoe-vlan", &tag, "--export", "disk=mem:1M"];
    refused(&rig, Side::Target, &wrong, 2, &[&tag, "1 to 4094"]);
}

#[test]
fn mistakes_are_named_with_their_remedy() {
    let rig = rig!(1500);
    let (link, far) = (rig.cable.link(Side::Host), rig.cable.link(Side::Target));
    let nobody = ["discover", "--fcoe", "--link", link];
    let mtu = format!("ip link set {link} mtu 2500");
    let told = [link, "tyche serve --fcoe", "1452 bytes", &mtu];
    expect(&finish(&mut rig.tyche(Side::Host, &nobody), PATIENCE), &nobody, 3, &told);
    assert!(discover(&rig).is_empty());
    let ip = ["discover", "--fcoe", "--link", "udp:"];
    refused(&rig, Side::Host, &ip, 2, &["udp:", "Ethernet"]);
    let malformed = ["connect", "--fcoe", "disk", "--link", link];
    refused(&rig, Side::Host, &malformed, 2, &["disk", "16 hexadecimal digits"]);
    let port = "20:00:00:00:00:00:00:01";
    refused(&rig, Side::Host, &["connect", "--fcoe", port], 2, &["--link"]);
    let absent = ["connect", "--fcoe", port, "--link", link, "--timeout", "2"];
    refused(&rig, Side::Host, &absent, 6, &[port, "not heard", "tyche discover --fcoe"]);
    let both = ["serve", "--link", far, "--fcoe", far, "--export", "disk=mem:1M", "--name", "x"];
    refused(&rig, Side::Target, &both, 2, &["one writer", "shared"]);
    let absent = ["serve", "--fcoe", "eth77", "--export", "disk=mem:1M", "--name", "x"];
    refused(&rig, Side::Target, &absent, 3, &["eth77", far]);
}
