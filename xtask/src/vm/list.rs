//! `cargo xtask vm`: tests of block devices on Debian's kernels.
//!
//! The tests are those of `crates/cli/tests/vm`. They run on this machine, with guests on a bridge
//! in a network namespace of their own. Their names say what they prove: `ATTACHMENT::WHAT`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;

use super::kernel::Series;
use super::{debian, image, postgres};
use crate::suite::{Skip, follow};
use crate::{Result, cargo, packages};

/// Runs the tests whose names contain `filter`; false if one failed.
pub(crate) fn run(filter: Option<&OsString>) -> Result<bool> {
    packages::install(packages::VM)?;
    packages::install(packages::GUEST)?;
    // Without them, the tests that need these cards are left out.
    if filter.is_some_and(|filter| filter.to_string_lossy().contains("nics")) && !has_igb()? {
        packages::install_backport("qemu-system-x86")?;
    }
    for series in [Series::V6_1, Series::V6_12] {
        image::make(series)?;
    }
    // Without this kernel, its tests are left out.
    image::make_if_known(Series::V7)?;
    let is_wanted = |what| filter.is_none_or(|filter| filter.to_string_lossy().contains(what));
    if ["systemd", "first_day", "thin"].into_iter().any(is_wanted) {
        debian::make()?;
    }
    if is_wanted("postgres") {
        postgres::make()?;
    }
    let began = Instant::now();
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--test", "vm"]).env("TYCHE_VM", super::dir()?);
    tests.args(["--", "--include-ignored", "--test-threads", "1", "--show-output"]).args(filter);
    // This test is a comparison, which `cargo xtask vm peers` runs.
    tests.args(["--skip", "peers::compare"]);
    let (log, succeeded) = follow(tests)?;
    println!("\n{}", table(&log.results, &log.skips));
    log.printed.iter().for_each(|result| println!("{result}"));
    for skip in &log.skips {
        println!("{}: {}", skip.test, skip.reason);
    }
    println!(
        "{} passed, {} failed, in {} minutes",
        log.passed,
        log.failed,
        began.elapsed().as_secs().div_ceil(60)
    );
    Ok(succeeded && log.failed == 0)
}

/// Whether the emulator has the newest of the network cards (QEMU 8.0).
fn has_igb() -> Result<bool> {
    let devices = Command::new("qemu-system-x86_64").args(["-device", "help"]).output();
    let devices = devices.map_err(|error| format!("qemu-system-x86_64: {error}"))?;
    Ok(String::from_utf8_lossy(&devices.stdout).contains("\"igb\""))
}

/// The table of results: a row for each property, a column for each attachment.
fn table(results: &[(String, bool)], skips: &[Skip]) -> String {
    let mut rows: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    let mut columns: BTreeMap<&str, ()> = BTreeMap::new();
    for (name, passed) in results {
        let Some((attachment, what)) = name.split_once("::") else { continue };
        let skipped = skips.iter().any(|skip| &skip.test == name);
        let result = match (passed, skipped) {
            (false, _) => "FAILED",
            (true, true) => "cannot",
            (true, false) => "passed",
        };
        rows.entry(what).or_default().insert(attachment, result);
        columns.insert(attachment, ());
    }
    let mut text = format!("{:<32}", "");
    for column in columns.keys() {
        text += &format!("{column:<10}");
    }
    for (what, results) in rows {
        text = format!("{}\n{what:<32}", text.trim_end());
        for column in columns.keys() {
            text += &format!("{:<10}", results.get(column).unwrap_or(&"-"));
        }
    }
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_a_table() {
        let results = [("nbd::trim", true), ("ublk::trim", true), ("ublk::cut", false)];
        let results = results.map(|(name, passed)| (name.to_owned(), passed));
        let skip = Skip { test: "nbd::trim".to_owned(), reason: "no".to_owned() };
        let table = table(&results, &[skip]);
        let rows: Vec<Vec<_>> = table.lines().map(|it| it.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["nbd", "ublk"]);
        assert_eq!(rows[1], ["cut", "-", "FAILED"]);
        assert_eq!(rows[2], ["trim", "cannot", "passed"]);
    }
}
