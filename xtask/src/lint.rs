//! Format, lints and house rules: shows all findings, not only the first.

use crate::{Result, cargo, deny, rust_version, structure, succeeds, tidy};

/// Runs all checks; false if any found something.
pub(crate) fn run() -> Result<bool> {
    let mut clean = quick()?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    clean &= check("clippy", &clippy)?;
    // Alone, for it leaves out what the others enable.
    let library = ["clippy", "--package", "libtyche", "--quiet", "--", "-D", "warnings"];
    clean &= check("clippy of the library", &library)?;
    // First, for the command of the same name writes its documentation over it.
    let library = document(&["--package", "libtyche", "--lib"])?;
    let documented = library & document(&["--workspace"])?;
    say("documentation", documented);
    clean &= documented;
    let has_allowed_dependencies = deny::run()?;
    say("dependencies", has_allowed_dependencies);
    clean &= has_allowed_dependencies;
    Ok(clean)
}

/// Runs those that compile nothing: in a second, before each commit.
pub(crate) fn quick() -> Result<bool> {
    let mut clean = check("format", &["fmt", "--all", "--", "--check"])?;
    clean &= show("house rules", &tidy::check()?);
    clean &= show("structure", &structure::check()?);
    clean &= show("rust-version", &rust_version::check()?);
    Ok(clean)
}

fn check(name: &str, args: &[&str]) -> Result<bool> {
    let clean = succeeds(cargo().args(args))?;
    say(name, clean);
    Ok(clean)
}

/// Makes the documentation; false if it has warnings, such as links to nowhere.
fn document(what: &[&str]) -> Result<bool> {
    let mut doc = cargo();
    doc.args(["doc", "--no-deps", "--document-private-items", "--quiet"]).args(what);
    succeeds(doc.env("RUSTDOCFLAGS", "-D warnings"))
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
