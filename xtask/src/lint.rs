//! Format, lints and house rules: shows all findings, not only the first.

use std::process::Stdio;

use crate::{Result, cargo, succeeds, tidy};

/// Runs all checks; false if any found something.
pub(crate) fn run() -> Result<bool> {
    let mut clean = check("format", &["fmt", "--all", "--", "--check"])?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    clean &= check("clippy", &clippy)?;
    clean &= tidy()?;
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

fn tidy() -> Result<bool> {
    let untidy = tidy::check()?;
    for finding in &untidy {
        println!("{finding}");
    }
    say("house rules", untidy.is_empty());
    Ok(untidy.is_empty())
}

fn say(name: &str, clean: bool) {
    println!("lint: {name} {}", if clean { "clean" } else { "NOT CLEAN" });
}
