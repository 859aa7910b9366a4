//! `cargo xtask bench`: builds the compared programs, and runs the comparison in `bench/`.
//!
//! The comparison is a program of its own: it measures, so it is built for release, and it draws,
//! so it needs more than the standard library. A suite can be packed, to run elsewhere
//! ([`crate::package::pack`]).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::package::pack;
use crate::{Result, build, fio, packages, target_dir};

/// Programs that the comparison runs, besides those that build the engine for fio.
const NEEDS: &[packages::Need] = &[
    ("ethtool", "ethtool"),
    ("fio", "fio"),
    ("ip", "iproute2"),
    ("mptcpize", "mptcpize"),
    ("nbdkit", "nbdkit"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("openssl", "openssl"),
    ("taskset", "util-linux"),
    ("tc", "iproute2"),
];

/// Options with which the comparison measures nothing.
const IDLE: [&str; 3] = ["--help", "-h", "--redraw"];

/// Builds and runs the comparison with `args`, or packs it; if it runs, returns only on failure.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    let idle = args.iter().any(|arg| IDLE.iter().any(|idle| arg == idle));
    let pack = if idle { None } else { pack::wanted(args)? };
    if !build(&["comparison"])? {
        return Ok(false);
    }
    if !idle {
        packages::install(NEEDS)?;
        if !build(&["tyche", "tyche-lab"])? || !fio::build()? {
            return Ok(false);
        }
    }
    if let Some(file) = pack {
        pack::make(&file, &fio::engine())?;
        return Ok(true);
    }
    let target = target_dir();
    let program = target.join("release/comparison");
    let mut compare = Command::new(&program);
    compare.arg("--tyche").arg(target.join("release/tyche"));
    compare.arg("--lab").arg(target.join("release/tyche-lab"));
    compare.arg("--engine").arg(fio::engine());
    compare.arg("--scratch").arg(target.join("bench")).args(args);
    // The comparison replaces this process, so that Ctrl-C reaches it alone: it cleans up.
    Err(format!("run {}: {}", program.display(), compare.exec()))
}
