//! Runs the conformance suite against an implementation on a network interface.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tyche_conformance::fc::live::FcLive;
use tyche_conformance::fc::{FcRole, FcSuite};
use tyche_conformance::live::Live;
use tyche_conformance::{Outcome, Result, Role, Suite, uevent};

const USAGE: &str = "\
usage: tyche-conformance target|sealed-target|silent-target INTERFACE [--counters COMMAND]
           [--restore COMMAND] [--vectors DIR] [FILTER]
       tyche-conformance host|sealed-host INTERFACE --agent COMMAND [--restore COMMAND]
           [--vectors DIR] [FILTER]
       tyche-conformance fc-target INTERFACE [--lun NUMBER] [--vectors DIR] [FILTER]
       tyche-conformance uevent

Plays a host against the target, or a target against the host, that is at the other end of
INTERFACE, vector by vector; FILTER is a part of their names. `fc-target` is one of Fibre Channel
over Ethernet, without a fabric. conformance/README.md says what the
other end has to export or to connect, and what an agent is. Exit codes: 0 all passed, 1 one failed,
2 usage, 3 no vector has FILTER in its name. `uevent` tells the programs of this network
namespace that the memory of their machine was put back to an earlier state.";

/// Exit code if no vector's name contains the filter.
const NONE: u8 = 3;

/// The command-line options.
#[derive(Default)]
struct Options {
    interface: String,
    counters: Option<String>,
    agent: Option<String>,
    restore: Option<String>,
    lun: u8,
    vectors: Option<PathBuf>,
    filter: String,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let role = args.next();
    if role.as_deref() == Some("uevent") {
        return match uevent::tell() {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => failed(&message),
        };
    }
    let of_fc = role.as_deref() == Some(FcRole::Target.name());
    let role = Role::ALL.into_iter().find(|it| Some(it.name()) == role.as_deref());
    let options = options(args);
    let done = match (role, options) {
        (None, Some(options)) if of_fc => run_fc(&options),
        (Some(role), Some(options)) if !role.is_host() || options.agent.is_some() => {
            run(role, &options)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) => ExitCode::FAILURE,
        Ok(None) => ExitCode::from(NONE),
        Err(message) => failed(&message),
    }
}

fn failed(message: &str) -> ExitCode {
    eprintln!("tyche-conformance: {message}");
    ExitCode::FAILURE
}

fn options(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options { interface: args.next()?, ..Options::default() };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--counters" => options.counters = Some(args.next()?),
            "--agent" => options.agent = Some(args.next()?),
            "--restore" => options.restore = Some(args.next()?),
            "--lun" => options.lun = args.next()?.parse().ok()?,
            "--vectors" => options.vectors = Some(args.next()?.into()),
            _ if arg.starts_with('-') || !options.filter.is_empty() => return None,
            _ => options.filter = arg,
        }
    }
    Some(options)
}

/// The folder of the vectors.
fn folder(options: &Options) -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    options.vectors.clone().unwrap_or(ours)
}

/// The results of the vectors for one role, which are printed as they come.
struct Results {
    side: &'static str,
    passed: u32,
    known: u32,
    failed: u32,
}

impl Results {
    fn new(side: &'static str) -> Self {
        Self { side, passed: 0, known: 0, failed: 0 }
    }

    fn note(&mut self, name: &str, outcome: Outcome) {
        let side = self.side;
        let (number, text) = match outcome {
            Outcome::Passed => (&mut self.passed, format!("ok     {side}: {name}")),
            Outcome::Known(why) => (&mut self.known, format!("known  {side}: {name}: {why}")),
            Outcome::Failed(why) => (&mut self.failed, format!("FAILED {side}: {name}: {why}")),
        };
        *number += 1;
        // The reader may have closed the pipe.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// Prints the counts; false if a vector failed, `None` if there were none.
    fn end(self) -> Option<bool> {
        let Self { side, passed, known, failed } = self;
        let total = format!("{side}: {passed} passed, {failed} failed, {known} known not to pass");
        let _ = writeln!(std::io::stdout(), "{total}");
        (passed + known + failed > 0).then_some(failed == 0)
    }
}

/// Runs the selected vectors; false if one failed, `None` if there are none.
fn run(role: Role, options: &Options) -> Result<Option<bool>> {
    let suite = Suite::read(&folder(options), role)?;
    let mut live =
        Live::open(&options.interface, options.counters.clone(), options.restore.clone())?;
    let hasher = RandomState::new();
    let mut count = 0_u64;
    let mut random = || {
        count += 1;
        hasher.hash_one(count)
    };
    let mut results = Results::new(role.name());
    for name in suite.names().filter(|name| name.contains(&options.filter)) {
        live.renew(options.agent.as_deref())?;
        results.note(&name, suite.run(&name, &mut live, &mut random));
    }
    Ok(results.end())
}

/// The same for a target of Fibre Channel over Ethernet.
fn run_fc(options: &Options) -> Result<Option<bool>> {
    let suite = FcSuite::read(&folder(options), FcRole::Target)?;
    let mut results = Results::new(FcRole::Target.name());
    let mut live = None;
    for name in suite.names().filter(|name| name.contains(&options.filter)) {
        if live.is_none() {
            let seed = RandomState::new().hash_one(0);
            live = Some(FcLive::open(&options.interface, options.lun, seed)?);
        }
        if let Some(live) = &mut live {
            live.renew()?;
            results.note(&name, suite.run(&name, live));
        }
    }
    Ok(results.end())
}
