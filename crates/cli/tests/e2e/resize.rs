//! Exports that grow while in use: what the hosts see, and which resizes are refused.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::refusals::refused;
use crate::rig::{DISK, Rig, Side, rig, run, wait_until};

const MIB: u64 = 1 << 20;

/// Bytes of a block device or file, by its end.
fn size(path: &Path) -> u64 {
    File::open(path).unwrap().seek(SeekFrom::End(0)).unwrap()
}

/// Size of the only target's export in `list`.
fn listed(rig: &Rig) -> Value {
    rig.ask(&["list"])["targets"][0]["exports"][0]["size"].take()
}

#[test]
fn a_device_grows_with_its_export_and_a_file_system_with_it() {
    let rig = rig!(9000);
    let _target = rig.serve_file(64 * MIB);
    let session = rig.connect(&[]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let point = rig.mount(&session.device, "noatime");
    fs::write(point.join("before"), "it was there").unwrap();

    let value = rig.ask_at(Side::Target, &["export", "resize", DISK, "256M"]);
    assert_eq!(value["schema"], "tyche.export/1");
    assert_eq!((&value["target"], &value["export"]), (&"e2e".into(), &DISK.into()));
    assert_eq!((&value["size_before"], &value["size"]), (&(64 * MIB).into(), &(256 * MIB).into()));
    assert_eq!(rig.path("disk.img").metadata().unwrap().len(), 256 * MIB);
    assert_eq!(listed(&rig), 256 * MIB);
    wait_until("the device has grown", || size(&session.device) == 256 * MIB);

    // Resizing while mounted would need CAP_SYS_RESOURCE.
    rig.unmount();
    run(Command::new("fsck.ext4").args(["-f", "-y"]).arg(&session.device));
    run(Command::new("resize2fs").arg(&session.device));
    rig.mount(&session.device, "noatime");
    fs::write(point.join("after"), vec![7; 100 * MIB as usize]).unwrap();
    assert_eq!(fs::read_to_string(point.join("before")).unwrap(), "it was there");
    rig.unmount();
    run(Command::new("fsck.ext4").args(["-f", "-n"]).arg(&session.device));
    let again = rig.tyche(Side::Target, &["export", "resize", DISK, "256M"]);
    assert_eq!(run(&mut { again }), format!("{DISK} has 256.0 MiB already\n"));
    session.disconnect();
}

#[test]
fn what_has_grown_by_other_means_is_found_when_asked_or_signalled() {
    let rig = rig!(1500);
    let target = rig.serve_file(4 * MIB);
    let session = rig.connect_as("fuse", &[]);
    let disk = File::options().write(true).open(rig.path("disk.img")).unwrap();
    disk.set_len(8 * MIB).unwrap();
    assert_eq!(size(&session.device), 4 * MIB, "nobody has looked yet");
    run(&mut rig.tyche(Side::Target, &["export", "resize", DISK, "--target", "e2e"]));
    wait_until("the file has grown", || size(&session.device) == 8 * MIB);

    disk.set_len(12 * MIB).unwrap();
    target.process.signal(Signal::HUP);
    wait_until("the file has grown again", || size(&session.device) == 12 * MIB);
    let end = File::options().read(true).write(true).open(&session.device).unwrap();
    end.write_all_at(&[7; 512], 12 * MIB - 512).unwrap();
    let mut found = [0; 512];
    let image = File::open(rig.path("disk.img")).unwrap();
    image.read_exact_at(&mut found, 12 * MIB - 512).unwrap();
    assert_eq!(found, [7; 512], "complete is durable, there too");
    drop(end);
    session.disconnect();
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let rig = rig!();
    let image = rig.file("disk.img", 4 * MIB);
    let disk = format!("disk={}", image.display());
    let exports = ["--export", &disk, "--export", "quick=mem:4M", "--export", "huge=null:1T"];
    let _target = rig.serve_on(&["--link", "tcp:127.0.0.1:0"], &exports);
    let resize = |args: &[&str], code, parts: &[&str]| {
        refused(&rig, Side::Target, &[&["export", "resize"], args].concat(), code, parts);
    };
    resize(&["disk", "2M"], 2, &["export `disk`", "4194304", "only grow"]);
    resize(&["disk", "4194305"], 2, &["export `disk`", "multiple of 512"]);
    resize(&["quick", "8M"], 9, &["export `quick`", "memory keeps its size"]);
    resize(&["nothing", "8M"], 3, &["no target", "exports `nothing`", "tyche list"]);
    resize(&["disk", "8M", "--target", "other"], 3, &["no target `other`", "exports `disk`"]);
    assert_eq!(image.metadata().unwrap().len(), 4 * MIB);
    let value = rig.ask_at(Side::Target, &["export", "resize", "huge", "2T"]);
    assert_eq!(value["size"], 2u64 << 40);
}
