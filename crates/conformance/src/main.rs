//! Runs the conformance suite against an implementation on a network interface.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tyche_conformance::live::Live;
use tyche_conformance::{Outcome, Result, Role, Suite};

const USAGE: &str = "\
usage: tyche-conformance target|sealed-target|silent-target INTERFACE [--counters COMMAND]
           [--restore COMMAND] [--vectors DIR] [FILTER]
       tyche-conformance host|sealed-host INTERFACE --agent COMMAND [--restore COMMAND]
           [--vectors DIR] [FILTER]

Plays a host against the target, or a target against the host, that is at the other end of
INTERFACE, vector by vector; FILTER is a part of their names. conformance/README.md says what the
other end has to export or to connect, and what an agent is. Exit codes: 0 all passed, 1 one failed,
2 usage, 3 no vector has FILTER in its name.";

/// Exit code if no vector's name contains the filter.
const NONE: u8 = 3;

/// The command-line options.
#[derive(Default)]
struct Options {
    interface: String,
    counters: Option<String>,
    agent: Option<String>,
    restore: Option<String>,
    vectors: Option<PathBuf>,
    filter: String,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let role = args.next();
    let role = Role::ALL.into_iter().find(|it| Some(it.name()) == role.as_deref());
    let options = options(args);
    let (Some(role), Some(options)) = (role, options) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if role.is_host() && options.agent.is_none() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match run(role, &options) {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) => ExitCode::FAILURE,
        Ok(None) => ExitCode::from(NONE),
        Err(message) => {
            eprintln!("tyche-conformance: {message}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options { interface: args.next()?, ..Options::default() };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--counters" => options.counters = Some(args.next()?),
            "--agent" => options.agent = Some(args.next()?),
            "--restore" => options.restore = Some(args.next()?),
            "--vectors" => options.vectors = Some(args.next()?.into()),
            _ if arg.starts_with('-') || !options.filter.is_empty() => return None,
            _ => options.filter = arg,
        }
    }
    Some(options)
}

/// Runs the selected vectors; false if one failed, `None` if there are none.
fn run(role: Role, options: &Options) -> Result<Option<bool>> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let folder = options.vectors.as_ref().unwrap_or(&ours);
    let suite = Suite::read(folder, role)?;
    let mut live =
        Live::open(&options.interface, options.counters.clone(), options.restore.clone())?;
    let hasher = RandomState::new();
    let mut count = 0_u64;
    let mut random = || {
        count += 1;
        hasher.hash_one(count)
    };
    let (mut passed, mut known, mut failed) = (0, 0, 0);
    let side = role.name();
    for name in suite.names().filter(|name| name.contains(&options.filter)) {
        live.renew(options.agent.as_deref())?;
        let (number, text) = match suite.run(&name, &mut live, &mut random) {
            Outcome::Passed => (&mut passed, format!("ok     {side}: {name}")),
            Outcome::Known(why) => (&mut known, format!("known  {side}: {name}: {why}")),
            Outcome::Failed(why) => (&mut failed, format!("FAILED {side}: {name}: {why}")),
        };
        *number += 1;
        // The reader may have closed the pipe.
        let _ = writeln!(std::io::stdout(), "{text}");
    }
    let total = format!("{side}: {passed} passed, {failed} failed, {known} known not to pass");
    let _ = writeln!(std::io::stdout(), "{total}");
    Ok((passed + known + failed > 0).then_some(failed == 0))
}
