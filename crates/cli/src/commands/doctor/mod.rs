//! `tyche doctor`: looks for what is wrong with this machine, or could be better, and says what to
//! do.
//!
//! A theme is a file here: a function from the [machine](machine::Machine) to findings. Files are
//! read below a root, so that a test makes a broken machine of a directory.

mod cards;
mod clocks;
mod config;
mod daemons;
mod disks;
mod firewall;
mod kernel;
mod links;
mod machine;
mod privileges;
mod segment;
mod units;

use std::path::PathBuf;

use clap::Args;

use crate::output::{Format, Table, show};
use crate::shared::complete;
use crate::shared::error::{Code, Error, Result};
use crate::shared::links::mtu;
use crate::shared::report::{DoctorReport, Finding, Output, Severity};

use self::machine::Machine;
use self::segment::Wanted;

/// Look for what is wrong with this machine, or could be better, and say what to do about it.
///
/// It changes nothing. The exit code is 0 if nothing is wrong, 1 if there are warnings, and that of
/// the worst error otherwise: 9 for a disk, a session or a driver, 6 for a target or a daemon that
/// does not answer, 4 for a privilege, 8 for a file, 5 for a link. Notes are about speed or safety,
/// and change no exit code.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Ask this target as well, and find out the longest frames that the paths to it carry: its
    /// name or UUID, or udp:, tcp: or rdma:HOST:PORT.
    #[arg(long, value_name = "NAME|ADDRESS", value_parser = Wanted::parse,
        add = complete::known_targets())]
    target: Option<Wanted>,

    /// Print errors and warnings only.
    #[arg(short, long)]
    quiet: bool,

    /// Read files of /etc, /proc, /sys and /dev below this directory.
    #[arg(long, value_name = "DIRECTORY", default_value = "/", hide = true)]
    root: PathBuf,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// A theme: its name, and its checks.
type Theme = (&'static str, fn(&Machine) -> Vec<Finding>);

/// All themes that need no network.
const THEMES: [Theme; 9] = [
    ("kernel", kernel::check),
    ("privileges", privileges::check),
    ("links", links::check),
    ("cards", cards::check),
    ("disks", disks::check),
    ("configuration", config::check),
    ("daemons", daemons::check),
    ("clocks", clocks::check),
    ("units", units::check),
];
/// Themes that ask others.
const FIREWALL: Theme = ("firewall", firewall::check);
const SEGMENT: &str = "network";

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let machine = Machine::new(&args.root);
    let themes = || THEMES.iter().chain([&FIREWALL]);
    let mut findings: Vec<_> = themes().flat_map(|(_, check)| check(&machine)).collect();
    let (found, paths) = segment::check(&machine, args.target.as_ref());
    findings.extend(found);
    // In the order of the themes otherwise.
    findings.sort_by_key(|finding| finding.severity);
    if args.quiet {
        findings.retain(|finding| finding.severity < Severity::Note);
    }
    let checked = themes().map(|(name, _)| *name).chain([SEGMENT]).map(str::to_owned).collect();
    let report = DoctorReport { checked, findings, paths };
    let code = worst(&report.findings);
    let text = text(&report);
    show(args.output, || Output::Doctor(report), || text)?;
    // The findings were printed.
    code.map_or(Ok(()), |code| Err(Error::new(code, "")))
}

/// The exit code for these findings; `None` if there is nothing but notes.
fn worst(findings: &[Finding]) -> Option<Code> {
    use Code::{Config, Device, Link, Permission, Unreachable};
    let errors = || findings.iter().filter(|it| it.severity == Severity::Error).map(|it| it.code);
    // The order of `list --check`, with what has no place there in the middle.
    let ranked = [Device, Unreachable, Permission, Config, Link];
    let found = ranked.into_iter().find(|code| errors().any(|it| it == *code));
    let is_more = findings.iter().any(|it| it.severity <= Severity::Warning);
    found.or_else(|| is_more.then_some(Code::Other))
}

fn text(report: &DoctorReport) -> String {
    let mut table = Table::new(["", "FINDING", "WHAT, AND WHAT TO DO"]);
    for finding in &report.findings {
        let Finding { id, severity, what, remedy, .. } = finding;
        table.row([severity.name().to_owned(), id.clone(), format!("{what}; {remedy}")]);
    }
    let mut text = if report.findings.is_empty() { String::new() } else { table.to_string() };
    for path in &report.paths {
        let [found, own] = [path.frame_len, path.frame_len_max].map(mtu);
        text += &format!(
            "{} to {}: frames for an MTU of {found} get through, its own is {own}\n",
            path.link, path.mac
        );
    }
    let count = |severity| report.findings.iter().filter(|it| it.severity == severity).count();
    let [errors, warnings, notes] = [Severity::Error, Severity::Warning, Severity::Note].map(count);
    text + &format!(
        "{} checks: {}, {}, {}\n",
        report.checked.len(),
        counted(errors, "error"),
        counted(warnings, "warning"),
        counted(notes, "note")
    )
}

/// A number of things, in words.
fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
