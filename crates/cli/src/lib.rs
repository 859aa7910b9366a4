//! The `tyche` command: export disks, connect them, and look after both. A library, so that a
//! laboratory runs the same commands with [wrappers](Wrapper) around links and stores.

#![forbid(unsafe_code)]

mod attach;
pub mod bench;
mod block_device;
mod complete;
mod connect;
mod connect_all;
mod control;
mod device_name;
mod disconnect;
mod discover;
mod error;
mod export;
mod fcoe;
mod health;
mod identity;
mod key;
mod leftovers;
mod limits;
mod link;
mod link_command;
mod links;
mod list;
mod log;
mod manual;
mod panics;
mod placement;
mod rates;
mod reload;
pub mod report;
mod runtime;
mod seconds;
mod secret;
mod serve;
mod sessions;
mod state;
mod stats;
mod tab;
mod unit;
mod units;
mod wrap;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tyche_console::{output, size};

pub use crate::connect::ConnectArgs;
pub use crate::discover::DiscoverArgs;
pub use crate::link_command::LinkCommand;
pub use crate::serve::ServeArgs;
pub use crate::wrap::Wrapper;
pub use tyche_attach::serve_claims;

use crate::bench::BenchArgs;
use crate::error::{Code, Context, Error, Result};
use crate::output::{Format, finish};

/// Remote disks over plain Ethernet.
///
/// Tyche gives this machine the disk of another as a local block device. Between them travel
/// Ethernet frames of an EtherType of our own: no IP, no TCP, no special network card.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100, after_long_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  none of the others
  2  the command line makes no sense
  3  no such export, interface or session
  4  a privilege is missing (CAP_NET_RAW, root)
  5  the interface cannot be used (down, MTU too small), or the port (taken)
  6  the target does not answer, or the daemon of a session
  7  the target refused (held by another host, denied), or has another key than before
  8  the configuration file is wrong, or a disk was replaced
  9  the disk, or the device that presents it, cannot be used
  10 it is so already: the export is connected, the key is there

Environment:
  RUST_LOG           what to log: error, warn (default), info, debug
  TYCHE_RUNTIME_DIR  where running sessions and targets are found; /run/tyche by default
  TYCHE_STATE_DIR    what must outlive a restart of the machine; /var/lib/tyche by default
  TYCHE_KNOWN_TARGETS
                     file with the keys of targets; /etc/tyche/known-targets by default
  TYCHE_LOG_DIR      where logs of sessions are kept; by default the journal, or /var/log/tyche";

#[derive(Subcommand, Debug)]
enum Command {
    Serve(ServeArgs),
    Connect(ConnectArgs),
    ConnectAll(connect_all::ConnectAllArgs),
    Disconnect(disconnect::DisconnectArgs),
    Reload(reload::ReloadArgs),
    Discover(DiscoverArgs),
    Link(link::LinkCommand),
    Export(export::ExportCommand),
    Key(key::KeyCommand),
    List(list::ListArgs),
    Stats(stats::StatsArgs),
    Bench(BenchArgs),
    Completions(manual::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
    #[command(hide = true)]
    GenerateUnits(units::GenerateUnitsArgs),
    #[command(hide = true)]
    UnitStop(unit::UnitStopArgs),
}

impl Command {
    fn run(&self) -> Result<()> {
        match self {
            Self::Serve(args) => serve::run(args),
            Self::Connect(args) => connect::run(args),
            Self::ConnectAll(args) => connect_all::run(args),
            Self::Disconnect(args) => disconnect::run(args),
            Self::Reload(args) => reload::run(args),
            Self::Discover(args) => discover::run(args),
            Self::Link(args) => link::run(args),
            Self::Export(args) => export::run(args),
            Self::Key(args) => key::run(args),
            Self::List(args) => list::run(args),
            Self::Stats(args) => stats::stats(args),
            Self::Bench(args) => bench::run(args),
            Self::Completions(args) => manual::completions(args),
            Self::Man(args) => manual::write(args, Cli::command()),
            Self::GenerateUnits(args) => units::generate(args),
            Self::UnitStop(args) => unit::stop(args),
        }
    }

    fn output(&self) -> Format {
        match self {
            Self::Serve(_) | Self::Completions(_) | Self::Man(_) => Format::Text,
            Self::GenerateUnits(_) | Self::UnitStop(_) => Format::Text,
            Self::Key(args) => args.output(),
            Self::Connect(args) => args.output,
            Self::ConnectAll(args) => args.output,
            Self::Disconnect(args) => args.output,
            Self::Reload(args) => args.output,
            Self::Discover(args) => args.output,
            Self::Link(args) => args.output,
            Self::Export(args) => args.output,
            Self::List(args) => args.output,
            Self::Stats(args) => args.output,
            Self::Bench(args) => args.output,
        }
    }
}

/// The program `tyche`.
pub fn main() -> ExitCode {
    serve_claims();
    complete::answer_shell(Cli::command);
    let Cli { command } = Cli::try_parse().unwrap_or_else(|error| refuse(&error));
    let runs_long = matches!(command, Command::Serve(_) | Command::Connect(_));
    let level = if runs_long { LevelFilter::INFO } else { LevelFilter::WARN };
    run("tyche", level, command.output(), || command.run())
}

/// Prints a mistake in the command line, also as JSON if that was asked for, and ends the program.
fn refuse(error: &clap::Error) -> ! {
    if error.use_stderr() && wants_json(std::env::args_os().skip(1)) {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        // The first paragraph says what is wrong, the others how the command is used.
        let message = text.split("\n\n").next().unwrap_or_default();
        let message: Vec<_> = message.split_whitespace().collect();
        let report = Error::new(Code::Usage, message.join(" ")).report();
        // The error is printed in words as well.
        let _ = output::show(Format::Json, || report, String::new);
    }
    error.exit()
}

/// Whether a command line asks for JSON, as far as it can be read.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut is_format = false;
    for argument in arguments.filter_map(|it| it.into_string().ok()) {
        let format = match std::mem::take(&mut is_format) {
            true => Some(argument.as_str()),
            false => argument.strip_prefix("--output=").or_else(|| argument.strip_prefix("-o")),
        };
        match format {
            Some("json" | "=json") => return true,
            Some("") => is_format = true,
            _ => is_format = argument == "--output",
        }
    }
    false
}

/// Runs a command of a program, and prints its error. `RUST_LOG` overrides the log level.
pub fn run(
    program: &str,
    level: LevelFilter,
    output: Format,
    command: impl FnOnce() -> Result<()>,
) -> ExitCode {
    let started = log::start().context(Code::Other, "a thread for the log");
    let started = started.and_then(|()| limits::apply().context(Code::Other, "limits"));
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(level.to_string()));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    log.with_ansi(false).with_timer(log::Clock).with_writer(log::Log).init();
    let result = started.and_then(|()| command());
    log::flush();
    finish(program, &result, output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_in_any_form_that_the_command_line_takes() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        for line in ["list -o json", "list -ojson x", "-o=json", "a --output json", "--output=json"]
        {
            assert!(wants(line), "{line}");
        }
        for line in ["list", "list -o text json", "connect json", "--output", "list -o"] {
            assert!(!wants(line), "{line}");
        }
    }
}
