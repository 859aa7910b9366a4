//! `tyche connect-all`: connects all exports of tychetab.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::daemons::connect::{self, Entry};
use crate::output::{Format, remark, show};
use crate::shared::error::{Error, Result};
use crate::shared::report::{ConnectReport, Output, TabOutcome};
use crate::shared::sessions;
use crate::shared::tab::{self, Line, Tab};

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

/// How many are connected at the same time. Each takes its `--timeout` if the target does not
/// answer, and all want a processor, without which they don't connect within that.
const AT_ONCE: usize = 16;

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

/// Connects them in the order of the lines, some at the same time.
fn connect(lines: Vec<Line>, tab: &Path) -> Vec<Outcome> {
    let waiting = Mutex::new(lines.into_iter().enumerate());
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some((index, line)) = next() {
            let outcome = connect_one(line, tab);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((index, outcome));
        }
    };
    thread::scope(|scope| {
        // This thread is one of them, and fewer are enough.
        let helpers = 1..AT_ONCE.min(waiting.lock().map_or(0, |lines| lines.len()));
        for _ in helpers {
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|it| it.0);
    outcomes.into_iter().map(|it| it.1).collect()
}

fn connect_one(line: Line, tab: &Path) -> Outcome {
    let timeout = Entry::of(&line).map(|entry| entry.connect.timeout());
    let result = timeout.and_then(|timeout| daemon(&line.export, tab, timeout));
    Outcome { export: line.export, result }
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
