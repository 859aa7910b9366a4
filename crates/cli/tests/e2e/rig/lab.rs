//! The laboratory's program. Cargo builds only the programs of the package under test, so it is
//! built here, beside `tyche`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use super::finish;

/// Time limit for building it.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// Commands, and options of commands, that only the laboratory has.
const ONLY_HERE: [&str; 4] = ["floor", "--fault", "--hand-over", "--stages"];
/// The ones whose output is not in the published schema.
const OWN_OUTPUT: [&str; 2] = ["floor", "--stages"];

/// `tyche-lab`.
pub(crate) static LAB: LazyLock<PathBuf> = LazyLock::new(|| {
    let programs = Path::new(env!("CARGO_BIN_EXE_tyche")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "tyche-lab", "--target-dir"]);
    build
        .arg(programs.parent().unwrap())
        .args(programs.ends_with("release").then_some("--release"));
    let done = finish(&mut build, BUILD_LIMIT);
    assert!(done.success(), "{}", done.stderr);
    programs.join("tyche-lab")
});

/// The program that has a command with these arguments.
pub(super) fn program(args: &[&str]) -> &'static Path {
    let is_only_here = |arg: &&str| ONLY_HERE.contains(&arg.split('=').next().unwrap_or(arg));
    if args.iter().any(is_only_here) { &LAB } else { Path::new(env!("CARGO_BIN_EXE_tyche")) }
}

/// Whether the output of a command with these arguments is in the published schema.
pub(super) fn is_published(args: &[&str]) -> bool {
    !args.iter().any(|arg| OWN_OUTPUT.contains(arg))
}
