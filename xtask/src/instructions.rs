//! `cargo xtask instructions`: the number of instructions on the hot path, compared with the
//! checked-in counts. Each case is one process under callgrind, which counts the instructions
//! within one of its functions: the same to the last digit in every run, whatever else the machine
//! does.
//!
//! Besides the code, only the compiler changes counts. So the snapshot names its compiler, the
//! limit is wider for another one, and counts of another architecture are shown but not judged. The
//! processor does not matter: callgrind shows programs the same one on every machine with AVX2.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{self, output};
use crate::{Result, packages, root, target_dir};

/// The packages with cases, and their directories.
const PACKAGES: [(&str, &str); 2] = [("tyche-proto", "proto"), ("tyche-fc", "fc")];
/// The counted function of the cases.
const COUNTED: &str = "tyche_testkit::instructions::counted";
/// Maximum growth in percent.
const GROWTH_MAX: f64 = 5.0;
/// Maximum growth in percent if the compiler is not that of the snapshot.
const GROWTH_MAX_OTHER_COMPILER: f64 = 20.0;
const NEEDS: &[packages::Need] = &[("valgrind", "valgrind")];

/// Counts and compares, or rewrites the snapshots; false if a count is wrong.
pub(crate) fn run(bless: bool) -> Result<bool> {
    packages::install(NEEDS)?;
    let compiler = Compiler::installed()?;
    let mut is_good = true;
    for (package, dir) in PACKAGES {
        println!("{package}:");
        let program = program::bench(package, "instructions")?;
        let profiles = target_dir().join("instructions").join(dir);
        let counts = count_all(&program, &profiles)?;
        let snapshot = format!("crates/{dir}/benches/instructions/counts.txt");
        is_good &= judge(&compiler, &counts, &snapshot, &profiles, bless)?;
    }
    Ok(is_good)
}

/// Counts all cases of a program; their profiles are kept.
fn count_all(program: &Path, profiles: &Path) -> Result<Vec<Count>> {
    fs::create_dir_all(profiles).map_err(|error| format!("{}: {error}", profiles.display()))?;
    let cases = cases(program)?.into_iter();
    cases.map(|(name, operations)| count(program, name, operations, profiles)).collect()
}

/// Compares counts with a snapshot, or writes it anew; false if one is wrong.
fn judge(
    compiler: &Compiler,
    counts: &[Count],
    file: &str,
    profiles: &Path,
    bless: bool,
) -> Result<bool> {
    let path = root().join(file);
    let before = fs::read_to_string(&path).ok();
    let before = before.as_deref().and_then(Snapshot::parse);
    print!("{}", table(counts, before.as_ref()));
    if bless {
        fs::write(&path, Snapshot::of(compiler.clone(), counts).to_string())
            .map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok(true);
    }
    let snapshot = before.ok_or_else(|| {
        format!("{file} is no snapshot; `cargo xtask instructions --bless` writes one")
    })?;
    let growth_max = snapshot.growth_max(compiler);
    let findings = growth_max.map_or(Vec::new(), |max| snapshot.findings(counts, max));
    for finding in &findings {
        println!("{file}: {finding}");
    }
    if !findings.is_empty() {
        println!("{file}: `callgrind_annotate {}/CASE.callgrind` says where", profiles.display());
        println!("{file}: if it is worth it, `cargo xtask instructions --bless`");
    }
    Ok(findings.is_empty())
}

/// The compiler, as rustc describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Compiler {
    version: String,
    /// The target of its code.
    host: String,
}

impl Compiler {
    fn installed() -> Result<Self> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = output(Command::new(rustc).arg("-vV").current_dir(root()))?;
        let host = output.lines().find_map(|line| line.strip_prefix("host: "));
        match (output.lines().next(), host) {
            (Some(version), Some(host)) => {
                Ok(Self { version: version.to_owned(), host: host.to_owned() })
            }
            _ => Err(format!("rustc -vV says something else: {output}")),
        }
    }
}

/// A counted case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Count {
    name: String,
    operations: u64,
    instructions: u64,
}

impl Count {
    fn per_operation(&self) -> f64 {
        self.instructions as f64 / self.operations as f64
    }
}

/// The checked-in counts.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    compiler: Compiler,
    /// Names, and instructions per operation.
    counts: Vec<(String, u64)>,
}

impl Snapshot {
    fn of(compiler: Compiler, counts: &[Count]) -> Self {
        let counts = counts.iter().map(|count| (count.name.clone(), rounded(count)));
        Self { compiler, counts: counts.collect() }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let compiler = Compiler {
            version: lines.next()?.to_owned(),
            host: lines.next()?.strip_prefix("for ")?.to_owned(),
        };
        let counts = lines.map(|line| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        });
        Some(Self { counts: counts.collect::<Option<_>>()?, compiler })
    }

    fn find(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(known, _)| known == name).map(|&(_, count)| count)
    }

    /// Maximum growth in percent for counts of a compiler; prints a note if it is not the usual
    /// one. `None`: the counts are not comparable.
    fn growth_max(&self, compiler: &Compiler) -> Option<f64> {
        if self.compiler.host != compiler.host {
            let (theirs, ours) = (&self.compiler.host, &compiler.host);
            println!("instructions: shown only: the snapshot is of {theirs}, and this is {ours}");
            return None;
        }
        if self.compiler.version == compiler.version {
            return Some(GROWTH_MAX);
        }
        let (theirs, ours) = (&self.compiler.version, &compiler.version);
        println!("instructions: the snapshot is of {theirs}, and this is {ours}:");
        println!("instructions: up to {GROWTH_MAX_OTHER_COMPILER} % of growth are let pass");
        Some(GROWTH_MAX_OTHER_COMPILER)
    }

    /// The differences that fail the check.
    fn findings(&self, counts: &[Count], growth_max: f64) -> Vec<String> {
        let mut findings = Vec::new();
        for count in counts {
            match self.find(&count.name).map(|before| growth(count, before)) {
                None => findings.push(format!("{} is not in it", count.name)),
                Some(growth) if growth > growth_max => findings.push(format!(
                    "{} takes {growth:.1} % more than in it; {growth_max} % at most",
                    count.name
                )),
                Some(_) => {}
            }
        }
        let is_known = |name: &str| counts.iter().any(|count| count.name == name);
        let gone = self.counts.iter().filter(|(name, _)| !is_known(name));
        findings.extend(gone.map(|(name, _)| format!("{name} is no case any more")));
        findings
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Instructions per operation; `cargo xtask instructions --bless` writes them."
        )?;
        writeln!(f, "{}\nfor {}", self.compiler.version, self.compiler.host)?;
        self.counts.iter().try_for_each(|(name, count)| writeln!(f, "{name:<24} {count:>8}"))
    }
}

fn rounded(count: &Count) -> u64 {
    count.per_operation().round() as u64
}

/// Growth in percent. The snapshot has whole instructions.
fn growth(count: &Count, before: u64) -> f64 {
    (rounded(count) as f64 - before as f64) * 100.0 / before as f64
}

fn table(counts: &[Count], snapshot: Option<&Snapshot>) -> String {
    let row = |[name, instructions, operations, per_operation, before, change]: [&str; 6]| {
        let cells = format!("{name:<24} {instructions:>12} {operations:>10} {per_operation:>13}");
        format!("{cells} {before:>8} {change:>8}\n")
    };
    let heading = ["case", "instructions", "operations", "per operation", "before", "change"];
    let mut table = row(heading);
    for count in counts {
        let before = snapshot.and_then(|snapshot| snapshot.find(&count.name));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table += &row([
            &count.name,
            &count.instructions.to_string(),
            &count.operations.to_string(),
            &format!("{:.1}", count.per_operation()),
            &or_dash(before.map(|before| before.to_string())),
            &or_dash(before.map(|before| format!("{:+.1} %", growth(count, before)))),
        ]);
    }
    table
}

/// The cases of the program, each with its number of operations.
fn cases(program: &Path) -> Result<Vec<(String, u64)>> {
    let listed = output(&mut Command::new(program))?;
    let case = |line: &str| {
        let (name, operations) = line.split_once(' ')?;
        Some((name.to_owned(), operations.parse().ok().filter(|&it| it > 0)?))
    };
    let cases: Option<Vec<_>> = listed.lines().map(case).collect();
    cases.ok_or_else(|| format!("{}: not a list of cases: {listed}", program.display()))
}

/// Runs a case under callgrind.
fn count(program: &Path, name: String, operations: u64, dir: &Path) -> Result<Count> {
    let profile = dir.join(format!("{name}.callgrind"));
    let mut valgrind = Command::new("valgrind");
    // The environment is on the stack, and with debuginfod in it valgrind would ask for symbols.
    valgrind.env_clear().env("PATH", "/usr/bin:/bin");
    valgrind.args(["--tool=callgrind", &format!("--toggle-collect={COUNTED}")]);
    valgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    output(valgrind.arg(program).arg(&name))?;
    let text = fs::read_to_string(&profile);
    let text = text.map_err(|error| format!("{}: {error}", profile.display()))?;
    match total(&text) {
        Some(instructions) if instructions > 0 => Ok(Count { name, operations, instructions }),
        _ => Err(format!("{name}: nothing was counted: is there a function {COUNTED}?")),
    }
}

/// The total count in a profile of callgrind.
fn total(profile: &str) -> Option<u64> {
    profile.lines().find_map(|line| line.strip_prefix("totals: "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler(version: &str, host: &str) -> Compiler {
        Compiler { version: version.to_owned(), host: host.to_owned() }
    }

    fn counted(name: &str, instructions: u64) -> Count {
        Count { name: name.to_owned(), operations: 2, instructions }
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let counts = [counted("a", 201), counted("longer_name", 4_000_000_000)];
        let snapshot = Snapshot::of(compiler("rustc 1.0.0 (0 1970-01-01)", "x86"), &counts);
        assert_eq!(snapshot.counts[0], ("a".to_owned(), 101), "rounded");
        assert_eq!(Snapshot::parse(&snapshot.to_string()), Some(snapshot));
        assert_eq!(Snapshot::parse("rustc 1.0.0\nfor x86\na one\n"), None);
        assert_eq!(Snapshot::parse(""), None);
    }

    #[test]
    fn growth_and_strangers_are_found() {
        let before = [counted("same", 2000), counted("grown", 2000), counted("gone", 2)];
        let snapshot = Snapshot::of(compiler("1", "x86"), &before);
        let counts = [counted("same", 2100), counted("grown", 2102), counted("new", 2)];
        let findings = snapshot.findings(&counts, 5.0);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].starts_with("grown takes 5.1 % more"), "{findings:?}");
        assert!(findings[1].starts_with("new is not in it"), "{findings:?}");
        assert!(findings[2].starts_with("gone is no case"), "{findings:?}");
        assert!(snapshot.findings(&before, 5.0).is_empty());
    }

    #[test]
    fn the_bound_goes_with_the_compiler() {
        let snapshot = Snapshot::of(compiler("1", "x86"), &[]);
        assert_eq!(snapshot.growth_max(&compiler("1", "x86")), Some(GROWTH_MAX));
        let other = snapshot.growth_max(&compiler("2", "x86"));
        assert_eq!(other, Some(GROWTH_MAX_OTHER_COMPILER));
        assert_eq!(snapshot.growth_max(&compiler("1", "arm")), None);
    }

    #[test]
    fn what_callgrind_says_is_understood() {
        assert_eq!(total("events: Ir\nsummary: 7\n\ntotals: 12\n"), Some(12));
        assert_eq!(total("events: Ir\n"), None);
    }
}
