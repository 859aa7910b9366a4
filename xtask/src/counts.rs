//! `cargo xtask counts`: the cost of a 4 KiB request in shared resources (atomic instructions,
//! cache lines, wake-ups, context switches), compared with the checked-in counts. Needs root, for a
//! network namespace.
//!
//! Each case (`crates/libtyche/benches/counts.rs`) is run twice. Under valgrind's lackey every
//! instruction and every access to memory is in a trace, and which thread runs: from this come
//! atomic instructions, cache lines and wake-ups. Without valgrind, threads spin as they do in use;
//! from this come voluntary context switches. What the kernel does within its calls is in neither.

mod code;
mod trace;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{self, output};
use crate::{Result, packages, root, target_dir};
use code::Code;
use trace::Trace;

const SNAPSHOT: &str = "crates/libtyche/benches/counts.txt";
const NEEDS: &[packages::Need] = &[
    ("addr2line", "binutils"),
    ("ip", "iproute2"),
    ("objdump", "binutils"),
    ("unshare", "util-linux"),
    ("valgrind", "valgrind"),
];
/// Turns of each thread, and requests in each, in the trace: threads alternate after every request,
/// so that each line that two of them write moves for each request.
const TRACED: [&str; 2] = ["16", "1"];
/// The same without valgrind: enough to see one switch in a thousand requests.
const SPINNING: [&str; 2] = ["1", "2000"];
/// Runs the rest of its arguments beside a veth pair, in a network namespace that ends with it. A
/// frame holds one page: the trace would be too slow for probes of longer ones.
const IN_NAMESPACE: &str = "ip link add counts0 mtu 4196 type veth peer name counts1 mtu 4196 && \
    ip link set counts0 up && ip link set counts1 up && exec \"$@\"";
/// Maximum growth that counts as noise, such as a frame sent again: less than one instruction for
/// each request.
const GROWTH_MAX: f64 = 0.9;
/// The same for atomic instructions if the threads sleep in the trace: how often they sleep varies.
const GROWTH_MAX_ASLEEP: f64 = 5.0;

/// The columns: four counts from the trace, and voluntary context switches.
const COLUMNS: [&str; 5] = ["locks", "atomics", "lines", "wakes", "switches"];

/// Counts and compares, or rewrites the snapshot; false if a count has grown.
pub(crate) fn run(bless: bool) -> Result<bool> {
    packages::install(NEEDS)?;
    let program = program::bench("libtyche", "counts")?;
    let path = root().join(SNAPSHOT);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let before = parse(&before);
    let mut snapshot = String::from(
        "# Per 4 KiB request, by `cargo xtask counts --bless`. Atomics: read-modify-write\n\
         # instructions, those of locks included. See crates/lab/README.md.\n",
    );
    let _ = writeln!(snapshot, "{}", row("# case", &COLUMNS.map(str::to_owned)));
    println!("{}", row("case", &COLUMNS.map(str::to_owned)));
    let mut findings = Vec::new();
    for case in output(&mut Command::new(&program))?.lines() {
        let (name, sleeps) = case.strip_suffix(" sleeps").map_or((case, false), |it| (it, true));
        let before = before.get(name);
        let grown = |counts: &[f64; COLUMNS.len()]| {
            before.map_or(Vec::new(), |it| grown(name, sleeps, it, counts))
        };
        let (mut counts, mut places) = count(&program, name)?;
        // On a busy machine the traced side may be so slow that its peer connects again.
        for _ in 0..2 {
            if !grown(&counts).is_empty() {
                (counts, places) = count(&program, name)?;
            }
        }
        let shown = row(name, &counts.map(|count| format!("{count:.1}")));
        println!("{shown}\n{places}");
        let _ = writeln!(snapshot, "{shown}");
        findings.extend(grown(&counts));
        if before.is_none() {
            findings.push(format!("{name} is not in {SNAPSHOT}"));
        }
    }
    if bless {
        fs::write(&path, snapshot).map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok(true);
    }
    findings.iter().for_each(|finding| println!("counts: {finding}"));
    Ok(findings.is_empty())
}

fn row(name: &str, cells: &[String; COLUMNS.len()]) -> String {
    cells.iter().fold(format!("{name:<18}"), |row, cell| row + &format!(" {cell:>9}"))
}

/// The counts of a snapshot, by case.
fn parse(snapshot: &str) -> BTreeMap<String, [f64; COLUMNS.len()]> {
    let lines = snapshot.lines().filter(|line| !line.starts_with('#'));
    let cases = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let counts: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        Some((name, counts.try_into().ok()?))
    });
    cases.collect()
}

fn grown(
    name: &str,
    sleeps: bool,
    before: &[f64; COLUMNS.len()],
    counts: &[f64; COLUMNS.len()],
) -> Vec<String> {
    let columns = COLUMNS.iter().zip(before.iter().zip(counts));
    let max = |column| if sleeps && column == "atomics" { GROWTH_MAX_ASLEEP } else { GROWTH_MAX };
    let grown = columns.filter(|(column, (before, count))| **count > **before + max(**column));
    let finding = |(column, (before, count)): (&&str, (&f64, &f64))| {
        format!("{name}: {count:.1} {column} per request, and {before:.1} in {SNAPSHOT}")
    };
    grown.map(finding).collect()
}

/// The counts of a case, and where in the code they come from.
fn count(program: &Path, name: &str) -> Result<([f64; COLUMNS.len()], String)> {
    let dir = target_dir().join("counts");
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let log = dir.join(format!("{name}.trace"));
    let said = run_traced(program, name, &log)?;
    let code = Code::of(&said)?;
    let trace = Trace::read(&log, &code)?;
    fs::remove_file(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let requests = number(&said, "requests ")?;
    let mut places = String::new();
    let locks = code.locks(&trace.atomics)?;
    for (what, found) in [("lock", &locks), ("atomic", &trace.atomics), ("line", &trace.lines)] {
        for (place, count) in code.places(found)? {
            let _ = writeln!(places, "  {:>5.1} {what}: {place}", count as f64 / requests);
        }
    }
    // Events in less than a quarter of the requests come from timers, not from requests.
    let total = |found: &BTreeMap<u64, u64>| {
        let each = found.values().map(|count| *count as f64 / requests);
        each.filter(|count| *count >= 0.25).fold(0.0, |sum, count| sum + count)
    };
    let said = output(in_namespace("env").arg(program).arg(name).args(SPINNING))?;
    let switches = number(&said, "switches ")? / number(&said, "requests ")?;
    let wakes = trace.wakes as f64 / requests;
    let [locks, atomics, lines] = [&locks, &trace.atomics, &trace.lines].map(total);
    Ok(([locks, atomics, lines, wakes, switches], places))
}

/// Runs a case under valgrind; returns its output.
fn run_traced(program: &Path, name: &str, log: &Path) -> Result<String> {
    let mut traced = in_namespace("valgrind");
    traced.args(["--tool=lackey", "--trace-mem=yes", "--trace-sched=yes", "--trace-syscalls=yes"]);
    // A thread that wakes runs next, rather than after the time slice of one that spins.
    traced.arg("--fair-sched=yes");
    traced.arg(format!("--log-file={}", log.display()));
    traced.arg(program).arg(name).args(TRACED).arg("traced");
    // It is a thousand times slower than usual: on a busy machine the host may not wait that long.
    output(&mut traced).or_else(|_| output(&mut traced)).or_else(|_| output(&mut traced))
}

fn in_namespace(program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", IN_NAMESPACE, "sh", program]);
    // With debuginfod in the environment valgrind would ask for symbols.
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    // For the locks on ports of FCoE.
    command.env("TYCHE_RUNTIME_DIR", target_dir().join("counts"));
    command
}

/// The number in the program's line with this prefix.
fn number(said: &str, prefix: &str) -> Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix(prefix));
    line.and_then(|line| line.parse().ok()).ok_or_else(|| format!("no `{prefix}` in: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_grew_is_found() {
        let before = parse("# case a\ninline 0.0 2.0 0.0 0.0 0.0\nqueue 1.0 9.0 1.0 2.0 0.0\n");
        assert_eq!(before["queue"], [1.0, 9.0, 1.0, 2.0, 0.0]);
        assert!(grown("inline", false, &before["inline"], &[0.0, 2.8, 0.0, 0.0, 0.1]).is_empty());
        let found = grown("inline", false, &before["inline"], &[0.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("inline: 1.0 lines per request"), "{found:?}");
    }
}
