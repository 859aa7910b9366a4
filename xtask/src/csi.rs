//! `cargo xtask csi`: csi-sanity, the test suite of CSI, over our driver. The test is that of
//! `crates/csi/tests/driver/sanity.rs` that no other command runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{self, Need};
use crate::suite::follow;
use crate::{Result, cargo, root, succeeds, target_dir};

/// The suite, and its version.
const SUITE: &str = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity";
const VERSION: &str = "v5.6.0";
/// The first version of Go that gets a newer one by itself, where a module wants that.
const GO_MIN: (u32, u32) = (1, 21);
/// Programs that the driver and its tests run.
const NEEDS: &[Need] = &[
    ("blkid", "util-linux"),
    ("e2fsck", "e2fsprogs"),
    ("fusermount3", "fuse3"),
    ("ip", "iproute2"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("resize2fs", "e2fsprogs"),
    ("xfs_growfs", "xfsprogs"),
];

/// Builds the suite and runs it; false if a specification failed.
pub(crate) fn run() -> Result<bool> {
    packages::install(NEEDS)?;
    let sanity = suite()?;
    if !succeeds(cargo().args(["build", "--package", "tyche"]))? {
        return Err("`tyche` can't be built: see above".to_owned());
    }
    let mut tests = cargo();
    tests.args(["test", "--package", "tyche-csi", "--test", "driver", "--"]);
    tests.args(["--ignored", "sanity::", "--show-output"]);
    tests.env("TYCHE_CSI_SANITY", sanity);
    let (log, succeeded) = follow(tests)?;
    log.printed.iter().for_each(|result| println!("{result}"));
    log.skips.iter().for_each(|skip| println!("SKIPPED {}: {}", skip.test, skip.reason));
    println!("{} passed, {} failed", log.passed - log.skips.len(), log.failed);
    Ok(succeeded && log.failed == 0)
}

/// The program of the suite, which is built if it is not there.
fn suite() -> Result<PathBuf> {
    let dir = root().join(target_dir()).join("csi-sanity").join(VERSION);
    let program = dir.join("csi-sanity");
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let go = go()?;
    println!("xtask: building csi-sanity {VERSION} with {}", go.display());
    let mut install = Command::new(&go);
    install.args(["install", &format!("{SUITE}@{VERSION}")]).env("GOBIN", &dir);
    match succeeds(&mut install)? {
        true => Ok(program),
        false => Err(format!("`go install {SUITE}@{VERSION}` failed: see above")),
    }
}

/// A Go that is new enough: that of the path, or that of the backports to this Debian.
fn go() -> Result<PathBuf> {
    let found = || packages::find("go").filter(|go| version(go).is_some_and(|it| it >= GO_MIN));
    if let Some(go) = found() {
        return Ok(go);
    }
    packages::install_backport("golang-go")?;
    let (major, minor) = GO_MIN;
    found().ok_or_else(|| {
        format!("csi-sanity needs Go {major}.{minor} or later: install it, or add the backports")
    })
}

/// The version that a program of Go says.
fn version(go: &Path) -> Option<(u32, u32)> {
    let said = Command::new(go).arg("version").output().ok()?;
    parse(&String::from_utf8_lossy(&said.stdout))
}

fn parse(said: &str) -> Option<(u32, u32)> {
    let number = said.split_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    let minor = number.split(|it: char| !it.is_ascii_digit()).next()?;
    Some((1, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_understood() {
        assert_eq!(parse("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(parse("go version go1.19 linux/amd64"), Some((1, 19)));
        assert_eq!(parse("go version go1.22rc1 linux/amd64"), Some((1, 22)));
        assert_eq!(parse("command not found"), None);
    }
}
