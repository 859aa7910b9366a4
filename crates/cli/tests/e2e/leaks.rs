//! A session's daemon inherits nothing of the process that started it.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;

use crate::rig::{DISK, Rig, Side, rig, wait_readable};

const SIZE: u64 = 16 << 20;

/// The descriptors for that pipe in all threads of the test's daemons. Each thread may have a table
/// of its own.
fn holders(rig: &Rig, pipe: u64) -> Vec<String> {
    let wanted = format!("pipe:[{pipe}]");
    let mut found = Vec::new();
    for pid in rig.living() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let files = fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten();
            for file in files {
                let target = fs::read_link(file.path()).unwrap_or_default();
                if target == Path::new(&wanted) {
                    found.push(format!("{} {}", name.trim(), file.path().display()));
                }
            }
        }
    }
    found
}

/// Connects as `tyche connect x 2>&1 | cat` does, and as a script does that holds a lock on a
/// descriptor of its own.
#[test]
fn whoever_reads_what_connect_says_sees_it_end() {
    let rig = rig!(1500);
    let _target = rig.serve_file(SIZE);
    let shell = Path::new("sh");
    for kind in ["loop", "fuse", "nbd-socket", "vhost-user"] {
        let (mut output, pipe) = std::io::pipe().unwrap();
        let number = File::from(OwnedFd::from(pipe.try_clone().unwrap())).metadata().unwrap().ino();
        let tyche = env!("CARGO_BIN_EXE_tyche");
        let connect = ["connect", DISK, "--link", rig.cable.link(Side::Host), "--as", kind];
        let script = ["-c", "exec \"$0\" \"$@\" 2>&1 7>&1", tyche];
        let mut command = rig.at(Side::Host, shell, &[&script[..], &connect].concat());
        let mut child = command.stdin(Stdio::null()).stdout(OwnedFd::from(pipe)).spawn().unwrap();
        drop(command);
        let status = child.wait().unwrap();
        let mut said = Vec::new();
        loop {
            let mut part = [0; 4096];
            let kept = || holders(&rig, number);
            assert!(wait_readable(&output, crate::rig::PATIENCE), "--as {kind}: {:?}", kept());
            match output.read(&mut part).unwrap() {
                0 => break,
                len => said.extend_from_slice(&part[..len]),
            }
        }
        assert!(status.success(), "{}", String::from_utf8_lossy(&said));
        assert_eq!(holders(&rig, number), [] as [String; 0], "--as {kind}");
        rig.disconnect_all();
    }
}
