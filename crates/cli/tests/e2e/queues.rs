//! Sessions with several queues: each queue works like the only one.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fcoe;
use crate::files::Files;
use crate::rig::{Rig, Side, rig, run};
use crate::udp;

const SIZE: u64 = 1 << 30;
/// How often the target is killed.
const KILLS: usize = 10;

/// The channels of the only session in `list`.
fn channels(rig: &Rig) -> Vec<Value> {
    let links = rig.ask(&["list"])["sessions"][0]["links"].clone();
    links[0]["channels"].as_array().cloned().unwrap_or_default()
}

/// On each link, with as many threads at the target.
#[test]
fn files_survive_a_target_that_is_killed_ten_times() {
    for (link, queues) in [(None, 2), (Some(udp::LINK), 4), (Some(udp::OVER_TCP), 3)] {
        let rig = udp::addressed(rig!(9000));
        let number = queues.to_string();
        let own = |side| link.unwrap_or(rig.cable.link(side));
        let serve = || {
            let args = ["--export", &rig.export(), "--threads", &number];
            Some(rig.serve_on(&["--link", own(Side::Target)], &args))
        };
        rig.file("disk.img", SIZE);
        let mut target = serve();
        let at = (Side::Host, own(Side::Host));
        let session = rig.connect_at(at, "loop", &["--queues", &number]);
        assert_eq!(channels(&rig).len(), queues, "each queue has a channel");
        assert_eq!(rig.stats().0["queues"], queues);
        run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
        let point = rig.mount(&session.device, "rw");
        let files = Files::new(queues as u64, 96 << 20);
        files.write_disturbed(&point, KILLS, || {
            target.take().unwrap().kill();
            target = serve();
        });
        assert_eq!(rig.stats().0["requests"]["errors"], 0);
        rig.unmount();
        session.disconnect();

        target.take().unwrap().kill();
        let _target = rig.serve_again();
        rig.assert_kept(&files, &["--queues", "3"]);
    }
}

#[test]
fn requests_are_shown_by_thread() {
    let rig = rig!(9000);
    let _target = rig.serve(&["--export", "disk=mem:64M", "--threads", "2"]);
    let session = rig.connect_as("nbd-socket", &["--queues", "3"]);
    let numbers = |value: &Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
    };
    let load = ["--iodepth", "4", "--queues", "3", "--runtime", "0.5"];
    let link = rig.cable.link(Side::Host);
    rig.ask(&[&["bench", "disk", "--link", link], &load[..]].concat());
    let (host, target) = rig.stats();
    let (requests, link) = (&host["requests"], &target["links"][0]);
    assert_eq!(numbers(&requests["by_queue"]).len(), 3, "{requests}");
    let by_thread = numbers(&link["requests_by_thread"]);
    assert_eq!(by_thread.len(), 2, "{link}");
    assert!(by_thread.iter().all(|count| *count > 0), "the load has kept both busy: {link}");
    assert_eq!(Some(by_thread.iter().sum()), link["requests"].as_u64(), "{link}");
    let text = run(&mut rig.tyche(Side::Host, &["stats"]));
    assert_eq!(text.matches("requests by thread: ").count(), 2, "{text}");
    let all = run(&mut rig.tyche(Side::Host, &["stats", "-v"]));
    assert!(all.contains("requests queue 2") && all.contains("requests thread 1"), "{all}");
    session.disconnect();
}

/// Serves and connects over these links with as many threads as queues, and has them read for a
/// moment, and then for `seconds`: longer than a host takes to ask again what targets there are.
fn assert_queues_apart(rig: &Rig, listen: &str, link: &str, seconds: &str) {
    const QUEUES: usize = 3;
    let threads = ["--export", "disk=mem:64M", "--threads", "3"];
    let _target = rig.serve_on(&["--link", listen], &threads);
    let served = || rig.ask_at(Side::Target, &["stats"])["targets"][0]["links"][0].clone();
    let by_thread = || -> Vec<u64> {
        let counts = served()["requests_by_thread"].clone();
        counts.as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
    };
    // Where a session begins to count its queues is random.
    for runtime in ["0.3", "0.3", seconds] {
        let before = by_thread();
        let queues = ["--link", link, "--queues", "3", "--iodepth", "3", "--runtime", runtime];
        rig.ask(&[&["bench", "disk", "--rw", "randread"], &queues[..]].concat());
        let counts = by_thread().into_iter().zip(before).map(|(now, before)| now - before);
        let counts: Vec<_> = counts.collect();
        let busy = counts.iter().filter(|count| **count > 0).count();
        assert_eq!(busy, QUEUES, "{link}: {counts:?}");
    }
    let rejects = served()["rejects"].clone();
    for astray in ["channel", "cookie", "ticket"] {
        assert!(rejects[astray].is_null(), "{link}: frames have come to another thread: {rejects}");
    }
}

#[test]
fn each_queue_has_a_thread_of_the_target_for_itself() {
    let rig = udp::addressed(rig!(9000));
    for (side, address) in [(Side::Target, "fd08::1/64"), (Side::Host, "fd08::2/64")] {
        let link = rig.cable.link(side);
        rig.cable.ip(side, &["address", "add", address, "dev", link, "nodad"]);
    }
    let [target, host] = [Side::Target, Side::Host].map(|side| rig.cable.link(side).to_owned());
    assert_queues_apart(&rig, &target, &host, "0.3");
    assert_queues_apart(&rig, udp::LINK, udp::LINK, "6");
    assert_queues_apart(&rig, "udp:[fd08::1]", "udp:[fd08::1]", "6");
    assert_queues_apart(&rig, udp::OVER_TCP, udp::OVER_TCP, "0.3");
}

#[test]
fn a_load_runs_on_all_queues() {
    let rig = rig!(9000);
    let _target = rig.serve(&["--export", "disk=mem:64M"]);
    let link = rig.cable.link(Side::Host);
    let load = ["--queues", "3", "--iodepth", "4", "--rw", "randwrite", "--yes", "--runtime", "1"];
    let result = rig.ask(&[&["bench", "disk", "--link", link], &load[..]].concat());
    println!("{result}");
    assert!(result["iops"].as_f64().unwrap() > 0.0);
}

#[test]
fn each_queue_over_fcoe_has_a_thread_of_the_target_for_itself() {
    let rig = rig!(fcoe::MTU);
    // Seven are more than four, and fewer than eight.
    let target = fcoe::serve(&rig, &["--export", "disk=mem:16M", "--threads", "7"]);
    let (port, link) = (fcoe::await_target(&rig), rig.cable.link(Side::Host));
    let served = || rig.ask_at(Side::Target, &["stats"])["targets"][0]["fcoe"][0].clone();
    let by_thread = || -> Vec<u64> {
        let counts = served()["commands_by_thread"].clone();
        counts.as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
    };
    let bench = ["bench", "--yes", "--fcoe", &port, "--link", link, "--runtime", "0.3"];
    for (rw, queues) in [("randread", "4"), ("randwrite", "4"), ("randread", "1")] {
        let before = by_thread();
        rig.ask(&[&bench[..], &["--rw", rw, "--iodepth", "16", "--queues", queues]].concat());
        let counts = by_thread().into_iter().zip(before).map(|(now, before)| now - before);
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts.len(), 4, "{counts:?}");
        assert!(counts.iter().all(|it| *it > 0), "{rw}, {queues} queues: {counts:?}");
    }
    let stats = served();
    assert_eq!(Some(by_thread().iter().sum()), stats["commands"].as_u64(), "{stats}");
    for astray in ["stranger", "unknown", "unexpected"] {
        let count = stats["ignored"][astray].as_u64().unwrap_or(0);
        assert_eq!(count, 0, "frames have come to another thread: {stats}");
    }
    let names = fs::read_dir(format!("/proc/{}/task", target.pid())).unwrap();
    let names = names.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    let threads = names.filter(|name| name.starts_with("fcoe-")).count();
    assert_eq!(threads, 4);
    let text = run(&mut rig.tyche(Side::Target, &["stats"]));
    assert!(text.contains("commands by thread: "), "{text}");
}
