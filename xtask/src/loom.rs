//! `cargo xtask loom`: checks models of shared state in all orders in which threads can access it.
//!
//! The models are unit tests of modules named `models`, compiled only with `--cfg loom`: with it, a
//! crate's `sync` module has the locks and atomics of the crate `loom`, which runs a test once for
//! each order, and lets a load return any value that the memory model allows. Only the crate with
//! the models is compiled with the flag; its dependencies are those of the other tests.

use std::env;
use std::process::Command;

use crate::{Result, program, suite};

/// The packages that have models.
const PACKAGES: [&str; 7] = [
    "tyche-block",
    "tyche-engine",
    "tyche-fcoe",
    "tyche-link",
    "tyche-proto",
    "tyche-store",
    "tyche-wake",
];
/// Flags of the compiler. Optimizing takes longer than it saves.
const FLAGS: [&str; 4] = ["--cfg", "loom", "-C", "opt-level=0"];
/// How often threads are preempted at most in one run: most bugs need two at most, and the number
/// of runs grows exponentially with it.
const PREEMPTIONS_MAX: &str = "3";

/// Runs the models; false if one failed.
pub(crate) fn run() -> Result<bool> {
    let mut all_hold = true;
    for package in PACKAGES {
        println!("{package}:");
        let mut test = Command::new(program::unit_tests(package, &FLAGS)?);
        test.arg("models::");
        if env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
            test.env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS_MAX);
        }
        let (log, succeeded) = suite::follow(test)?;
        if succeeded && log.passed == 0 {
            return Err(format!("{package}: no model has run"));
        }
        all_hold &= succeeded;
    }
    Ok(all_hold)
}
