//! All tests of the workspace, the end-to-end tests in `crates/cli/tests` among them.
//!
//! A test that cannot run on this machine prints a line that begins with `SKIPPED`. The test
//! framework shows the output of passing tests only with `--show-output`; so this command sets it,
//! collects those lines, and hides the rest of that output. The list of skips comes at the end, and
//! the last line is `N passed, N failed`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::{Result, cargo, packages, root, target_dir};

/// Names of tests that may be skipped in CI, with reasons.
const ALLOWED: &str = "xtask/skips.txt";
/// Tests that a program runs at a time. Those that take longest wait for timers and kills, and
/// leave the processors idle. Tests that load them run alone.
const THREADS: (&str, &str) = ("RUST_TEST_THREADS", "4");

/// Runs the tests; false if one failed, or was skipped in CI without being listed.
pub(crate) fn run() -> Result<bool> {
    packages::install(packages::DEMO)?;
    packages::install(packages::TEST)?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    // Cargo builds it before it runs the first test.
    command.env("TYCHE_LAB", root().join(target_dir()).join("debug/tyche-lab"));
    if std::env::var_os(THREADS.0).is_none() {
        command.env(THREADS.0, THREADS.1);
    }
    let (log, succeeded) = follow(command)?;
    let allowed = fs::read_to_string(root().join(ALLOWED));
    let allowed = allowed.map_err(|error| format!("{ALLOWED}: {error}"))?;
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut unlisted = 0;
    for skip in &log.skips {
        let listed = is_listed(&skip.test, &allowed);
        unlisted += usize::from(!listed);
        let note = if in_ci && !listed {
            format!(" (not in {ALLOWED}: a failure)")
        } else {
            String::new()
        };
        println!("SKIPPED {}: {}{note}", skip.test, skip.reason);
    }
    let failed = log.failed + if in_ci { unlisted } else { 0 };
    let passed = log.passed.saturating_sub(log.skips.len());
    if !succeeded && log.failed == 0 {
        return Err("cargo test failed before all tests had run".to_owned());
    }
    println!("{passed} passed, {failed} failed");
    Ok(succeeded && failed == 0)
}

/// Runs the tests and shows their output as it comes, without the output of passing tests.
pub(crate) fn follow(mut command: Command) -> Result<(Log, bool)> {
    let explain = |error| format!("run the tests: {error}");
    let (reader, writer) = std::io::pipe().map_err(explain)?;
    command.stderr(writer.try_clone().map_err(explain)?).stdout(writer);
    let mut child = command.spawn().map_err(explain)?;
    // The output ends only when our copies of the writing end are closed.
    drop(command);
    let mut log = Log::default();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(explain)?;
        let line = String::from_utf8_lossy(&line);
        if log.take(&line) {
            println!("{line}");
        }
    }
    Ok((log, child.wait().map_err(explain)?.success()))
}

/// A test that could not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) test: String,
    pub(crate) reason: String,
}

/// The results in the output of the tests so far.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Whether the current line is output of a passing test.
    in_successes: bool,
    /// The test whose output is shown.
    test: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skips: Vec<Skip>,
    /// Results that tests have printed, after `RESULT`.
    pub(crate) printed: Vec<String>,
    /// Tests that have run, and whether they passed.
    pub(crate) results: Vec<(String, bool)>,
}

impl Log {
    /// Takes a line; returns whether to show it.
    fn take(&mut self, line: &str) -> bool {
        if line == "successes:" || line == "failures:" {
            self.in_successes = line == "successes:";
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.in_successes = false;
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
        } else if let Some(result) = outcome(line) {
            self.results.push(result);
        } else if let Some(test) = heading(line) {
            test.clone_into(&mut self.test);
        } else if let Some(skip) = line.strip_prefix("SKIPPED") {
            let reason = skip.trim_start_matches(':').trim().to_owned();
            self.skips.push(Skip { test: self.test.clone(), reason });
        } else if let Some(result) = line.strip_prefix("RESULT ") {
            self.printed.push(format!("{}: {result}", self.test));
        }
        !self.in_successes
    }
}

/// The name in `---- NAME stdout ----`.
fn heading(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" ----")?.split(' ').next()
}

/// The name and the result in `test NAME ... ok`.
fn outcome(line: &str) -> Option<(String, bool)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (result == "ok" || result == "FAILED").then(|| (name.to_owned(), result == "ok"))
}

/// The number before a word.
fn count(result: &str, word: &str) -> usize {
    let before = result.split(word).next().unwrap_or_default();
    before.split_whitespace().next_back().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn is_listed(test: &str, allowed: &str) -> bool {
    let lines = allowed.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": ")).any(|(name, _)| name == test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_and_results_are_picked_out() {
        let output = "running 3 tests\ntest a ... ok\ntest c ... FAILED\n\nsuccesses:\n\n\
            ---- a::b stdout ----\n\
            SKIPPED: no kernel\nother words\n\nsuccesses:\n    a::b\n\nfailures:\n\n\
            ---- c stdout ----\nthread panicked\n\nfailures:\n    c\n\n\
            test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let mut log = Log::default();
        let shown: Vec<_> = output.lines().filter(|line| log.take(line)).collect();
        assert_eq!((log.passed, log.failed), (12, 1));
        let skip = Skip { test: "a::b".to_owned(), reason: "no kernel".to_owned() };
        assert_eq!(log.skips, [skip]);
        assert_eq!(log.results, [("a".to_owned(), true), ("c".to_owned(), false)]);
        assert!(shown.contains(&"thread panicked") && !shown.contains(&"other words"));
    }

    #[test]
    fn only_listed_skips_are_allowed() {
        let allowed = "# a: comment\nb::c: no kernel module\n";
        assert!(is_listed("b::c", allowed));
        assert!(!is_listed("a", allowed) && !is_listed("b", allowed));
    }
}
