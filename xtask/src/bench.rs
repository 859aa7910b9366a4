//! `cargo xtask bench`: builds everything that is compared, and lets `bench/` compare it.
//!
//! The comparison is a program of its own: it measures, so it is built for release, and it draws,
//! so it needs more than the standard library.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::{Result, cargo, fio, packages, succeeds, target_dir};

/// What the comparison runs, beside what building the engine for fio needs.
const NEEDS: &[packages::Need] = &[
    ("ethtool", "ethtool"),
    ("fio", "fio"),
    ("ip", "iproute2"),
    ("mptcpize", "mptcpize"),
    ("nbdkit", "nbdkit"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("taskset", "util-linux"),
    ("tc", "iproute2"),
];

/// Options with which nothing is measured.
const IDLE: [&str; 3] = ["--help", "-h", "--redraw"];

/// Builds and runs it with `args`; returns only if that fails.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    if !succeeds(cargo().args(["build", "--release", "--package", "comparison"]))? {
        return Ok(false);
    }
    if !args.iter().any(|arg| IDLE.iter().any(|idle| arg == idle)) {
        packages::install(NEEDS)?;
        if !succeeds(cargo().args(["build", "--release", "--package", "tyche"]))? || !fio::build()?
        {
            return Ok(false);
        }
    }
    let target = target_dir();
    let program = target.join("release/comparison");
    let mut compare = Command::new(&program);
    compare.arg("--tyche").arg(target.join("release/tyche"));
    compare.arg("--engine").arg(fio::engine());
    compare.arg("--scratch").arg(target.join("bench")).args(args);
    // It takes this process's place, so that a Ctrl-C is for it alone: it cleans up.
    Err(format!("run {}: {}", program.display(), compare.exec()))
}
