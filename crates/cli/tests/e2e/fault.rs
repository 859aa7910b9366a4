//! `--fault`: links with injected faults, in each command that has links.

use serde_json::Value;

use crate::refusals::refused;
use crate::rig::{DISK, Rig, Side, rig};

/// A disk in memory.
const EXPORT: [&str; 2] = ["--export", "disk=mem:16M"];

/// The result of random reads at depth 1, with more arguments.
fn bench(rig: &Rig, args: &[&str]) -> Value {
    let link = rig.cable.link(Side::Host);
    let result = rig.ask(&[&["bench", DISK, "--link", link, "--runtime", "0.5"], args].concat());
    println!("{result}");
    result
}

/// A delayed frame can only be released by its own timer: at depth 1 nothing else happens on the
/// link.
#[test]
fn delayed_frames_are_on_time_on_an_idle_link() {
    let rig = rig!(alone, 9000);
    let with = |fault: &'static str| [&EXPORT[..], &["--fault", fault]].concat();
    for (target, host) in [
        ("delay=0ms", "delay=5ms"),
        ("delay=5ms", "delay=0ms"),
        ("delay=5ms,side=send", "delay=5ms,side=send"),
        ("delay=5ms,side=receive", "delay=5ms,side=receive"),
    ] {
        let running = rig.serve(&with(target));
        let result = bench(&rig, &["--fault", host]);
        let median_ms = result["lat_ns"]["p50"].as_f64().unwrap() / 1e6;
        // A later time would be no proof: retransmission timers would explain it. The median is the
        // lower end of its histogram class, which is 3 % wide.
        assert!((9.9..15.0).contains(&median_ms), "{target}, {host}: {median_ms} ms");
        running.kill();
    }
}

#[test]
fn lost_frames_are_counted_and_sent_again() {
    let rig = rig!(9000);
    let fault = format!("{}:drop=2%,seed=7", rig.cable.link(Side::Target));
    let _target = rig.serve(&[&EXPORT[..], &["--fault", &fault]].concat());
    let result = bench(&rig, &["--iodepth", "32"]);
    assert!(result["iops"].as_f64().unwrap() > 0.0);
    assert!(result["retransmitted"].as_u64().unwrap() > 0, "{result}");
    let stats = rig.ask(&["stats"]);
    let dropped = stats["targets"][0]["links"][0]["fault_dropped"].as_u64().unwrap();
    assert!(dropped > 0, "{stats}");
}

#[test]
fn faults_that_make_no_sense_are_refused() {
    let rig = rig!(9000);
    let link = rig.cable.link(Side::Host);
    let bench = |fault| ["bench", DISK, "--link", link, "--fault", fault];
    let parts = ["eth77", "not used", link];
    refused(&rig, Side::Host, &bench("eth77:drop=1%"), 2, &parts);
    let serve = ["serve", "--name", "e2e", "--link", rig.cable.link(Side::Target)];
    let serve = [&serve[..], &EXPORT, &["--fault", "eth77:drop=1%"]].concat();
    refused(&rig, Side::Target, &serve, 2, &["eth77", rig.cable.link(Side::Target)]);
}
