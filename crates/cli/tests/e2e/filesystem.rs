//! A file system on the device: made, filled, compared after a reconnect, checked.

use std::path::Path;
use std::process::Command;

use crate::files::Files;
use crate::rig::{Rig, Side, check_ext4, rig, run};

/// Bytes of the disk, a sparse file.
const SIZE: u64 = 1 << 30;
/// Bytes of the files.
const BYTES: u64 = 96 << 20;

/// Makes a file system, fills it, reconnects, compares and checks it.
fn round_trip(rig: &Rig, seed: u64) {
    let files = Files::new(seed, BYTES);
    let session = rig.connect(&[]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    files.write(&rig.mount(&session.device, "rw")).unwrap();
    rig.unmount();
    session.disconnect();

    rig.assert_kept(&files, &[]);
}

#[test]
fn files_survive_a_reconnect_with_jumbo_frames() {
    let rig = rig!(9000);
    let _target = rig.serve_file(SIZE);
    round_trip(&rig, 1);
}

#[test]
fn files_survive_a_reconnect_with_standard_frames() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    round_trip(&rig, 2);
}

#[test]
fn files_survive_losses_with_blocks_of_4_kib() {
    let rig = rig!(9000);
    rig.file("disk.img", SIZE);
    let _target = rig.serve(&["--export", &rig.export(), "--block-size", "4096", "--write-back"]);
    rig.cable.lose_of_10000(100);
    round_trip(&rig, 3);
}

/// A user's typical work on a disk, under some loss: unpacks sources, and keeps a repository.
#[test]
fn sources_unpack_and_a_repository_checks_under_loss() {
    let rig = rig!(9000);
    let _target = rig.serve_file(SIZE);
    rig.cable.lose_of_10000(100);
    let session = rig.connect(&[]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let point = rig.mount(&session.device, "rw");

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let archive = rig.path("sources.tar");
    let sources = root.join("crates");
    run(Command::new("tar").arg("-C").arg(&sources).arg("-cf").arg(&archive).arg("."));
    let unpacked = point.join("sources");
    std::fs::create_dir(&unpacked).unwrap();
    run(Command::new("tar").arg("-C").arg(&unpacked).arg("-xf").arg(&archive));
    let repository = point.join("repository");
    let mut clone = Command::new("git");
    clone.args(["-c", "safe.directory=*", "clone", "-q", "--no-local"]).arg(root).arg(&repository);
    run(&mut clone);
    rig.unmount();
    session.disconnect();

    let session = rig.connect(&["--read-only"]);
    rig.mount(&session.device, "ro");
    run(Command::new("diff").arg("-r").arg("--no-dereference").arg(&sources).arg(&unpacked));
    let mut fsck = Command::new("git");
    run(fsck.arg("-C").arg(&repository).args(["-c", "safe.directory=*", "fsck", "--full"]));
    rig.unmount();
    check_ext4(&session.device);
    let (stats, _) = rig.stats();
    println!("session: {}", stats["channel"]);
    session.disconnect();
}

/// `list` shows a session with its device, and no session after the disconnect.
#[test]
fn a_device_can_be_found_by_its_name_in_list() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let session = rig.connect(&[]);
    let list = rig.ask(&["list"]);
    assert_eq!(list["schema"], "tyche.list/1");
    assert_eq!(list["sessions"][0]["device"], session.value["device"]);
    assert_eq!(list["sessions"][0]["state"], "live");
    assert_eq!(list["targets"][0]["name"], "e2e");
    let text = run(&mut rig.tyche(Side::Host, &["list"]));
    assert!(text.contains(session.device.to_str().unwrap()), "{text}");
    session.disconnect();
    let list = rig.ask(&["list"]);
    assert_eq!(list["sessions"].as_array().map(Vec::len), Some(0), "{list}");
}
