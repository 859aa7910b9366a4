//! Programs that cargo builds, and that we run ourselves: benches whose events are counted, tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{Result, cargo};

/// Builds a bench of a package for release; returns its path.
pub(crate) fn bench(package: &str, bench: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["bench", "--no-run", "--package", package, "--bench", bench]);
    built(build.args(MESSAGES))
}

/// Builds the unit tests of a package, that crate alone with more flags of the compiler; returns
/// their path.
pub(crate) fn unit_tests(package: &str, flags: &[&str]) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["rustc", "--package", package, "--lib", "--profile", "test"]);
    built(build.args(MESSAGES).arg("--").args(flags))
}

/// How cargo says what it has built.
const MESSAGES: [&str; 2] = ["--message-format", "json-render-diagnostics"];

fn built(build: &mut Command) -> Result<PathBuf> {
    let messages = output(build.stderr(Stdio::inherit()))?;
    executable(&messages).ok_or_else(|| "cargo does not say what it has built".to_owned())
}

/// The program among cargo's messages: JSON, one object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    let paths = messages.lines().filter_map(|line| line.split_once("\"executable\":\""));
    paths.filter_map(|(_, rest)| rest.split('"').next()).next_back().map(PathBuf::from)
}

/// The output of a command; on failure, the error has its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_says_is_understood() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/t/a-1\",\"fresh\":true}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/a-1")));
        assert_eq!(executable("{\"executable\":null}"), None);
    }
}
