//! A session over TCP, on the loopback interface of one namespace.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tyche_testkit::random::Random;

use crate::refusals::refused;
use crate::rig::{Rig, Side, Target, rig};

const SIZE: u64 = 64 << 20;
/// Bytes of a request: below the length from which the file needs aligned buffers.
const PART: usize = 256 << 10;
const LINK: &str = "tcp:127.0.0.1:8650";

fn serve(rig: &Rig) -> Target {
    rig.serve(&["--link", LINK, "--export", &rig.export()])
}

#[test]
fn a_disk_over_tcp_outlives_its_target() {
    let rig = rig!(1500);
    rig.cable.ip(Side::Target, &["link", "set", "lo", "up"]);
    rig.file("disk.img", SIZE);
    let target = serve(&rig);
    let found = rig.ask_at(Side::Target, &["discover", "--link", LINK, "--timeout", "0.2"]);
    assert_eq!(found["exports"][0]["export"], "disk", "{found}");
    let session = rig.connect_at((Side::Target, LINK), "fuse", &[]);
    let link = &session.value["links"][0];
    assert_eq!((link["interface"].as_str(), link["frame_len"].as_u64()), (Some(LINK), Some(65549)));
    let device = File::options().read(true).write(true).open(&session.device).unwrap();
    let mut data = vec![0; 16 << 20];
    Random(3).fill(&mut data);
    for (offset, part) in (4096..).step_by(PART).zip(data.chunks(PART)) {
        device.write_all_at(part, offset).unwrap();
    }
    target.kill();
    let _target = serve(&rig);
    let mut back = vec![0; PART];
    for (offset, part) in (4096..).step_by(PART).zip(data.chunks(PART)) {
        device.read_exact_at(&mut back, offset).unwrap();
        assert!(back == part);
    }
    drop(device);
    session.disconnect();
}

#[test]
fn places_that_cannot_work_are_named() {
    let rig = rig!(1500);
    rig.cable.ip(Side::Target, &["link", "set", "lo", "up"]);
    let connect = |link| ["connect", "disk", "--link", link];
    refused(&rig, Side::Target, &connect(LINK), 6, &["127.0.0.1:8650", "tyche serve --link tcp:"]);
    refused(&rig, Side::Target, &connect("tcp:127.0.0.1:0"), 2, &["no number", "tcp:HOST:PORT"]);
    refused(&rig, Side::Target, &connect("tcp:::1:8650"), 2, &["brackets"]);
    rig.file("disk.img", SIZE);
    let _target = serve(&rig);
    let again = ["serve", "--link", LINK, "--export", "a=mem:1M", "--name", "second"];
    refused(&rig, Side::Target, &again, 5, &["cannot listen", "choose another port"]);
    let elsewhere = "tcp:192.0.2.1:8650";
    let again = ["serve", "--link", elsewhere, "--export", "a=mem:1M", "--name", "third"];
    refused(&rig, Side::Target, &again, 5, &["192.0.2.1", "does not have that address"]);
}
