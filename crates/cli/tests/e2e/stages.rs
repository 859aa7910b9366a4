//! `tyche-lab bench --stages`: the stages add up to the whole time, and without the option nothing
//! is requested or reported.

use std::fs;

use serde_json::Value;

use crate::refusals::refused;
use crate::rig::{DISK, Rig, Side, rig};

/// Mean time of a stage, from the result of a bench.
fn mean(result: &Value, stage: &str) -> f64 {
    let rows = result["stages"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["stage"] == stage);
    row.unwrap_or_else(|| panic!("no {stage} in {result}"))["mean"].as_f64().unwrap()
}

/// Measures, and checks that the rows add up to the measured time.
fn measure(rig: &Rig, args: &[&str]) -> Value {
    let link = rig.cable.link(Side::Host);
    let fixed = ["bench", DISK, "--yes", "--link", link, "--runtime", "0.5", "--stages"];
    let result = rig.ask(&[&fixed, args].concat());
    assert_eq!(result["schema"], "tyche.stages/1");
    let rows = result["stages"]["rows"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| row["mean"].as_f64().unwrap()).sum();
    let measured = result["lat_ns"]["mean"].as_f64().unwrap();
    println!("{args:?}: {:.2} us in stages, {:.2} us measured", sum / 1e3, measured / 1e3);
    assert!((sum / measured - 1.0).abs() < 0.1, "{sum} of {measured}: {result}");
    let shares: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    result
}

#[test]
fn the_stages_of_a_request_are_all_of_its_time() {
    let rig = rig!(alone, 9000);
    let _target = rig.serve(&["--export", &format!("{DISK}=mem:64M")]);
    for (rw, depth) in [("randread", "1"), ("randread", "32"), ("randwrite", "32")] {
        let result = measure(&rig, &["--rw", rw, "--iodepth", depth]);
        for stage in ["transmit", "wire there", "target wake", "target receive", "store", "wake"] {
            assert!(mean(&result, stage) > 0.0, "{stage}: {result}");
        }
    }
    // More requests in flight than the session has slots for: the rest waits at the host.
    let result = measure(&rig, &["--iodepth", "64", "--rw", "read", "--bs", "1M", "--jobs", "2"]);
    assert!(mean(&result, "submit") > 0.0, "{result}");
    // A host that does not ask gets no stages.
    let link = rig.cable.link(Side::Host);
    let plain = rig.ask(&["bench", DISK, "--link", link, "--runtime", "0.2"]);
    assert!(plain["stages"].is_null(), "{plain}");
    let target = &rig.ask(&["stats"])["targets"][0];
    assert_eq!(target["links"][0]["rejects"], serde_json::json!({}), "{target}");
}

#[test]
fn a_link_that_cannot_tell_when_frames_arrive_is_named() {
    let rig = rig!(1500);
    const LINK: &str = "tcp:127.0.0.1:8651";
    rig.cable.ip(Side::Target, &["link", "set", "lo", "up"]);
    let _target = rig.serve(&["--link", LINK, "--export", &format!("{DISK}=mem:64M")]);
    let bench = ["bench", DISK, "--link", LINK, "--runtime", "0.2", "--stages"];
    let result = rig.ask_at(Side::Target, &bench);
    assert_eq!((mean(&result, "wake"), mean(&result, "target wake")), (0.0, 0.0));
    let text = crate::rig::run(&mut rig.tyche(Side::Target, &bench));
    for part in ["stage", "target receive", "wake: this host's link can't tell"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn the_bar_is_drawn_or_refused_before_anything_is_measured() {
    let rig = rig!(alone, 1500);
    let _target = rig.serve(&["--export", &format!("{DISK}=mem:64M")]);
    let svg = rig.path("stages.svg");
    measure(&rig, &["--stages-svg", svg.to_str().unwrap()]);
    let drawn = fs::read_to_string(svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    assert!(drawn.contains("randread, 4096 bytes, depth 1"), "{drawn}");
    let nowhere = rig.path("nowhere/stages.svg");
    let nowhere = nowhere.to_str().unwrap();
    let link = rig.cable.link(Side::Host);
    let fixed = ["bench", DISK, "--link", link, "--runtime", "1000"];
    let bench = [&fixed[..], &["--stages", "--stages-svg", nowhere]].concat();
    refused(&rig, Side::Host, &bench, 2, &["--stages-svg", "No such file or directory"]);
}
