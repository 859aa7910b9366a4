//! `cargo xtask soak`: builds the program, and lets faults happen to it. What happens is in
//! `bench/src/soak`, for it needs networks and programs as a comparison does.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{Result, cargo, packages, succeeds, target_dir};

/// What it runs.
const NEEDS: &[packages::Need] = &[
    ("fio", "fio"),
    ("fusermount3", "fuse3"),
    ("ip", "iproute2"),
    ("losetup", "mount"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("timeout", "coreutils"),
];

/// Builds and runs it with `args`; returns only if that fails.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    let build = |package| succeeds(cargo().args(["build", "--release", "--package", package]));
    if !build("comparison")? {
        return Ok(false);
    }
    if !args.iter().any(|arg| arg == "--help" || arg == "-h") {
        packages::install(NEEDS)?;
        if !build("tyche")? {
            return Ok(false);
        }
    }
    let programs = target_dir().join("release");
    let mut soak = Command::new(programs.join("comparison"));
    soak.arg("soak").arg("--tyche").arg(programs.join("tyche")).args(args);
    // It takes this process's place, so that a Ctrl-C is for it alone: it cleans up.
    Err(format!("run {}: {}", programs.join("comparison").display(), soak.exec()))
}
