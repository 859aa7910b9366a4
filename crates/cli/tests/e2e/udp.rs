//! Sessions over UDP: through a cable, with addresses at both ends, and beside other links.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tyche_testkit::random::Random;

use crate::files::Files;
use crate::refusals::{expect, refused};
use crate::rig::{
    DATAGRAMS, FRAMES, PATIENCE, Rig, Running, Session, Side, Target, check_ext4, finish, rig, run,
    wait_until,
};

const SIZE: u64 = 256 << 20;
/// Bytes of a request: below the length from which the file needs aligned buffers.
const PART: usize = 256 << 10;
/// Time limit for fio, which moves some ten megabytes in small pieces over a bad network.
const FIO_LIMIT: Duration = Duration::from_secs(120);
const HOST: &str = "10.8.0.2/24";
const TARGET: &str = "10.8.0.1/24";
pub(crate) const LINK: &str = "udp:10.8.0.1";
/// The same address over TCP.
pub(crate) const OVER_TCP: &str = "tcp:10.8.0.1";
/// The name of the link, as it is reported.
const PLACE: &str = "udp:10.8.0.1:8650";

/// A rig whose cable has addresses of IP.
pub(crate) fn addressed(rig: Rig) -> Rig {
    for (side, address) in [(Side::Target, TARGET), (Side::Host, HOST)] {
        rig.cable.ip(side, &["address", "add", address, "dev", rig.cable.link(side)]);
    }
    rig
}

fn serve(rig: &Rig, args: &[&str]) -> Target {
    if !rig.path("disk.img").exists() {
        rig.file("disk.img", SIZE);
    }
    rig.serve_on(&["--link", LINK], &[&["--export", &rig.export()], args].concat())
}

fn connect<'r>(rig: &'r Rig, args: &[&str]) -> Session<'r> {
    rig.connect_over(Side::Host, &[&["--as", "loop", "--link", LINK], args].concat())
}

/// Serves and connects the disk over frames and over UDP. Its file has no cache in front of it.
fn serve_and_connect(rig: &Rig) -> (Target, Session<'_>) {
    rig.file("disk.img", SIZE);
    let links = |side| ["--link", rig.cable.link(side), "--link", LINK];
    let target = rig.serve_on(&links(Side::Target), &["--export", &rig.export()]);
    let connect = [&["--as", "fuse"][..], &links(Side::Host)].concat();
    (target, rig.connect_over(Side::Host, &connect))
}

/// The counter of that name, of the only session and of the only target.
fn counters(rig: &Rig, name: &str) -> [u64; 2] {
    let (session, target) = rig.stats();
    [session, target].map(|of: Value| {
        of["links"].as_array().unwrap().iter().map(|link| link[name].as_u64().unwrap()).sum()
    })
}

#[test]
fn files_survive_loss_and_a_target_that_is_killed() {
    for mtu in [9000, 1500] {
        let rig = addressed(rig!(mtu));
        rig.cable.lose(DATAGRAMS, 100);
        let mut target = Some(serve(&rig, &[]));
        let session = connect(&rig, &["--queues", "2"]);
        assert_eq!(session.value["links"][0]["interface"], PLACE);
        assert_eq!(session.value["links"][0]["frame_len"], mtu - 28);
        run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
        let point = rig.mount(&session.device, "rw");
        let files = Files::new(u64::from(mtu), 96 << 20);
        files.write(&point).unwrap();
        target.take().unwrap().kill();
        let _target = serve(&rig, &[]);
        rig.unmount();
        let [host, there] = counters(&rig, "udp_trains_sent");
        assert!(host > 0 && there > 0);
        assert_eq!(counters(&rig, "udp_uncut"), [0, 0]);
        assert_eq!(rig.stats().0["requests"]["errors"], 0);
        session.disconnect();
        let session = connect(&rig, &["--read-only"]);
        files.assert_intact(&rig.mount(&session.device, "ro"));
        rig.unmount();
        check_ext4(&session.device);
        session.disconnect();
    }
}

#[test]
fn threads_of_a_target_share_its_port_with_nobody_else() {
    let rig = addressed(rig!(9000));
    let _target = serve(&rig, &["--threads", "3"]);
    let second = ["serve", "--link", LINK, "--export", "a=mem:1M", "--name", "second"];
    refused(&rig, Side::Target, &second, 5, &["cannot listen", "choose another port"]);
}

#[test]
fn a_session_over_frames_and_udp_outlives_either() {
    let rig = addressed(rig!(9000));
    let (_target, session) = serve_and_connect(&rig);
    let device = File::options().read(true).write(true).open(&session.device).unwrap();
    let mut random = Random(5);
    let mut data = vec![0; PART];
    let live = || -> usize {
        let links = rig.ask(&["list"])["sessions"][0]["links"].clone();
        links.as_array().unwrap().iter().filter(|it| it["live"] == true).count()
    };
    wait_until("both links have a channel", || live() == 2);
    for (round, cut) in [FRAMES, DATAGRAMS].into_iter().enumerate() {
        rig.cable.drop_all(Side::Host, &[rig.cable.link(Side::Host)], cut);
        let mut back = vec![0; data.len()];
        for at in 0..64 {
            let offset = (round as u64 * 64 + at) * PART as u64;
            random.fill(&mut data);
            device.write_all_at(&data, offset).unwrap();
            device.read_exact_at(&mut back, offset).unwrap();
            assert!(back == data, "round {round}, part {at}");
        }
        wait_until("the cut link is given up", || live() == 1);
        rig.cable.mend(Side::Host);
        wait_until("the link is used again", || live() == 2);
    }
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    drop(device);
    session.disconnect();
}

#[test]
fn stats_say_which_kind_of_link_a_backlog_takes() {
    let rig = addressed(rig!(9000));
    let (_target, session) = serve_and_connect(&rig);
    let favoured = || rig.stats().0["favoured"].clone();
    wait_until("both links have a channel", || favoured() == json!({"untried": 1}));
    let mut fio = Command::new("fio");
    fio.args(["--name=backlog", "--ioengine=psync", "--rw=randread", "--bs=128k", "--thread"]);
    fio.args(["--numjobs=16", "--size=64M", "--time_based", "--runtime=120"]);
    fio.arg("--filename").arg(&session.device).stdout(Stdio::null());
    let load = Running::start(&mut fio);
    wait_until("each has been tried", || {
        ["all", "ethernet", "udp"].iter().any(|kind| favoured() == json!({ *kind: 1 }))
    });
    drop(load);
    let text = run(&mut rig.tyche(Side::Host, &["stats", "disk"]));
    assert!(text.contains("  favoured     "), "{text}");
    let (_, kind) = text.split_once("  favoured     ").unwrap();
    let kind = kind.split_whitespace().next().unwrap();
    let known = favoured();
    assert!(known[kind] == 1, "{known}: {text}");
    rig.ask(&["link", "del", "disk", PLACE]);
    wait_until("one link is left", || favoured() == json!({}));
    session.disconnect();
}

/// A router lets longer datagrams to the host through no more, with a report, and those from it,
/// without one.
#[test]
fn a_path_that_shrinks_goes_on_with_shorter_frames() {
    let rig = rig!(9000);
    rig.cable.insert_router(9000);
    let _target = serve(&rig, &[]);
    let session = rig.connect_over(Side::Host, &["--as", "fuse", "--link", LINK]);
    assert_eq!(session.value["links"][0]["frame_len"], 9000 - 28);
    let device = File::options().read(true).write(true).open(&session.device).unwrap();
    let mut random = Random(6);
    let (mut data, mut back) = (vec![0; PART], vec![0; PART]);
    for part in 0..64 {
        if part == 8 {
            rig.cable.narrow_router(Side::Host, 1500);
        }
        random.fill(&mut data);
        device.write_all_at(&data, part * PART as u64).unwrap();
        device.read_exact_at(&mut back, part * PART as u64).unwrap();
        assert!(back == data, "part {part}");
    }
    let list = rig.ask(&["list"]);
    let found = list["sessions"][0]["links"][0]["frame_len"].as_u64().unwrap();
    assert!((1024..=1500 - 28).contains(&found), "{list}");
    assert_eq!(rig.stats().0["requests"]["errors"], 0);
    drop(device);
    session.disconnect();
}

/// Writes of random sizes are read back while links lose, repeat and delay frames.
#[test]
fn fio_verifies_random_sizes_at_depth_64_over_a_bad_network() {
    let rig = addressed(rig!(1500));
    let fault = "drop=1%,duplicate=1%,reorder=2%,seed=8";
    let _target = serve(&rig, &["--fault", fault]);
    let session = connect(&rig, &["--fault", fault]);
    let mut fio = Command::new("fio");
    fio.args(["--name=verify", "--ioengine=libaio", "--direct=1", "--rw=randwrite"]);
    fio.args(["--bsrange=512-256k", "--iodepth=64", "--size=64M", "--randseed=9"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    fio.args(["--output-format=terse"]).arg("--filename").arg(&session.device);
    let done = finish(fio.current_dir(rig.path("")), FIO_LIMIT);
    assert!(done.success(), "{}{}", done.stdout, done.stderr);
    let (stats, _) = rig.stats();
    assert_eq!(stats["requests"]["errors"], 0);
    for fault in ["fault_dropped", "fault_duplicated", "fault_reordered"] {
        assert!(counters(&rig, fault).iter().all(|&count| count > 0), "{fault}");
    }
    session.disconnect();
}

#[test]
fn a_firewall_is_one_of_the_remedies() {
    let rig = addressed(rig!(1500));
    let target = serve(&rig, &[]);
    let args = ["connect", "disk", "--timeout", "2", "--link", LINK];
    let chain = "add table inet wall; add chain inet wall here { type filter hook input \
                 priority 0; }; add rule inet wall here udp dport 8650 drop";
    rig.cable.end(Side::Target).nft(chain);
    refused(&rig, Side::Host, &args, 6, &[LINK, "`tyche serve` listens", "firewall"]);
    target.kill();
}

#[test]
fn a_firewall_of_this_machine_is_named() {
    let rig = addressed(rig!(1500));
    let _target = serve(&rig, &[]);
    let chain = "add table inet wall; add chain inet wall here { type filter hook output \
                 priority 0; }; add rule inet wall here udp dport 8650 drop";
    rig.cable.end(Side::Host).nft(chain);
    let told = ["the firewall of this machine refuses datagrams to", PLACE, "allow UDP port 8650"];
    for command in [&["connect", "disk"][..], &["bench", "disk"]] {
        let args = [command, &["--timeout", "2", "--link", LINK]].concat();
        refused(&rig, Side::Host, &args, 6, &told);
    }
    // Beside a link on which there is just nobody.
    let other = rig.cable.link(Side::Host);
    let args = ["connect", "disk", "--timeout", "2", "--link", LINK, "--link", other];
    let told = [&told[..], &["no target is heard on", other]].concat();
    refused(&rig, Side::Host, &args, 6, &told);
    let args = ["discover", "--link", LINK];
    expect(&finish(&mut rig.tyche(Side::Host, &args), PATIENCE), &args, 3, &told[..3]);
    rig.cable.end(Side::Host).nft("delete table inet wall");
    connect(&rig, &[]).disconnect();
}

#[test]
fn places_that_cannot_work_are_named() {
    let rig = addressed(rig!(1500));
    let connect = |link| ["connect", "disk", "--timeout", "2", "--link", link];
    refused(&rig, Side::Host, &connect(LINK), 6, &["nobody listens at", PLACE, "tyche serve"]);
    refused(&rig, Side::Host, &connect("udp:10.8.0.1:0"), 2, &["no number", "udp:HOST:PORT"]);
    refused(&rig, Side::Host, &connect("udp:fe80::1"), 2, &["brackets"]);
    refused(&rig, Side::Host, &connect("udp:192.0.2.1"), 6, &["192.0.2.1", "no route"]);
    let nowhere = ["serve", "--link", "udp:192.0.2.1", "--export", "a=mem:1M", "--name", "b"];
    refused(&rig, Side::Target, &nowhere, 5, &["192.0.2.1", "does not have that address"]);
}

#[test]
fn a_target_is_discovered_at_its_address() {
    let rig = addressed(rig!(1500));
    let _target = serve(&rig, &[]);
    let found = rig.ask(&["discover", "--link", LINK, "--timeout", "0.2"]);
    assert_eq!(found["exports"][0]["export"], "disk", "{found}");
    assert_eq!(found["exports"][0]["interface"], PLACE, "{found}");
    let done = finish(&mut rig.tyche(Side::Host, &["discover", "--link", LINK]), PATIENCE);
    assert!(done.success() && done.stdout.contains("disk"), "{}", done.stdout);
}
