//! Other stations on the wire: a second target on the same interface, and hosts with this host's
//! identity.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tyche_native::InlineHost;
use tyche_proto::ChannelChoice;
use tyche_proto::wire::{Kind, Mac};

use crate::load::{LOAD_SIZE, Load};
use crate::refusals::expect;
use crate::rig::{
    DISK, PATIENCE, Rig, Side, Stranger, Target, await_done, finish, rig, run, submit, wait_until,
};

/// Time limit for a session to return after its target was restarted beside another.
const RESTART_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a rebooted host to connect.
const REBOOT_LIMIT: Duration = Duration::from_secs(1);
/// Rounds in which a link is deleted while a write is late on it.
const ROUNDS: u8 = 50;
/// Bytes of a block that is written late, and number of blocks.
const BLOCK: u32 = 4096;
const BLOCKS: u64 = 8;

/// The export of a target as the host discovers it, by the names of both.
fn discovered(rig: &Rig, target: &str, export: &str) -> Value {
    let link = rig.cable.link(Side::Host);
    let found = rig.ask(&["discover", "--link", link, "--timeout", "0.5"]);
    let mut exports = found["exports"].as_array().unwrap().iter();
    let is_it = |it: &&Value| it["target_name"] == target && it["export"] == export;
    exports.find(is_it).unwrap_or_else(|| panic!("{found}")).clone()
}

/// Serves two new files as `disk` and `only-NAME`.
fn serve(rig: &Rig, name: &str) -> Target {
    let export = |export: &str| {
        let path = rig.path(&format!("{name}-{export}.img"));
        if !path.exists() {
            File::create(&path).unwrap().set_len(LOAD_SIZE).unwrap();
        }
        format!("{export}={}", path.display())
    };
    let (disk, only) = (export(DISK), export(&format!("only-{name}")));
    let link = ["--link", rig.cable.link(Side::Target)];
    rig.serve_as(name, &link, &["--export", &disk, "--export", &only])
}

fn connect_command(rig: &Rig, export: &str, kind: &str) -> Command {
    let link = rig.cable.link(Side::Host);
    rig.tyche(Side::Host, &["connect", export, "--link", link, "--as", kind, "-o", "json"])
}

/// Connects an export; returns the output of `connect`.
fn connect(rig: &Rig, export: &str) -> Value {
    let done = finish(&mut connect_command(rig, export, "fuse"), PATIENCE);
    assert!(done.success(), "{export}: {}\n{}", done.stderr, rig.logs());
    serde_json::from_str(&done.stdout).unwrap()
}

fn open(session: &Value) -> File {
    let device = session["device"].as_str().unwrap();
    File::options().read(true).write(true).open(device).unwrap()
}

#[test]
fn two_targets_on_one_interface_are_told_apart() {
    let rig = rig!(1500);
    let _targets = [serve(&rig, "a"), serve(&rig, "b")];
    for name in ["a", "b"] {
        let found = discovered(&rig, name, DISK);
        let (target, export) = (found["target"].as_str().unwrap(), found["uuid"].as_str().unwrap());
        let of_target = format!("{target}/{DISK}");
        for wanted in [&format!("only-{name}"), &format!("{name}/{DISK}"), &of_target, export] {
            let session = connect(&rig, wanted);
            assert_eq!(session["disk"]["target"], target, "{wanted}: {session}");
            let listed = &rig.ask(&["list"])["sessions"][0];
            assert_eq!(listed["state"], "live", "{listed}");
            assert_eq!(listed["disk"]["target"], target, "{listed}");
            rig.disconnect_all();
        }
    }
    let args = ["connect", DISK];
    let done = finish(&mut connect_command(&rig, DISK, "fuse"), PATIENCE);
    expect(&done, &args, 2, &["two targets offer it: ", " a (", " b (", "name the one you mean"]);
}

#[test]
fn a_target_is_restarted_beside_another() {
    let rig = rig!(1500);
    let (_a, mut b) = (serve(&rig, "a"), serve(&rig, "b"));
    let sessions = ["a/disk", "b/disk"].map(|export| connect(&rig, export));
    let load = Load::start(sessions[0]["device"].as_str().unwrap().as_ref());
    let file = open(&sessions[1]);
    for round in 1..=3 {
        file.write_all_at(&[round; 4096], 0).unwrap();
        b.kill();
        b = serve(&rig, "b");
        let began = Instant::now();
        let mut found = [0; 4096];
        file.read_exact_at(&mut found, 0).unwrap();
        let took = began.elapsed();
        println!("restart {round}: live again after {took:?}");
        assert_eq!(found, [round; 4096]);
        assert!(took < RESTART_LIMIT, "{took:?}");
    }
    load.await_progress();
    load.finish();
    for session in rig.ask(&["list"])["sessions"].as_array().unwrap() {
        assert_eq!(session["state"], "live", "{session}");
    }
    let lost = rig.logs().matches("channel lost").count();
    assert_eq!(lost, 3, "the other session was disturbed: {}", rig.logs());
}

/// Number of channels of a target on one of its links.
fn channels(rig: &Rig, target: &str, link: &str) -> usize {
    let list = rig.ask(&["list"]);
    let targets = list["targets"].as_array().unwrap();
    let target = targets.iter().find(|it| it["name"] == target).unwrap();
    let mut links = target["links"].as_array().unwrap().iter();
    let link = links.find(|it| it["interface"] == link).unwrap();
    link["channels"].as_array().unwrap().len()
}

/// Submits a write of every block.
fn write(host: &mut InlineHost, fill: u8) {
    (0..BLOCKS).for_each(|n| submit(host, n * u64::from(BLOCK), BLOCK, Some(fill)));
}

/// Writes go over two links; the frames of one are late. That link is deleted, and its writes are
/// reissued over the other, which a second target hears. All blocks are written once more; then the
/// late frames arrive.
#[test]
fn a_write_that_is_late_on_a_deleted_link_does_not_come_back() {
    let rig = rig!();
    let ends = [(Side::Target, "tye-t0"), (Side::Host, "tye-h0"), (Side::Host, "tye-s")];
    rig.cable.lay_hub("hub", &ends);
    rig.cable.add(&[("tye-t1", "tye-h1")], 1500);
    let faults = ["--export", "disk=sparse:16M", "--fault", "tye-t1:drop=2%"];
    let _target = rig.serve_as("a", &["--link", "tye-t0", "--link", "tye-t1"], &faults);
    let _other = rig.serve_as("b", &["--link", "tye-t1"], &["--export", "other=mem:1M"]);
    let mut stranger = Stranger::new(&rig.cable, "tye-s");
    let mut host = rig.inline_host(&["tye-h0", "tye-h1"], |session| {
        session.choice = ChannelChoice::RoundRobin;
        // The pause for a link that is lost repeatedly grows to 32 times this delay.
        session.reconnect_delay = Duration::from_millis(5);
    });
    let (began, mut late_writes) = (Instant::now(), 0);
    for round in 0..ROUNDS {
        await_links(&mut host, 2);
        let late = late_frames(&rig, &mut host, &mut stranger, 2 * round + 1);
        // The writes were reissued and answered: by now the late frames must have lost their
        // channel.
        late_writes += await_done(&mut host, late.pending).len();
        assert_eq!(channels(&rig, "a", "tye-t0"), 0, "round {round}: answered without a fence");
        write(&mut host, 2 * round + 2);
        await_done(&mut host, BLOCKS as usize);
        rig.cable.mend(Side::Target);
        stranger.send(&late.frames);
        rig.cable.plug_in("hub", Side::Host, "tye-h0");
        // The target receives these reads after the late frames on that link.
        await_links(&mut host, 2);
        (0..BLOCKS).for_each(|n| submit(&mut host, n * u64::from(BLOCK), BLOCK, None));
        for done in await_done(&mut host, BLOCKS as usize) {
            let found = done.buffer.unwrap();
            assert!(found.iter().all(|&byte| byte == 2 * round + 2), "round {round}: {}", found[0]);
        }
    }
    println!("{late_writes} writes were late in {ROUNDS} rounds, {:?}", began.elapsed());
    host.disconnect(PATIENCE);
}

/// Drives the session until it has `count` live links.
fn await_links(host: &mut InlineHost, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while host.report().links.iter().filter(|link| link.live).count() != count {
        assert!(Instant::now() < deadline, "{:?}", host.report().links);
        host.wait(&mut Vec::new(), Duration::from_millis(5));
    }
}

/// Frames that did not reach the target.
struct Late {
    frames: Vec<Vec<u8>>,
    /// Number of writes that they belong to.
    pending: usize,
}

/// Writes all blocks while the host's frames on the first link are held back, and deletes that
/// link.
fn late_frames(rig: &Rig, host: &mut InlineHost, stranger: &mut Stranger, fill: u8) -> Late {
    stranger.hear(|_| {});
    rig.cable.cut(Side::Target, &["tye-t0"]);
    let mac = Mac::parse(&rig.cable.mac(Side::Host, "tye-h0")).unwrap();
    write(host, fill);
    let (mut done, mut frames, mut data) = (Vec::new(), Vec::new(), 0);
    let deadline = Instant::now() + PATIENCE;
    // Each link carries half of the blocks.
    while done.len() < BLOCKS as usize / 2 || data < BLOCKS as usize / 2 * BLOCK as usize {
        assert!(Instant::now() < deadline, "{} done, {data} bytes heard", done.len());
        host.wait(&mut done, Duration::from_millis(1));
        stranger.hear(|heard| {
            if heard.source() == mac && heard.header.kind.on_channel() {
                let is_data = heard.header.kind == Kind::Data;
                data += if is_data { heard.header.data_len as usize } else { 0 };
                frames.push(heard.bytes());
            }
        });
    }
    rig.cable.ip(Side::Host, &["link", "del", "tye-h0"]);
    assert!(done.iter().all(|it| it.result.is_ok()), "{done:?}");
    Late { frames, pending: BLOCKS as usize - done.len() }
}

/// A `connect` with this host's identity and another run-time directory, as on a clone of this
/// machine.
fn connect_elsewhere(rig: &Rig, directory: &str) -> Command {
    let mut command = connect_command(rig, DISK, "nbd-socket");
    command.env("TYCHE_RUNTIME_DIR", rig.path(directory));
    command
}

#[test]
fn another_name_of_a_connected_export_is_no_reason_to_change_the_machine() {
    let rig = rig!(1500);
    let _target = rig.serve_file(LOAD_SIZE);
    let found = rig.ask(&["discover", "--link", rig.cable.link(Side::Host)]);
    let uuid = found["exports"][0]["uuid"].as_str().unwrap().to_owned();
    let names = [DISK, "e2e/disk", &uuid];
    for name in names {
        let session = connect(&rig, name);
        for other in names.iter().filter(|other| **other != name) {
            let done = finish(&mut connect_command(&rig, other, "nbd-socket"), PATIENCE);
            let device = session["device"].as_str().unwrap();
            expect(&done, &["connect", other], 10, &["connected already", device, name]);
            assert!(!done.stderr.contains("machine-id"), "{}", done.stderr);
        }
        run(&mut rig.tyche(Side::Host, &["disconnect", name]));
    }
}

#[test]
fn a_cloned_host_is_told_what_it_is_and_a_rebooted_one_is_back_at_once() {
    let rig = rig!(1500);
    let target = rig.serve_file(LOAD_SIZE);
    let session = rig.connect_as("fuse", &[]);
    let load = Load::start(&session.device);
    let done = finish(&mut connect_elsewhere(&rig, "clone"), PATIENCE);
    expect(&done, &["connect", DISK], 7, &["same identity", "/etc/machine-id"]);
    load.await_progress();
    load.finish();
    let (host, _) = rig.stats();
    assert_eq!((&host["state"], &host["requests"]["errors"]), (&"live".into(), &0.into()));
    assert!(!rig.logs().contains("lost"), "{}", rig.logs());
    session.disconnect();

    let mut times = Vec::new();
    for life in ["life1", "life2", "life3", "life4"] {
        let began = Instant::now();
        let done = finish(&mut connect_elsewhere(&rig, life), PATIENCE);
        assert!(done.success(), "{}\n{}", done.stderr, target.log());
        times.push(began.elapsed());
        let session: Value = serde_json::from_str(&done.stdout).unwrap();
        let pid = session["pid"].as_i64().unwrap();
        Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        wait_until("the daemon is gone", || {
            !std::path::Path::new(&format!("/proc/{pid}")).exists()
        });
    }
    println!("connected after {times:?}; the first found no former life");
    // The machine is never idle: the shortest time bounds the protocol's wait.
    assert!(times[1..].iter().min().unwrap() < &REBOOT_LIMIT, "{times:?}");
}
