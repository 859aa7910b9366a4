//! Sessions over RDMA, as far as no card is needed: the laboratory's programs at both ends, with
//! the double in place of cards.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::Signal;
use tyche_testkit::random::Random;

use crate::access::write_until_it_fails;
use crate::files::Files;
use crate::refusals::refused;
use crate::rig::{DISK, Rig, Side, Target, check_ext4, rig, run, wait_until};
use crate::udp::{LINK as UDP, addressed};

const SIZE: u64 = 64 << 20;
/// Of a disk with files.
const FILES: u64 = 256 << 20;
/// Bytes of a request: below the length from which the file needs aligned buffers.
const PART: usize = 256 << 10;
const DOUBLE: &str = "--rdma-double";

/// A link of its own for a test: the double has its places on the whole machine.
fn place() -> String {
    static PLACES: AtomicU16 = AtomicU16::new(1);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    format!("rdma:127.2.{high}.{low}:{}", PLACES.fetch_add(1, Ordering::Relaxed))
}

fn serve(rig: &Rig, link: &str) -> Target {
    rig.serve(&[DOUBLE, "--link", link, "--export", &rig.export()])
}

/// Random data, written in parts to a device, and compared with it.
struct Data(Vec<u8>);

impl Data {
    fn new(seed: u64) -> Self {
        let mut data = vec![0; 16 << 20];
        Random(seed).fill(&mut data);
        Self(data)
    }

    fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (4096..).step_by(PART).zip(self.0.chunks(PART))
    }

    fn write(&self, device: &File) {
        self.parts().for_each(|(offset, part)| device.write_all_at(part, offset).unwrap());
    }

    fn compare(&self, device: &File) {
        let mut back = vec![0; PART];
        for (offset, part) in self.parts() {
            device.read_exact_at(&mut back, offset).unwrap();
            assert!(back == part, "at {offset}");
        }
    }
}

fn open(device: &Path) -> File {
    File::options().read(true).write(true).open(device).unwrap()
}

/// A file system outlives its target, also between ends that tell each other of their rings in
/// different ways, with a card of 2006.
#[test]
fn files_over_rdma_survive_a_target_that_is_killed() {
    let base = ["--rdma-queue=base", "--interrupts=each", "--rdma-model=ics2006"];
    for options in [&[][..], &base] {
        let rig = rig!(1500);
        rig.file("disk.img", FILES);
        let link = place();
        let serve = || {
            let target = [DOUBLE, "--link", &link, "--export", &rig.export()];
            rig.serve(&[&target[..], options].concat())
        };
        let mut target = Some(serve());
        let session = rig.connect_at((Side::Target, &link), "loop", &[DOUBLE]);
        run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
        let point = rig.mount(&session.device, "rw");
        let files = Files::new(options.len() as u64, 64 << 20);
        files.write(&point).unwrap();
        target.take().unwrap().kill();
        let _target = serve();
        rig.unmount();
        assert_eq!(rig.stats().0["requests"]["errors"], 0);
        session.disconnect();
        let session = rig.connect_at((Side::Target, &link), "loop", &[DOUBLE, "--read-only"]);
        files.assert_intact(&rig.mount(&session.device, "ro"));
        rig.unmount();
        check_ext4(&session.device);
        session.disconnect();
    }
}

#[test]
fn a_disk_over_rdma_outlives_its_target() {
    let rig = rig!(1500);
    rig.file("disk.img", SIZE);
    let link = place();
    let target = serve(&rig, &link);
    let discover = ["discover", DOUBLE, "--link", &link, "--timeout", "0.2"];
    let found = rig.ask_at(Side::Target, &discover);
    assert_eq!(found["exports"][0]["export"], "disk", "{found}");
    let session = rig.connect_at((Side::Target, &link), "fuse", &[DOUBLE]);
    let of_session = &session.value["links"][0];
    let (name, frame_len) = (&of_session["interface"], &of_session["frame_len"]);
    assert_eq!((name.as_str(), frame_len.as_u64()), (Some(&*link), Some(9014)));
    let (device, data) = (open(&session.device), Data::new(3));
    data.write(&device);
    target.kill();
    let _target = serve(&rig, &link);
    data.compare(&device);
    drop(device);
    session.disconnect();
}

/// One session has links of three kinds; the one over RDMA goes and comes under a load, and then
/// the target.
#[test]
fn a_session_moves_between_rdma_and_other_links() {
    let rig = addressed(rig!(9000));
    rig.file("disk.img", SIZE);
    let place = place();
    let links = |side| ["--link", rig.cable.link(side), "--link", UDP, "--link", &place, DOUBLE];
    let serve = || rig.serve_on(&links(Side::Target), &["--export", &rig.export()]);
    let target = serve();
    let session =
        rig.connect_over(Side::Host, &[&["--as", "fuse"][..], &links(Side::Host)].concat());
    let await_all = || {
        wait_until("all links are live", || {
            let list = rig.ask(&["list"]);
            let links = list["sessions"][0]["links"].as_array().unwrap();
            links.iter().filter(|it| it["live"] == true).count() == 3
        });
    };
    await_all();
    let (device, change) = (open(&session.device), |what| {
        run(&mut rig.tyche(Side::Host, &["link", what, DISK, &place]));
    });
    for round in 0..3 {
        let data = Data::new(round);
        std::thread::scope(|scope| {
            scope.spawn(|| data.write(&device));
            change("del");
            change("add");
        });
        await_all();
        data.compare(&device);
    }
    target.kill();
    let _target = serve();
    Data::new(2).compare(&device);
    drop(device);
    session.disconnect();
}

/// The host places its data in memory of the target, and has requests on their way when it stops.
/// What it still writes when it goes on is late.
#[test]
fn a_host_that_was_evicted_while_it_was_frozen_changes_nothing_any_more() {
    let rig = rig!(1500);
    let image = rig.file("disk.img", SIZE);
    let link = place();
    let target = serve(&rig, &link);
    let session = rig.connect_at((Side::Target, &link), "fuse", &[DOUBLE]);
    let host = session.value["host"].as_str().unwrap().to_owned();
    let load: Vec<_> = (0..4).map(|n| write_until_it_fails(&session.device, n)).collect();
    wait_until("data are placed", || {
        let links = &rig.ask_at(Side::Target, &["stats"])["sessions"][0]["links"];
        links[0]["rdma_placed"].as_u64().is_some_and(|frames| frames > 1000)
    });
    session.signal(Signal::STOP);
    run(&mut rig.tyche(Side::Target, &["export", "evict", DISK, &host]));
    let at_once = fs::read(&image).unwrap();
    session.signal(Signal::CONT);
    load.into_iter().for_each(|writer| assert!(writer.join().unwrap() > 0));
    assert!(fs::read(&image).unwrap() == at_once, "the disk has changed after the eviction");
    session.disconnect_by_force();
    run(&mut rig.tyche(Side::Target, &["export", "allow", DISK, &host]));
    rig.connect_at((Side::Target, &link), "fuse", &[DOUBLE]).disconnect();
    drop(target);
}

#[test]
fn without_a_card_the_message_says_what_is_missing() {
    let rig = rig!(1500);
    rig.file("disk.img", SIZE);
    let link = "rdma:127.0.0.1:8650";
    let needs: &[&str] = &[link, "this machine has no"];
    refused(&rig, Side::Target, &["connect", "disk", "--link", link], 5, needs);
}
