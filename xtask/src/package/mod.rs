//! `cargo xtask deb`, `rpm`, `oci`, `oci-csi`: packages for Debian and for distributions with RPM,
//! with everything for Tyche as a service, and images for containers, with the program alone or
//! with the driver for Kubernetes; and an archive with which a benchmark runs on other machines
//! ([`pack`]).
//!
//! What is in them is listed once (`contents`), and the formats' own programs do the rest.

mod container;
mod contents;
mod deb;
mod oci;
pub(crate) mod pack;
mod root;
mod rpm;
mod stage;
mod tool;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::{Result, build, target_dir};
pub(crate) use deb::package as deb;
pub(crate) use root::bootstrap;

/// A format: the name of its command, and functions that make a package of a program below a
/// directory, and that test it.
type Format = (&'static str, fn(&Path, &Path) -> Result<PathBuf>, fn(&Path) -> Result<bool>);

const FORMATS: [Format; 4] = [
    ("deb", deb::package, deb::test),
    ("rpm", rpm::package, rpm::test),
    ("oci", oci::package, oci::test),
    ("oci-csi", oci::package_csi, oci::test_csi),
];

/// Whether it is a command of packages, and its arguments are valid.
pub(crate) fn is_usage(command: &OsStr, args: &[OsString]) -> bool {
    let is_format = FORMATS.iter().any(|(name, ..)| command == *name);
    is_format && (args.is_empty() || args == ["--test"])
}

/// Builds a package, and with `--test` tests it; false if that fails.
pub(crate) fn run(command: &OsStr, args: &[OsString]) -> Result<bool> {
    let format = FORMATS.iter().find(|(name, ..)| command == *name);
    let &(name, make, test) = format.ok_or_else(|| format!("no format {command:?}"))?;
    let programs: &[&str] = if name == "oci-csi" { &["tyche", "tyche-csi"] } else { &["tyche"] };
    if !build(programs)? {
        return Ok(false);
    }
    let package = make(&target_dir().join("release/tyche"), &target_dir().join(name))?;
    println!("{}", package.display());
    if args.is_empty() { Ok(true) } else { test(&package) }
}

/// Prints the result of a check.
fn say(format: &str, what: &str, good: bool) {
    println!("{format}: {what}{}", if good { "" } else { ": NO" });
}
