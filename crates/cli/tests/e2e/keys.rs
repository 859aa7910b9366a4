//! Keys: who may connect is proved, and frames are sealed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tyche_proto::wire::{Checksum, HEAD_LEN, Kind, Mac};

use crate::files::Files;
use crate::load::Load;
use crate::refusals::expect;
use crate::rig::{DISK, PATIENCE, Rig, Side, Stranger, Target, finish, rig, run, wait_until};
use crate::trust::know;
use crate::udp::{LINK, addressed};

const SIZE: u64 = 1 << 30;

/// The keys of a target and of a host, made as a user makes them.
pub(crate) struct Keys {
    pub(crate) target: String,
    pub(crate) host: String,
    /// Arguments of `serve` and of `connect`.
    serve: Vec<String>,
    connect: Vec<String>,
}

impl Keys {
    pub(crate) fn new(rig: &Rig) -> Self {
        let [target, host] = ["target.key", "host.key"].map(|name| make(rig, name));
        let file = |name| rig.path(name).display().to_string();
        let serve =
            ["--key", &file("target.key"), "--host", &format!("alpha={host}")].map(str::to_owned);
        let connect = ["--key", &file("host.key"), "--target-key", &target].map(str::to_owned);
        Self { serve: serve.into(), connect: connect.into(), target, host }
    }

    pub(crate) fn serve(&self, rig: &Rig, more: &[&str]) -> Target {
        self.serve_on(rig, &["--link", rig.cable.link(Side::Target)], more)
    }

    pub(crate) fn serve_on(&self, rig: &Rig, links: &[&str], more: &[&str]) -> Target {
        let args = self.serve.iter().map(String::as_str).chain(more.iter().copied());
        rig.serve_on(links, &args.collect::<Vec<_>>())
    }

    pub(crate) fn connect(&self) -> Vec<&str> {
        self.connect.iter().map(String::as_str).collect()
    }
}

/// Makes a key in that file; returns its public part.
pub(crate) fn make(rig: &Rig, name: &str) -> String {
    let file = rig.path(name).display().to_string();
    let text = run(&mut rig.tyche(Side::Host, &["key", "generate", &file]));
    assert_eq!(run(&mut rig.tyche(Side::Host, &["key", "show", &file])), text);
    text.trim().to_owned()
}

pub(crate) fn make_file_system(rig: &Rig, device: &std::path::Path) -> std::path::PathBuf {
    run(Command::new("mkfs.ext4").arg("-q").arg(device));
    rig.mount(device, "rw")
}

#[test]
fn a_sealed_disk_outlives_its_target_and_loss() {
    let rig = rig!(9000);
    let keys = Keys::new(&rig);
    rig.file("disk.img", SIZE);
    let serve = |fault: &str| keys.serve(&rig, &["--export", &rig.export(), "--fault", fault]);
    let mut target = Some(serve("drop=0.5%,duplicate=0.5%,reorder=0.5%"));
    let session = rig.connect(&[&keys.connect()[..], &["--queues", "2"]].concat());
    let point = make_file_system(&rig, &session.device);
    let files = Files::new(4, 96 << 20);
    files.write_disturbed(&point, 1, || {
        target.take().unwrap().kill();
        wait_until("the loss is noticed", || rig.ask(&["list"])["sessions"][0]["state"] == "lost");
        target = Some(serve("drop=0.5%,duplicate=0.5%,reorder=0.5%"));
    });
    let (session_stats, target_stats) = rig.stats();
    assert_eq!(session_stats["requests"]["errors"], 0);
    assert!(session_stats["cipher"].as_str().unwrap().contains('-'), "{session_stats}");
    let known = &target_stats["exports"][0]["sessions"][0];
    assert_eq!((&known["host_name"], &known["key"]), (&"alpha".into(), &keys.host.clone().into()));
    rig.unmount();
    session.disconnect();
    rig.assert_kept(&files, &keys.connect());
}

#[test]
fn a_sealed_disk_is_one_over_short_frames_and_datagrams_too() {
    for over_udp in [false, true] {
        let rig = addressed(rig!(1500));
        let keys = Keys::new(&rig);
        rig.file("disk.img", SIZE);
        let ends = [Side::Target, Side::Host].map(|side| rig.cable.link(side));
        let [target, host] = if over_udp { [LINK; 2] } else { ends };
        let _target = keys.serve_on(&rig, &["--link", target], &["--export", &rig.export()]);
        let session = rig.connect_over(
            Side::Host,
            &[&["--as", "fuse", "--link", host][..], &keys.connect()].concat(),
        );
        let load = Load::start(&session.device);
        load.await_progress();
        load.finish();
        session.disconnect();
    }
}

/// Each mistake with its exit code, and what its message says.
#[test]
fn a_mistake_is_told_and_nobody_gets_in() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    rig.file("disk.img", SIZE);
    let target = keys.serve(&rig, &["--export", &rig.export()]);
    let stranger = make(&rig, "stranger.key");
    let file = |name: &str| rig.path(name).display().to_string();
    let open = file("open.key");
    fs::copy(rig.path("host.key"), &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let (host, other) = (file("host.key"), file("stranger.key"));
    let secret = fs::read_to_string(&host).unwrap().trim().to_owned();
    let (ours, theirs) = (&keys.target[..], &stranger[..]);
    let cases: [(&[&str], i32, &[&str]); 7] = [
        (&[], 7, &["only hosts with a key", "tyche key generate"]),
        (&["--key", &other, "--target-key", ours], 7, &["does not know the key", theirs]),
        (&["--key", &host, "--target-key", theirs], 6, &["tyche key show", "--target-key"]),
        (&["--key", &open, "--target-key", ours], 8, &["chmod 600", "open.key"]),
        (&["--key", "/nowhere", "--target-key", ours], 3, &["/nowhere"]),
        (&["--key", &host, "--target-key", "tyche_x"], 2, &["43 letters"]),
        (&["--key", &host, "--target-key", &secret], 2, &["that is a secret key"]),
    ];
    for (more, code, said) in cases {
        let link = rig.cable.link(Side::Host);
        let fixed = ["connect", DISK, "--link", link, "--timeout", "3"];
        let args = [&fixed, more].concat();
        expect(&finish(&mut rig.tyche(Side::Host, &args), PATIENCE), &args, code, said);
    }
    assert_eq!(rig.ask(&["list"])["targets"][0]["exports"][0]["sessions"], serde_json::json!([]));
    let refusals = &rig.ask(&["stats"])["targets"][0]["links"][0]["refusals"];
    assert!(refusals["key_required"].as_u64() >= Some(1), "{refusals}");
    assert!(refusals["denied"].as_u64() >= Some(1), "{refusals}");
    target.kill();
    let args = ["serve", "--export", &rig.export(), "--host", &format!("alpha={}", keys.host)];
    let done = finish(&mut rig.tyche(Side::Target, &args), PATIENCE);
    expect(&done, &args, 8, &["this target has no key", "tyche key generate"]);
    let own = format!("alpha={}", keys.target);
    let args = ["serve", "--export", &rig.export(), "--key", &file("target.key"), "--host", &own];
    let done = finish(&mut rig.tyche(Side::Target, &args), PATIENCE);
    expect(&done, &args, 8, &["alpha has the key of this target", "tyche key show"]);
    // A host with keys stays away from a target without one, and says why.
    let _target = rig.serve_again();
    let link = rig.cable.link(Side::Host);
    let args = [&["connect", DISK, "--link", link, "--timeout", "3"][..], &keys.connect()].concat();
    let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
    expect(&done, &args, 6, &["says that it has no key"]);
}

pub(crate) fn hang_up(target: &Target) {
    let pid = Pid::from_raw(target.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}

/// Keys are exchanged without a pause, and one that is taken away ends its session.
#[test]
fn keys_change_while_disks_are_connected() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    let next = make(&rig, "next.key");
    rig.file("disk.img", SIZE);
    let config = rig.path("target.toml");
    let write = |hosts: &str| {
        let text = format!(
            "key = {:?}\n{hosts}[[export]]\nname = {DISK:?}\npath = {:?}\n",
            rig.path("target.key"),
            rig.path("disk.img")
        );
        fs::write(&config, text).unwrap();
    };
    let host = |keys: &[&str]| format!("[[host]]\nname = \"alpha\"\nkey = {keys:?}\n");
    write(&host(&[&keys.host]));
    let target = rig.serve(&["--config", config.to_str().unwrap()]);
    let session = rig.connect_as("fuse", &keys.connect());
    let load = Load::start(&session.device);
    load.await_progress();
    write(&host(&[&keys.host, &next]));
    hang_up(&target);
    load.await_progress();
    load.finish();
    session.disconnect();
    let file = rig.path("next.key").display().to_string();
    let session = rig.connect(&["--key", &file, "--target-key", &keys.target]);
    assert_eq!(rig.ask(&["list"])["sessions"][0]["state"], "live");
    write(&host(&[&keys.host]));
    hang_up(&target);
    wait_until("the session ends", || {
        let listed = rig.ask(&["list"])["sessions"][0].clone();
        let problem = listed["problem"].as_str().unwrap_or_default();
        problem.contains("does not let this host in")
    });
    target.await_log("may not connect any more");
    session.disconnect_by_force();
    let link = rig.cable.link(Side::Host);
    let again = ["connect", DISK, "--link", link, "--key", &file, "--target-key", &keys.target];
    let done = finish(&mut rig.tyche(Side::Host, &again), PATIENCE);
    expect(&done, &again, 7, &["does not know the key", &next]);
}

/// The target's key is changed under load: the host is told the next key, keeps it, and knows the
/// target by it when the former one is gone.
#[test]
fn the_key_of_a_target_changes_while_a_disk_is_in_use() {
    let rig = rig!(1500);
    let keys = Keys::new(&rig);
    let next = make(&rig, "next.key");
    rig.file("disk.img", SIZE);
    let config = rig.path("target.toml");
    let write = |files: &[&str]| {
        let files: Vec<_> = files.iter().map(|file| rig.path(file)).collect();
        let text = format!(
            "key = {files:?}\n[[host]]\nname = \"alpha\"\nkey = {:?}\n[[export]]\nname = \
             {DISK:?}\npath = {:?}\n",
            keys.host,
            rig.path("disk.img")
        );
        fs::write(&config, text).unwrap();
    };
    write(&["target.key"]);
    let target = rig.serve(&["--config", config.to_str().unwrap()]);
    let link = rig.cable.link(Side::Host);
    let found = rig.ask(&["discover", "--link", link])["exports"][0].clone();
    know(&rig, &keys.target, found["target"].as_str().unwrap().parse().unwrap());
    let key = rig.path("host.key").display().to_string();
    let named = format!("e2e/{DISK}");
    let args = ["--as", "fuse", "--link", link, "--key", &key];
    let session = rig.connect_disk(Side::Host, &named, &args);
    let load = Load::start(&session.device);
    load.await_progress();
    // Without the host being told, it would be left behind.
    write(&["next.key"]);
    hang_up(&target);
    target.await_log("give both first");
    write(&["target.key", "next.key"]);
    hang_up(&target);
    wait_until("the host keeps the next key", || {
        fs::read_to_string(rig.path("known-targets")).unwrap().starts_with(&next)
    });
    load.await_progress();
    write(&["next.key"]);
    hang_up(&target);
    target.await_log("this key alone");
    load.await_progress();
    load.finish();
    assert_eq!(rig.ask(&["list"])["sessions"][0]["state"], "live");
    session.disconnect();
    rig.connect_disk(Side::Host, &named, &args).disconnect();
}

/// Somebody on the segment repeats every frame that he has heard, as it was and with a bit changed.
#[test]
fn whoever_overhears_a_sealed_session_can_only_watch() {
    let rig = rig!(alone);
    let ends = [(Side::Target, "tye-t0"), (Side::Host, "tye-h0"), (Side::Host, "tye-s0")];
    rig.cable.lay_hub("hub", &ends);
    let keys = Keys::new(&rig);
    rig.file("disk.img", SIZE);
    let _target = keys.serve_on(&rig, &["--link", "tye-t0"], &["--export", &rig.export()]);
    let mut stranger = Stranger::new(&rig.cable, "tye-s0");
    let link = &["--as", "fuse", "--link", "tye-h0"][..];
    let session = rig.connect_over(Side::Host, &[link, &keys.connect()].concat());
    let load = Load::start(&session.device);
    let (mut heard, mut clear) = (Vec::new(), 0);
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        let mut round = Vec::new();
        stranger.hear(|frame| {
            if Mac::source(frame.head) != Mac([0; 6]) && frame.header.kind != Kind::Discover {
                round.push(frame.bytes());
            }
            clear += usize::from(frame.header.kind.on_channel() && frame.header.payload_crc != 0);
        });
        for (number, frame) in round.iter().enumerate() {
            stranger.send(std::slice::from_ref(frame));
            stranger.send(&[changed(frame, number)]);
        }
        heard.extend(round);
        stranger.wait(Duration::from_millis(10));
    }
    load.await_progress();
    load.finish();
    assert!(heard.len() > 1000, "{} frames were heard", heard.len());
    assert_eq!(clear, 0, "frames of the channel are sealed");
    // What was heard long ago, once more.
    heard.chunks(64).for_each(|frames| stranger.send(frames));
    let (session_stats, target_stats) = rig.stats();
    let rejects = &target_stats["links"][0]["rejects"];
    for reason in ["forged", "replayed"] {
        println!("{reason}: {}", rejects[reason]);
        assert!(rejects[reason].as_u64() > Some(100), "{reason}: {target_stats}");
    }
    assert_eq!(session_stats["requests"]["errors"], 0);
    assert_eq!(rig.ask(&["list"])["sessions"][0]["state"], "live");
    session.disconnect();
}

/// A frame with another bit changed each time, and the right checksum of its header.
fn changed(frame: &[u8], number: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let bit = number * 13 % ((frame.len() - 14) * 8);
    frame[14 + bit / 8] ^= 1 << (bit % 8);
    let crc = Checksum::of(&frame[14..HEAD_LEN - 4]);
    frame[HEAD_LEN - 4..HEAD_LEN].copy_from_slice(&crc.to_le_bytes());
    frame
}
