//! `tyche bench`, `tyche-lab floor` and `tyche-lab crowd`: their results, and their errors.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::refusals::{expect, refused};
use crate::rig::{DISK, Done, PATIENCE, Rig, Side, Target, finish, rig, wait_until};

const TCP: &str = "tcp:127.0.0.1:8650";
/// A short run that only has to finish.
const SHORT: [&str; 2] = ["--runtime", "0.2"];

/// Serves a small disk in memory, shared or not, on the cable and over TCP.
fn serve(rig: &Rig, shared: bool) -> Target {
    let config = rig.path("target.toml");
    let export = format!("[[export]]\nname = \"{DISK}\"\npath = \"mem:16M\"\nshared = {shared}\n");
    fs::write(&config, export).unwrap();
    rig.cable.ip(Side::Target, &["link", "set", "lo", "up"]);
    rig.serve(&["--link", TCP, "--config", config.to_str().unwrap()])
}

/// Arguments of a `tyche bench` on the cable that may write, with `args` added.
fn bench<'a>(rig: &Rig, args: &[&'a str]) -> Vec<&'a str> {
    [&["bench", DISK, "--yes", "--link", rig.cable.link(Side::Host)], args].concat()
}

/// Arguments of a `tyche-lab floor` on the cable, with `args` added.
fn floor<'a>(rig: &Rig, args: &[&'a str]) -> Vec<&'a str> {
    [&["floor", DISK, "--yes", "--link", rig.cable.link(Side::Host)], args].concat()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn check(result: &Value, block: f64, jobs: u64) {
    println!("{result}");
    let has_floor = result["floor"].is_object();
    assert_eq!(result["schema"], if has_floor { "tyche.floor/1" } else { "tyche.bench/1" });
    assert_eq!(result["jobs"].as_u64(), Some(jobs));
    assert!(number(&result["iops"]) > 0.0);
    let moved = number(&result["iops"]) * block;
    assert!((number(&result["bytes_per_s"]) / moved - 1.0).abs() < 1e-6);
    let latencies = ["p50", "p99", "p999"].map(|name| number(&result["lat_ns"][name]));
    assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{latencies:?}");
    assert!(number(&result["lat_ns"]["mean"]) > 0.0);
    assert!(number(&result["cpu_s"]) >= 0.0 && number(&result["runtime_s"]) >= 0.2);
}

fn check_floor(result: &Value) {
    let floor = &result["floor"];
    for name in ["round_trip_ns", "exchange_per_s", "stream_bytes_per_s", "bytes_ratio"] {
        assert!(number(&floor[name]) > 0.0, "{name}: {floor}");
    }
    let ratio = number(&result["iops"]) / number(&floor["exchange_per_s"]);
    assert!((number(&floor["iops_ratio"]) / ratio - 1.0).abs() < 1e-6, "{floor}");
}

#[test]
fn every_pattern_is_measured_and_the_floor_beside_it() {
    let rig = rig!(alone, 9000);
    let _target = serve(&rig, false);
    for rw in ["read", "write", "rw", "randread", "randwrite", "randrw"] {
        let args = ["--rw", rw, "--iodepth", "8"];
        let result = rig.ask(&floor(&rig, &[&args[..], &SHORT].concat()));
        check(&result, 4096.0, 1);
        check_floor(&result);
        assert_eq!((result["rw"].as_str(), result["iodepth"].as_u64()), (Some(rw), Some(8)));
        assert!(result["floor"]["latency_ratio"].is_null(), "requests wait for each other");
        assert!(number(&result["frames_per_io"]) <= 3.0, "{}", result["frames_per_io"]);
    }
    let result = rig.ask(&floor(&rig, &SHORT));
    assert!(number(&result["floor"]["latency_ratio"]) > 0.0, "{}", result["floor"]);
    let large = ["--rw", "write", "--bs", "1M", "--iodepth", "16"];
    let result = rig.ask(&floor(&rig, &[&large[..], &SHORT].concat()));
    check(&result, 1048576.0, 1);
    check_floor(&result);

    let target = &rig.ask(&["stats"])["targets"][0];
    let link = &target["links"][0];
    println!("{link}");
    assert!(number(&link["requests"]) > 0.0 && number(&link["frames_per_io"]) > 0.0);
    assert!(number(&link["channel"]["retransmitted_share"]) >= 0.0);
    assert_eq!(
        (link["malformed_short"].as_u64(), link["malformed_long"].as_u64()),
        (Some(0), Some(0))
    );
    assert_eq!(
        target["links"][1]["connections_refused"].as_u64(),
        Some(0),
        "{}",
        target["links"][1]
    );
}

#[test]
fn the_floor_of_tcp_and_of_short_frames() {
    let rig = rig!(1500);
    let _target = serve(&rig, false);
    let args = ["floor", DISK, "--yes", "--link", TCP, "--rw", "randrw", "--iodepth", "4"];
    let result = rig.ask_at(Side::Target, &[&args[..], &SHORT].concat());
    check(&result, 4096.0, 1);
    check_floor(&result);
    let result = rig.ask(&floor(&rig, &[&["--rw", "write"][..], &SHORT].concat()));
    check_floor(&result);
}

#[test]
fn jobs_share_what_may_be_shared() {
    let rig = rig!(alone, 9000);
    let target = serve(&rig, false);
    let jobs = ["--jobs", "3", "--iodepth", "4"];
    let reading = [&jobs[..], &SHORT].concat();
    let result = rig.ask(&floor(&rig, &reading));
    check(&result, 4096.0, 3);
    check_floor(&result);
    let per_io = number(&result["frames_per_io"]);
    assert!(per_io <= 3.0, "{per_io} frames: those of the other jobs are not counted");
    let writing = [&jobs[..], &["--rw", "randwrite"], &SHORT].concat();
    let parts = ["one writer at a time", "3 jobs", "--iodepth", "shared = true"];
    refused(&rig, Side::Host, &bench(&rig, &writing), 7, &parts);
    target.kill();
    let _target = serve(&rig, true);
    check(&rig.ask(&bench(&rig, &writing)), 4096.0, 3);
}

#[test]
fn reading_leaves_a_session_alone_and_writing_is_refused() {
    let rig = rig!(9000);
    let _target = serve(&rig, false);
    let session = rig.connect_as("fuse", &[]);
    check(&rig.ask(&bench(&rig, &SHORT)), 4096.0, 1);
    assert_eq!(rig.stats().0["state"], "live");
    let writing = bench(&rig, &["--rw", "write"]);
    refused(
        &rig,
        Side::Host,
        &writing,
        10,
        &["connected already", session.device.to_str().unwrap()],
    );
    assert_eq!(rig.stats().0["state"], "live");
    session.disconnect();
}

#[test]
fn nothing_is_overwritten_without_consent() {
    let rig = rig!(1500);
    let target = rig.serve_file(1 << 20);
    let before = fs::read(rig.path("disk.img")).unwrap();
    let link = rig.cable.link(Side::Host);
    for rw in ["write", "rw", "randwrite", "randrw"] {
        let parts = [&format!("--rw {rw} overwrites"), DISK, "--yes"];
        refused(&rig, Side::Host, &["bench", DISK, "--link", link, "--rw", rw], 2, &parts);
    }
    assert!(fs::read(rig.path("disk.img")).unwrap() == before);
    drop(target);
}

#[test]
fn what_cannot_be_measured_is_named() {
    let rig = rig!(1500);
    let export = ["--export", "small=mem:512k", "--export", "disk=mem:16M", "--block-size", "4096"];
    let target = rig.serve(&export);
    let link = rig.cable.link(Side::Host);
    for args in [
        ["--bs", "0"],
        ["--bs", "1000"],
        ["--bs", "2M"],
        ["--bs", "much"],
        ["--iodepth", "0"],
        ["--iodepth", "1025"],
        ["--jobs", "0"],
        ["--jobs", "65"],
        ["--runtime", "0"],
        ["--runtime", "inf"],
        ["--rwmix", "101"],
        ["--rw", "erase"],
    ] {
        let args = bench(&rig, &args);
        let done = finish(&mut rig.tyche(Side::Host, &args), PATIENCE);
        expect(&done, &args, 2, &["invalid value", args[args.len() - 1]]);
    }
    let args = bench(&rig, &["--bs", "512"]);
    refused(&rig, Side::Host, &args, 2, &["--bs 512", DISK, "blocks of 4096"]);
    let args = ["bench", "small", "--link", link, "--bs", "1M"];
    refused(&rig, Side::Host, &args, 2, &["--bs 1048576", "small", "512.0 KiB"]);
    let args = ["bench", "nothing", "--link", link, "--timeout", "1"];
    refused(&rig, Side::Host, &args, 3, &["nothing", DISK, "small"]);
    target.kill();
    let args = bench(&rig, &["--timeout", "1", "--jobs", "2"]);
    refused(&rig, Side::Host, &args, 6, &["within 1 s", "tyche serve"]);
    let _target = rig.serve(&[&export[..], &["--read-only"]].concat());
    refused(&rig, Side::Host, &bench(&rig, &["--rw", "write"]), 7, &["read-only", "randread"]);
}

/// Measures without end, and runs `incident` on the target once the measurement has begun.
fn interrupted(rig: &Rig, target: Target, args: &[&str], incident: fn(Target)) -> (Done, Duration) {
    let endless = [args, &["--runtime", "100000", "--jobs", "2", "--iodepth", "4"]].concat();
    let mut command = rig.tyche(Side::Host, &bench(rig, &endless));
    thread::scope(|scope| {
        let running = scope.spawn(move || finish(&mut command, PATIENCE));
        wait_until("requests are answered", || {
            let target = &rig.ask(&["stats"])["targets"][0];
            target["links"][0]["requests"].as_u64().is_some_and(|count| count > 1000)
        });
        incident(target);
        let began = Instant::now();
        (running.join().unwrap(), began.elapsed())
    })
}

#[test]
fn a_target_that_dies_ends_the_measurement() {
    let rig = rig!(9000);
    let args = ["--keep-alive-tmo", "1"];
    let (done, took) = interrupted(&rig, serve(&rig, false), &args, Target::kill);
    expect(&done, &args, 6, &["lost while measuring", "nothing is heard"]);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_target_that_stops_ends_the_measurement() {
    let rig = rig!(9000);
    let stop = |mut target: Target| {
        target.process.signal(Signal::TERM);
        target.process.end();
    };
    let (done, took) = interrupted(&rig, serve(&rig, false), &[], stop);
    expect(&done, &[], 6, &["lost while measuring", "the target ended the connection"]);
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_crowd_says_when_all_are_connected_and_what_the_busy_ones_do() {
    let rig = rig!(9000);
    let _target = serve(&rig, false);
    let crowd = ["crowd", DISK, "--link", rig.cable.link(Side::Host), "-o", "json"];
    let numbers = ["--sessions", "6", "--busy", "2", "--iodepth", "4", "--runtime", "1"];
    let done = finish(&mut rig.tyche(Side::Host, &[&crowd[..], &numbers].concat()), PATIENCE);
    assert!(done.success(), "{}", done.stderr);
    // The comparison looks at the target from then on.
    assert!(done.stderr.contains("6 sessions are connected"), "{}", done.stderr);
    let result: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&result["schema"], &result["sessions"]), (&"tyche.crowd/1".into(), &6.into()));
    let [slowest, fastest] = [0, 1].map(|at| number(&result["range"][at]));
    assert!(slowest > 0.0 && slowest <= fastest, "{result}");
    let sum = number(&result["iops"]);
    assert!((slowest + fastest - sum).abs() < 1e-6, "of two sessions: {result}");
    assert!(number(&result["connect_ms"][0]) <= number(&result["connect_ms"][1]), "{result}");
}
