//! `cargo xtask soak`: builds the programs, and runs them under faults. The soak itself is in
//! `bench/src/soak`, because it needs networks and programs as a comparison does.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{Result, build, packages, target_dir};

/// Programs that the soak runs.
const NEEDS: &[packages::Need] = &[
    ("fio", "fio"),
    ("fusermount3", "fuse3"),
    ("ip", "iproute2"),
    ("losetup", "mount"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("timeout", "coreutils"),
];

/// Builds and runs the soak with `args`; returns only on failure.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    if !build(&["comparison"])? {
        return Ok(false);
    }
    if !args.iter().any(|arg| arg == "--help" || arg == "-h") {
        packages::install(NEEDS)?;
        if !build(&["tyche", "tyche-lab"])? {
            return Ok(false);
        }
    }
    let programs = target_dir().join("release");
    let mut soak = Command::new(programs.join("comparison"));
    soak.arg("soak").arg("--tyche").arg(programs.join("tyche"));
    soak.arg("--lab").arg(programs.join("tyche-lab")).args(args);
    // The soak replaces this process, so that Ctrl-C reaches it alone: it cleans up.
    Err(format!("run {}: {}", programs.join("comparison").display(), soak.exec()))
}
