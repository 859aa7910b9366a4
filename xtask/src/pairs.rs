//! `cargo xtask pairs`: builds this tree and the commit before it, and measures both in turn. The
//! measuring is in `bench/src/pairs.rs`: it needs networks and programs as a comparison does.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::{Result, build, cargo, packages, root, succeeds, target_dir};

/// Programs that the measurement runs.
const NEEDS: &[packages::Need] = &[
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("taskset", "util-linux"),
];

/// Builds and runs the measurement with `args`, the first of which is a commit; returns only on
/// failure.
pub(crate) fn run(args: &[OsString]) -> Result<bool> {
    let is_help = args.iter().any(|arg| arg == "--help" || arg == "-h");
    if !build(&["comparison"])? {
        return Ok(false);
    }
    let programs = target_dir().join("release");
    let mut pairs = Command::new(programs.join("comparison"));
    pairs.arg("pairs");
    if is_help {
        pairs.arg("--help");
    } else {
        let Some((commit, rest)) = args.split_first() else {
            return Err("usage: cargo xtask pairs COMMIT [OPTIONS]".to_owned());
        };
        packages::install(NEEDS)?;
        let Some(before) = built_from(commit)? else { return Ok(false) };
        if !build(&["tyche"])? {
            return Ok(false);
        }
        pairs.arg("--before").arg(before).arg("--tyche").arg(programs.join("tyche")).args(rest);
    }
    // The measurement replaces this process, so that Ctrl-C reaches it alone: it cleans up.
    Err(format!("run {}: {}", programs.join("comparison").display(), pairs.exec()))
}

/// `tyche` as of a commit, built in a worktree of its own. That is kept: the next time builds less.
fn built_from(commit: &OsStr) -> Result<Option<PathBuf>> {
    let tree = root().join(target_dir()).join("before");
    let mut git = Command::new("git");
    if tree.join("Cargo.toml").exists() {
        git.arg("-C").arg(&tree).args(["checkout", "--quiet", "--detach"]).arg(commit);
    } else {
        git.arg("-C").arg(root()).args(["worktree", "add", "--force", "--detach"]);
        git.arg(&tree).arg(commit);
    }
    if !succeeds(&mut git)? {
        return Ok(None);
    }
    let target = tree.join("target");
    let mut build = cargo();
    build.current_dir(&tree).env("CARGO_TARGET_DIR", &target);
    let is_built = succeeds(build.args(["build", "--release", "--package", "tyche"]))?;
    Ok(is_built.then(|| target.join("release/tyche")))
}
