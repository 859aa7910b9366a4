//! `cargo xtask exports`: a thousand exports come and go beside eight sessions that verify their
//! disks. The tests are those of `crates/cli/tests/e2e/churn.rs` that no other command runs.

use crate::suite::follow;
use crate::{Result, cargo, packages, root, succeeds, target_dir};

/// Runs the tests; false if one failed.
pub(crate) fn run() -> Result<bool> {
    packages::install(packages::DEMO)?;
    packages::install(packages::TEST)?;
    if !succeeds(cargo().args(["build", "--package", "tyche", "--package", "tyche-lab"]))? {
        return Err("the programs can't be built: see above".to_owned());
    }
    let mut tests = cargo();
    tests.args(["test", "--package", "tyche", "--test", "e2e", "--", "--ignored", "churn::"]);
    tests.args(["--test-threads", "1", "--show-output"]);
    tests.env("TYCHE_LAB", root().join(target_dir()).join("debug/tyche-lab"));
    let (log, succeeded) = follow(tests)?;
    log.printed.iter().for_each(|result| println!("{result}"));
    log.skips.iter().for_each(|skip| println!("SKIPPED {}: {}", skip.test, skip.reason));
    println!("{} passed, {} failed", log.passed - log.skips.len(), log.failed);
    Ok(succeeded && log.failed == 0)
}
