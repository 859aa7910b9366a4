//! The demo: its report, and its clean-up, whenever it is stopped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::files::Files;
use crate::rig::{LAB, PATIENCE, finish, rig, wait_until};

/// A tree that takes a moment to copy, but no longer.
fn tree(path: PathBuf) -> PathBuf {
    fs::create_dir(&path).unwrap();
    Files::new(9, 48 << 20).write(&path).unwrap();
    path
}

fn demo(tree: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(&*LAB);
    command.arg("demo").arg("--tree").arg(tree).args(["-o", "json"]).args(args);
    command
}

/// Remains of a demo with that process ID.
fn leftovers(pid: u32) -> Vec<String> {
    let tag = format!("tyche-demo-{pid}");
    // Leaves out other demos whose process ID begins with the same digits.
    let is_its = |text: &str| {
        text.split(&tag).skip(1).any(|rest| !rest.starts_with(|it: char| it.is_ascii_digit()))
    };
    let mut left = Vec::new();
    for dir in ["/run/netns", "/var/tmp"] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            left.extend(is_its(&name).then(|| format!("{dir}/{name}")));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|line| is_its(line)).map(str::to_owned));
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let bound = fs::read_to_string(entry.path().join("loop/backing_file"));
        left.extend(bound.ok().filter(|file| is_its(file)));
    }
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if is_its(&String::from_utf8_lossy(&environment)) {
            left.push(entry.path().display().to_string());
        }
    }
    left
}

#[test]
fn every_file_system_survives_a_killed_target_or_loss() {
    let rig = rig!(1500);
    let tree = tree(rig.path("tree"));
    let cases: [&[&str]; 4] = [
        &["--fs", "ext4", "--kill-target-after", "60", "--restart-after", "1"],
        &["--fs", "xfs", "--loss", "1"],
        &["--fs", "btrfs", "--mtu", "1500"],
        &["--links", "3", "--loss", "0.5", "--kill-target", "3", "--restart-after", "0.5"],
    ];
    for args in cases {
        let done = finish(&mut demo(&tree, args), 2 * PATIENCE);
        assert!(done.success(), "{args:?}: {}", done.stderr);
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        println!("{args:?}: {report}");
        assert_eq!(report["schema"], "tyche.demo/1");
        assert_eq!(report["intact"], true);
        let wanted = [("--kill-target-after", 1), ("--kill-target", 3)];
        let wanted = wanted.iter().find(|(option, _)| args.contains(option)).map_or(0, |it| it.1);
        let outages = report["outages"].as_array().unwrap();
        assert_eq!(outages.len(), wanted);
        assert!(outages.iter().all(|outage| outage["within_copy"] == true));
        for side in ["host", "target"] {
            let links = report[side]["links"].as_array().unwrap();
            assert_eq!(links.len(), if args.contains(&"--links") { 3 } else { 1 });
            // The path scheduler decides the shares of a short copy.
            for count in ["frames_sent", "frames_received"] {
                let parts: Vec<_> = links.iter().map(|it| it[count].as_u64().unwrap()).collect();
                assert!(!parts.contains(&0), "{links:?}");
                assert_eq!(parts.iter().sum::<u64>(), report[side][count]);
            }
        }
        let lossy = args.contains(&"--loss");
        assert!(report["host"]["retransmitted"].as_u64().unwrap() > 0 || !lossy);
    }
}

#[test]
fn a_target_lost_for_good_is_shown_to_end_well() {
    let rig = rig!(1500);
    let tree = tree(rig.path("tree"));
    let args = ["--kill-target-after", "60", "--no-restart", "--ctrl-loss-tmo", "2"];
    let done = finish(&mut demo(&tree, &args), 2 * PATIENCE);
    assert!(done.success(), "{}", done.stderr);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    println!("{report}");
    assert!(report["outages"][0]["time_left_s"].as_f64().unwrap() <= 2.0);
    assert!(report["loss_of_target"]["failed_after_s"].as_f64().unwrap() < 10.0);
    assert!(report["loss_of_target"]["device_error"].as_str().unwrap().contains("os error 5"));
}

/// Starts a demo and reads its output.
fn start(tree: &Path, args: &[&str]) -> (Child, Receiver<String>) {
    let mut command = demo(tree, args);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (sender, lines) = channel();
    thread::spawn(move || {
        // The thread ends with the demo.
        stderr.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
    });
    (child, lines)
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let rig = rig!(1500);
    let tree = tree(rig.path("tree"));
    // The demo is stopped some time after each of these lines.
    let places = ["choose", "namespaces", "serve", "connect", "mkfs", "mount", "copy 25", "copy "];
    let later = ["unmount", "disconnect", "connect again", "mount read-only", "compare 25"];
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    for (number, place) in places.iter().chain(&later).enumerate() {
        let (mut child, lines) = start(&tree, &["--loss", "0.1"]);
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains(place)) {
            let line = lines.recv_timeout(PATIENCE);
            said.push(line.unwrap_or_else(|error| panic!("{place}: {error} after {said:#?}")));
        }
        thread::sleep(Duration::from_millis(5 * (number as u64 % 4)));
        kill_process(Pid::from_child(&child), signals[number % 3]).unwrap();
        wait_until("the demo ends", || child.try_wait().unwrap().is_some());
        said.extend(lines.iter());
        assert_eq!(leftovers(child.id()), [] as [String; 0], "after {place:?}: {said:?}");
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(1), "after {place:?}: {said:?}");
    }
}

/// The hardest case: the target is lost, and everything waits for it without limit.
#[test]
fn a_demo_whose_target_is_lost_can_be_interrupted() {
    let rig = rig!(1500);
    let tree = tree(rig.path("tree"));
    let args = ["--kill-target-after", "60", "--restart-after", "3600", "--ctrl-loss-tmo", "-1"];
    let (mut child, lines) = start(&tree, &args);
    while !lines.recv_timeout(PATIENCE).unwrap().contains("target killed") {}
    thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    wait_until("the demo ends", || child.try_wait().unwrap().is_some());
    assert_eq!(leftovers(child.id()), [] as [String; 0]);
}
