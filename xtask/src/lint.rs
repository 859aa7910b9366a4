//! Format, lints and house rules: shows all findings, not only the first.

use std::process::Stdio;

use crate::{Result, cargo, structure, succeeds, tidy};

/// Runs all checks; false if any found something.
pub(crate) fn run() -> Result<bool> {
    let mut clean = check("format", &["fmt", "--all", "--", "--check"])?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    clean &= check("clippy", &clippy)?;
    // Alone, for it leaves out what the others enable.
    let library = ["clippy", "--package", "libtyche", "--quiet", "--", "-D", "warnings"];
    clean &= check("clippy of the library", &library)?;
    clean &= show("house rules", &tidy::check()?);
    clean &= show("structure", &structure::check()?);
    let has_deny = cargo()
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_deny {
        clean &= check("dependencies", &["deny", "--log-level", "error", "check"])?;
    } else {
        println!("lint: dependencies not checked: cargo-deny is not installed");
    }
    Ok(clean)
}

fn check(name: &str, args: &[&str]) -> Result<bool> {
    let clean = succeeds(cargo().args(args))?;
    say(name, clean);
    Ok(clean)
}

fn show(name: &str, findings: &[String]) -> bool {
    for finding in findings {
        println!("{finding}");
    }
    say(name, findings.is_empty());
    findings.is_empty()
}

fn say(name: &str, clean: bool) {
    println!("lint: {name} {}", if clean { "clean" } else { "NOT CLEAN" });
}
