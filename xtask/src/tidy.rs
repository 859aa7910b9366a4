//! House rules that no other tool checks: sizes of files, paths of a developer's machine, writes to
//! the standard streams, and a line in ARCHITECTURE.md for every dependency.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Result, root};

/// Maximum number of lines in a source file.
const LINES_MAX: usize = 600;
/// Maximum number of characters in a line of code, comments and texts included, which rustfmt does
/// not break.
const COLUMNS_MAX: usize = 100;
/// Prefixes of paths of a developer's machine. In two parts, because this file is checked as well.
const MACHINE_PATHS: [(&str, &str); 4] =
    [("/ho", "me/"), ("/ro", "ot/"), ("/wo", "rk/"), ("/Us", "ers/")];
/// Code that writes to the standard streams, in two parts, because this file is checked as well.
/// The macros panic if the stream is on a full disk, and all block if its reader does; so products
/// write by `tyche_console::output`, and log.
const STREAMS: [(&str, &str); 6] = [
    ("print", "!("),
    ("print", "ln!("),
    ("io::std", "out()"),
    ("io::std", "err()"),
    ("std", "out().lock"),
    ("std", "err().lock"),
];
/// Sources that write to them all the same: the one place for programs, a process that only answers
/// by its output, those without disks or links, and what is for tests.
const WRITERS: [&str; 6] = [
    "crates/attach/src/claim.rs",
    "crates/conformance/src/main.rs",
    "crates/console/src/output.rs",
    "crates/lab/src/sim.rs",
    "crates/sim/examples/",
    "crates/testkit/",
];
/// Crates without unsafe code.
const PURE: [&str; 22] = [
    "baseline",
    "cli",
    "conformance",
    "console",
    "control",
    "counters",
    "csi",
    "engine",
    "fc",
    "fc-wire",
    "fcf",
    "fcoe",
    "geometry",
    "native",
    "proto",
    "remote",
    "scsi",
    "session",
    "sim",
    "time",
    "wake",
    "wire",
];

/// All violations: file, line, rule.
pub(crate) fn check() -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in tracked()? {
        // Skips files that are not text, and deleted ones.
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        findings.extend(check_text(&file, &text));
    }
    findings.extend(check_dependencies()?);
    for name in PURE {
        let file = format!("crates/{name}/src/lib.rs");
        if !read(&root().join(&file))?.contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{file}: is to forbid unsafe code"));
        }
    }
    Ok(findings)
}

/// The files tracked by git.
fn tracked() -> Result<Vec<String>> {
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output();
    let listed = listed.map_err(|error| format!("git: {error}"))?;
    if !listed.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
}

/// Lines of products that write to the standard streams; not those of tests.
fn check_streams(file: &str, text: &str) -> Vec<String> {
    let is_product = file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs");
    let may_write = WRITERS.iter().any(|writer| file.starts_with(writer));
    if !is_product || may_write || file.ends_with("/tests.rs") {
        return Vec::new();
    }
    let code = (1..).zip(text.lines()).take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
    let writes = |line: &str| {
        let is_comment = line.trim_start().starts_with("//");
        !is_comment && STREAMS.iter().any(|(a, b)| line.contains(&format!("{a}{b}")))
    };
    code.filter(|(_, line)| writes(line))
        .map(|(number, _)| format!("{file}:{number}: write by `tyche_console::output`, or log"))
        .collect()
}

fn check_text(file: &str, text: &str) -> Vec<String> {
    let mut findings = check_streams(file, text);
    let is_code = file.ends_with(".rs");
    let lines = text.lines().count();
    if is_code && lines > LINES_MAX {
        findings.push(format!("{file}: {lines} lines; {LINES_MAX} at most"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        // A row of a table cannot be broken.
        let is_row = line.trim_start().starts_with("//! |");
        if is_code && columns > COLUMNS_MAX && !is_row {
            findings.push(format!("{file}:{number}: {columns} columns; {COLUMNS_MAX} at most"));
        }
        for (a, b) in MACHINE_PATHS {
            if line.contains(&format!("{a}{b}")) {
                findings.push(format!("{file}:{number}: a path of somebody's machine"));
            }
        }
    }
    findings
}

/// Checks that every dependency has a row in ARCHITECTURE.md's table, and every row a dependency.
fn check_dependencies() -> Result<Vec<String>> {
    let mut used = dependencies(&read(&root().join("bench/Cargo.toml"))?);
    let crates = root().join("crates");
    let entries =
        fs::read_dir(&crates).map_err(|error| format!("{}: {error}", crates.display()))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("{}: {error}", crates.display()))?;
        used.extend(dependencies(&read(&entry.path().join("Cargo.toml"))?));
    }
    let explained = explained(&read(&root().join("ARCHITECTURE.md"))?);
    let missing = used.difference(&explained);
    let missing = missing.map(|name| format!("ARCHITECTURE.md: no line about dependency {name}"));
    let idle = explained.difference(&used);
    let idle = idle.map(|name| format!("ARCHITECTURE.md: {name} is not a dependency"));
    Ok(missing.chain(idle).collect())
}

/// Names of the crates in a manifest, except our own.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
        } else if let (true, Some((name, _))) = (inside, line.split_once('=')) {
            let name = name.trim().trim_end_matches(".workspace");
            if name != "tyche" && !name.starts_with("tyche-") && !name.starts_with('#') {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// Names in the first column of the table about dependencies.
fn explained(text: &str) -> BTreeSet<String> {
    let section = text.split_once("## Dependencies").map_or("", |(_, section)| section);
    let rows = section.lines().take_while(|line| !line.starts_with("## "));
    let cells = rows.filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let names = cells.skip(2).flat_map(|cell| cell.split(','));
    names.map(|name| name.trim().trim_matches('`').to_owned()).collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_lines_and_foreign_paths_are_found() {
        let (line, path) = ("x".repeat(COLUMNS_MAX + 1), format!("see {}{}x", "/ho", "me/"));
        assert!(check_text("a.rs", &"y\n".repeat(LINES_MAX)).is_empty());
        assert_eq!(check_text("a.rs", &"y\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(check_text("a.rs", &line), ["a.rs:1: 101 columns; 100 at most"]);
        assert!(check_text("a.md", &line).is_empty());
        assert_eq!(check_text("a.md", &path), ["a.md:1: a path of somebody's machine"]);
    }

    #[test]
    fn writes_to_the_standard_streams_are_found_outside_of_tests() {
        let line = format!("    epri{}x\");\n", "ntln!(\"");
        let found = |file: &str, text: &str| check_text(file, text).len();
        assert_eq!(found("crates/cli/src/a.rs", &line), 1);
        assert_eq!(found("crates/cli/src/a.rs", &format!("std::io::std{}", "err()")), 1);
        assert_eq!(found("crates/cli/src/a.rs", &format!("    /// {}", line.trim())), 0);
        assert_eq!(found("crates/cli/src/a.rs", &format!("#[cfg(test)]\n{line}")), 0);
        for file in ["crates/console/src/output.rs", "crates/cli/tests/a.rs", "bench/src/a.rs"] {
            assert_eq!(found(file, &line), 0, "{file}");
        }
    }

    #[test]
    fn dependencies_are_compared_by_name() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\ntyche-wire.workspace = true\n\
            clap = { version = \"4\" }\n\n[dev-dependencies]\nproptest = \"1\"\n[lints]\nx = 1\n";
        let wanted = ["clap", "proptest"].map(str::to_owned).into();
        assert_eq!(dependencies(manifest), wanted);
        let table = "| no | table |\n## Dependencies\n\n| crate | for |\n|---|---|\n\
            | clap, `proptest` | x |\n\n## More\n| y |\n";
        assert_eq!(explained(table), wanted);
    }
}
