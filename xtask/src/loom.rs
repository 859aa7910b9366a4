//! `cargo xtask loom`: checks models of shared state in all orders in which threads can access it.
//!
//! The models are tests of modules named `models`, compiled only with `--cfg loom`: with it, a
//! crate's `sync` module has the locks and atomics of the crate `loom`, which runs a test once for
//! each order, and lets a load return any value that the memory model allows. They are built in a
//! folder of their own, because the flag would have everything else built anew.

use std::env;

use crate::{Result, cargo, suite, target_dir};

/// The packages that have models.
const PACKAGES: [&str; 5] =
    ["tyche-block", "tyche-fcoe", "tyche-proto", "tyche-store", "tyche-wake"];
/// How often threads are preempted at most in one run: most bugs need two at most, and the number
/// of runs grows exponentially with it.
const PREEMPTIONS_MAX: &str = "3";

/// Packages that the profile optimizes. For these tests, optimizing takes longer than it saves.
const OPTIMIZED: [&str; 5] =
    ["", "package.\"*\".", "package.crc-fast.", "package.tyche-proto.", "package.tyche-wire."];

/// Runs the models; false if one failed.
pub(crate) fn run() -> Result<bool> {
    let mut test = cargo();
    test.args(["test", "--lib", "--no-fail-fast"]);
    for optimized in OPTIMIZED {
        test.args(["--config", &format!("profile.dev.{optimized}opt-level=0")]);
    }
    test.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    test.arg("models::");
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    test.env("RUSTFLAGS", format!("{flags} --cfg loom"));
    test.env("CARGO_TARGET_DIR", target_dir().join("loom"));
    if env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        test.env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS_MAX);
    }
    let (log, succeeded) = suite::follow(test)?;
    if succeeded && log.passed == 0 {
        return Err("no model has run".to_owned());
    }
    Ok(succeeded)
}
