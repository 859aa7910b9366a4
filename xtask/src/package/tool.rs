//! Programs that make packages, and what is known of the packaged commit.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Result, root as repository};

/// The version of packages, which is that of the whole workspace.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The package's maintainer, from the variables that all of Debian's tools use.
pub(super) fn maintainer() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("DEBFULLNAME").unwrap_or_else(|| "The Tyche authors".to_owned());
    let email = variable("DEBEMAIL").unwrap_or_else(|| "nobody@tyche.invalid".to_owned());
    format!("{name} <{email}>")
}

/// A value of the packaged commit, by a `format` of `git log`; `%cd` is its day as RPM wants it.
pub(super) fn commit(format: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(repository()).args(["log", "-1", "--date=format:%a %b %d %Y"]);
    git.arg(format!("--format={format}"));
    Ok(output(&mut git)?.trim().to_owned())
}

pub(super) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The output of a command.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{name} ({}): {text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs a command that prints nothing unless it fails.
pub(super) fn run_tool(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}
