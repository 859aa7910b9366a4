//! Sessions and targets whose threads hand work over to each other.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tyche_testkit::leaks::threads;
use tyche_testkit::random::Random;

use crate::refusals::refused;
use crate::rig::{Rig, Side, Target, rig, wait_until};

const SIZE: u64 = 64 << 20;
const PART: usize = 256 << 10;
const TCP: &str = "tcp:127.0.0.1:8650";

fn serve(rig: &Rig, hand_over: &str) -> Target {
    rig.serve(&["--export", &rig.export(), hand_over])
}

#[test]
fn a_disk_outlives_its_target_and_its_interface() {
    let rig = rig!(9000);
    rig.file("disk.img", SIZE);
    let target = serve(&rig, "--hand-over");
    let session = rig.connect_as("fuse", &["--hand-over"]);
    let device = File::options().read(true).write(true).open(&session.device).unwrap();
    let mut data = vec![0; 16 << 20];
    Random(4).fill(&mut data);
    let parts = || (4096..).step_by(PART).zip(data.chunks(PART));
    for (offset, part) in parts() {
        device.write_all_at(part, offset).unwrap();
    }
    for (pid, wanted) in [(target.pid(), "tyche-store"), (session.pid(), "tyche-complete")] {
        for wanted in ["tyche-receive", wanted] {
            assert!(threads(pid, "").iter().any(|name| name == wanted), "{:?}", threads(pid, ""));
        }
    }
    target.kill();
    let _target = serve(&rig, "--hand-over=receive-all,store");
    let mut back = vec![0; PART];
    for (number, (offset, part)) in parts().enumerate() {
        if number == 20 {
            let link = rig.cable.link(Side::Target);
            rig.cable.ip(Side::Target, &["link", "set", link, "down"]);
            wait_until("the target notices", || !rig.stats().1["links"][0]["problem"].is_null());
            rig.cable.ip(Side::Target, &["link", "set", link, "up"]);
        }
        device.read_exact_at(&mut back, offset).unwrap();
        assert!(back == part);
    }
    drop(device);
    session.disconnect();
    let only_answers = rig.connect_as("fuse", &["--hand-over=complete"]);
    let names = threads(only_answers.pid(), "");
    let has = |name: &str| names.iter().any(|it| it == name);
    assert!(has("tyche-complete") && !has("tyche-receive"), "{names:?}");
    only_answers.disconnect();
    let link = rig.cable.link(Side::Host);
    let bench = ["bench", "disk", "--link", link, "--hand-over", "--iodepth", "8"];
    let result = rig.ask(&[&bench[..], &["--runtime", "0.2"]].concat());
    assert!(result["iops"].as_f64() > Some(0.0), "{result}");
}

#[test]
fn tcp_is_refused() {
    let rig = rig!(1500);
    rig.cable.ip(Side::Target, &["link", "set", "lo", "up"]);
    let wrong = ["serve", "--link", TCP, "--export", "a=mem:1M", "--name", "b", "--hand-over"];
    refused(&rig, Side::Target, &wrong, 2, &["tcp:127.0.0.1:8650", "leave out --hand-over"]);
    let _target = rig.serve(&["--link", TCP, "--export", "disk=mem:1M"]);
    let wrong = ["connect", "disk", "--link", TCP, "--hand-over=receive-all"];
    refused(&rig, Side::Target, &wrong, 2, &["tcp:127.0.0.1:8650", "Ethernet"]);
}
