//! `tyche connect-all`: connects all exports of tychetab.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::connect::{self, Entry};
use crate::error::{Code, Context, Error, Result};
use crate::output::{Format, remark, show};
use crate::report::{ConnectReport, Output, TabOutcome};
use crate::sessions;
use crate::tab::{self, Line, Tab};

/// Connect all exports that tychetab lists and that are not connected yet.
///
/// Prints the name and the device of each. Lines with `noauto` are left out. A failure does not
/// keep the others from being connected; the exit code is that of the first failure. Where systemd
/// runs, it connects them by itself at boot (tyche@.service).
#[derive(Args, Debug)]
pub(crate) struct ConnectAllArgs {
    /// The file that lists them; tychetab(5) describes it.
    #[arg(long, value_name = "FILE", default_value = tab::PATH)]
    tab: PathBuf,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// The result for one line.
struct Outcome {
    export: String,
    /// The output of `tyche connect`, or its error.
    result: Result<Box<ConnectReport>>,
}

pub(crate) fn run(args: &ConnectAllArgs) -> Result<()> {
    let connected = sessions::connected()?;
    let wanted = Tab::read(&args.tab)?.into_lines().into_iter().filter(is_wanted);
    let (already, missing): (Vec<_>, Vec<_>) =
        wanted.partition(|line| connected.contains(&line.export));
    let outcomes = connect(missing, &args.tab);
    for Outcome { export, result } in &outcomes {
        if let Err(error) = result {
            remark(format_args!("tyche: {export}: {error}"));
        }
    }
    let already: BTreeSet<_> = already.into_iter().map(|line| line.export).collect();
    show(args.output, || output(&outcomes, already), || text(&outcomes))?;
    let failed = outcomes.into_iter().find_map(|it| it.result.err());
    // The message was printed above, and is in the JSON object.
    failed.map_or(Ok(()), |error| Err(Error::new(error.code, "")))
}

fn is_wanted(line: &Line) -> bool {
    Entry::of(line).map_or(true, |entry| entry.auto)
}

/// Connects all at the same time: each that does not answer takes its `--timeout`.
fn connect(lines: Vec<Line>, tab: &Path) -> Vec<Outcome> {
    let connect_one = |line: Line| {
        let timeout = Entry::of(&line).map(|entry| entry.connect.timeout());
        let result = timeout.and_then(|timeout| daemon(&line.export, tab, timeout));
        Outcome { export: line.export, result }
    };
    thread::scope(|scope| {
        let start = |line: Line| {
            let export = line.export.clone();
            let thread = thread::Builder::new().spawn_scoped(scope, move || connect_one(line));
            (export, thread.context(Code::Other, "a thread to connect it"))
        };
        let started: Vec<_> = lines.into_iter().map(start).collect();
        let ended = started.into_iter().map(|(export, thread)| {
            let thread = match thread {
                Ok(thread) => thread,
                Err(error) => return Outcome { export, result: Err(error) },
            };
            let died = || Error::new(Code::Other, "connecting it panicked: see above");
            thread.join().unwrap_or_else(|_| Outcome { export, result: Err(died()) })
        });
        ended.collect()
    })
}

/// Starts the daemon of one export, which reads its line by itself.
fn daemon(export: &str, tab: &Path, timeout: Duration) -> Result<Box<ConnectReport>> {
    let mut file = OsString::from("--tab=");
    file.push(tab);
    // An export's name is never taken for an option.
    connect::start_daemon([OsString::from("connect"), file, "--".into(), export.into()], timeout)
}

fn output(outcomes: &[Outcome], already: BTreeSet<String>) -> Output {
    let exports = outcomes.iter().map(|Outcome { export, result }| match result {
        Ok(session) => TabOutcome::Connected(session.clone()),
        Err(Error { code, message }) => {
            TabOutcome::Failed { export: export.clone(), error: message.clone(), code: *code }
        }
    });
    let connected_already = already.into_iter().collect();
    Output::ConnectAll { exports: exports.collect(), connected_already }
}

fn text(outcomes: &[Outcome]) -> String {
    let connected = outcomes.iter().filter_map(|Outcome { export, result }| {
        Some(format!("{export} {}\n", result.as_ref().ok()?.session.device()))
    });
    connected.collect()
}
