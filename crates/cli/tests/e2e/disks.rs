//! Disks that fail or lose blocks under a target: which hosts are told, and how.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::process::Signal;

use crate::refusals::refused;
use crate::rig::{DISK, PATIENCE, Rig, Side, rig, run, wait_until};

const MIB: u64 = 1 << 20;

fn list(rig: &Rig) -> String {
    run(&mut rig.tyche(Side::Host, &["list"]))
}

/// A file system that is smaller than the disk in it.
fn mount_small(rig: &Rig) -> std::path::PathBuf {
    let point = rig.path("small");
    std::fs::create_dir(&point).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&point));
    point
}

#[test]
fn a_disk_that_fails_is_named_in_the_log_and_by_list_and_stats_on_both_sides() {
    let rig = rig!(1500);
    let disk = mount_small(&rig).join("disk.img");
    File::create_new(&disk).unwrap().set_len(64 * MIB).unwrap();
    let target = rig.serve(&["--export", &format!("{DISK}={}", disk.display())]);
    let session = rig.connect_as("fuse", &[]);
    assert!(!list(&rig).contains("failed"));

    let device = File::options().write(true).open(&session.device).unwrap();
    let block = vec![7; 64 << 10];
    let written = (0..256).try_for_each(|at| device.write_all_at(&block, at * (64 << 10)));
    println!("{}", written.unwrap_err());
    drop(device);

    let said = "export disk: write failed: No space left on device";
    wait_until("the log tells of it", || target.log().contains(said));
    let text = list(&rig);
    println!("{text}");
    for part in [
        "export disk of e2e: failed requests of its disk: write no space",
        "session of disk (",
        "): failed requests: write no space",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (session_stats, target_stats) = rig.stats();
    for counters in [&session_stats["requests"], &target_stats["exports"][0]] {
        let failed = counters["errors_by_kind"]["write"]["no_space"].as_u64();
        assert!(failed.is_some_and(|count| count > 0), "{counters}");
        assert_eq!(counters["errors"].as_u64(), failed, "{counters}");
        let age = counters["last_error_s"].as_f64();
        assert!(age.is_some_and(|age| age < PATIENCE.as_secs_f64()), "{counters}");
    }
    let text = run(&mut rig.tyche(Side::Host, &["stats"]));
    assert!(text.contains("errors       write no space"), "{text}");
    assert!(text.contains("; the last ") && text.contains(" s ago"), "{text}");
    session.disconnect_by_force();
}

#[test]
fn a_file_that_lost_blocks_is_reported_and_not_called_healthy() {
    let rig = rig!(1500);
    let target = rig.serve_file(64 * MIB);
    let disk = File::options().write(true).open(rig.path("disk.img")).unwrap();
    assert!(!list(&rig).contains("shrunk"));

    disk.set_len(32 * MIB).unwrap();
    let shrunk = ["shrunk to 33554432 bytes", "67108864"];
    refused(&rig, Side::Target, &["export", "resize", DISK], 9, &shrunk);
    refused(&rig, Side::Target, &["export", "resize", DISK, "64M"], 9, &shrunk);
    let text = list(&rig);
    assert!(text.contains("export disk of e2e: it has shrunk to 33554432 bytes"), "{text}");
    target.process.signal(Signal::HUP);
    wait_until("the log tells of it", || target.log().contains("it has shrunk"));

    disk.set_len(64 * MIB).unwrap();
    refused(&rig, Side::Target, &["export", "resize", DISK], 9, &shrunk);
    assert!(list(&rig).contains("shrunk"), "what was cut off does not come back");
    std::fs::remove_file(rig.path("disk.img")).unwrap();
    refused(&rig, Side::Target, &["export", "resize", DISK], 9, &["was deleted"]);
    assert!(list(&rig).contains("was deleted"));
}

#[test]
fn stats_say_what_matters_in_few_lines_and_all_of_it_when_asked() {
    let rig = rig!(1500);
    let _target = rig.serve_file(64 * MIB);
    let session = rig.connect_as("fuse", &[]);
    File::open(&session.device).unwrap().read_exact_at(&mut [0; 4096], 0).unwrap();
    let stats = |args: &[&str]| run(&mut rig.tyche(Side::Host, &[&["stats"], args].concat()));
    for name in [DISK, "e2e"] {
        let text = stats(&[name]);
        println!("{text}");
        assert!(text.lines().count() <= 10, "{text}");
        for part in ["errors", "sent again", "link ", "cpu"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let all = stats(&[name, "-v"]);
        assert!(all.lines().count() > 20 && all.contains("channel retransmitted"), "{all}");
    }
    assert!(stats(&[DISK]).contains("µs mean"));
    session.disconnect();
}
