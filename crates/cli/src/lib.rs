//! The `tyche` command: export disks, connect them, and look after both. A library, so that a
//! laboratory runs the same commands with [wrappers](Wrapper) around links and stores.

#![forbid(unsafe_code)]

mod commands;
mod daemons;
mod shared;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tyche_console::{output, size};

pub use crate::commands::bench;
pub use crate::commands::discover::DiscoverArgs;
pub use crate::commands::link_command::LinkCommand;
pub use crate::daemons::connect::ConnectArgs;
pub use crate::daemons::serve::ServeArgs;
pub use crate::shared::report;
pub use crate::shared::wrap::Wrapper;
pub use tyche_attach::serve_claims;

use crate::commands::bench::BenchArgs;
use crate::output::{Format, finish};
use crate::shared::error::{Code, Context, Error, Result};

/// Remote disks over Ethernet or IP.
///
/// Tyche gives this machine the disk of another as a local block device. Between them travel
/// Ethernet frames of an EtherType of our own, or the same frames over UDP, TCP or RDMA; or Fibre
/// Channel over Ethernet. It needs no special network card.
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
  TYCHE_GROUP        group whose members may look without being root; tyche by default
  TYCHE_LOG_DIR      where logs of sessions are kept; by default the journal, or /var/log/tyche";

#[derive(Subcommand, Debug)]
enum Command {
    Serve(ServeArgs),
    Connect(ConnectArgs),
    ConnectAll(commands::connect_all::ConnectAllArgs),
    Disconnect(commands::disconnect::DisconnectArgs),
    Reload(commands::reload::ReloadArgs),
    Discover(DiscoverArgs),
    Link(commands::link::LinkCommand),
    Export(commands::export::ExportCommand),
    Host(commands::host::HostCommand),
    Key(commands::key::KeyCommand),
    List(commands::list::ListArgs),
    Hosts(commands::hosts::HostsArgs),
    Stats(commands::stats::StatsArgs),
    Exporter(daemons::exporter::ExporterArgs),
    Top(commands::top::TopArgs),
    Doctor(commands::doctor::DoctorArgs),
    Bench(BenchArgs),
    Completions(commands::manual::CompletionsArgs),
    #[command(hide = true)]
    Man(commands::manual::ManArgs),
    #[command(hide = true)]
    GenerateUnits(commands::units::GenerateUnitsArgs),
    #[command(hide = true)]
    UnitStop(commands::unit::UnitStopArgs),
}

impl Command {
    fn run(&self) -> Result<()> {
        match self {
            Self::Serve(args) => daemons::serve::run(args),
            Self::Connect(args) => daemons::connect::run(args),
            Self::ConnectAll(args) => commands::connect_all::run(args),
            Self::Disconnect(args) => commands::disconnect::run(args),
            Self::Reload(args) => commands::reload::run(args),
            Self::Discover(args) => commands::discover::run(args),
            Self::Link(args) => commands::link::run(args),
            Self::Export(args) => commands::export::run(args),
            Self::Host(args) => commands::host::run(args),
            Self::Key(args) => commands::key::run(args),
            Self::List(args) => commands::list::run(args),
            Self::Hosts(args) => commands::hosts::run(args),
            Self::Stats(args) => commands::stats::stats(args),
            Self::Exporter(args) => daemons::exporter::run(args),
            Self::Top(args) => commands::top::run(args),
            Self::Doctor(args) => commands::doctor::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Completions(args) => commands::manual::completions(args),
            Self::Man(args) => commands::manual::write(args, Cli::command()),
            Self::GenerateUnits(args) => commands::units::generate(args),
            Self::UnitStop(args) => commands::unit::stop(args),
        }
    }

    /// The log level, unless `RUST_LOG` says another.
    fn log_level(&self) -> LevelFilter {
        match self {
            Self::Serve(_) | Self::Connect(_) => LevelFilter::INFO,
            // Lines would go across the screen.
            Self::Top(args) if args.takes_terminal() => LevelFilter::OFF,
            _ => LevelFilter::WARN,
        }
    }

    fn output(&self) -> Format {
        match self {
            Self::Serve(args) => args.output,
            Self::Completions(_) | Self::Man(_) | Self::Exporter(_) => Format::Text,
            Self::GenerateUnits(_) | Self::UnitStop(_) => Format::Text,
            Self::Key(args) => args.output(),
            Self::Connect(args) => args.output,
            Self::ConnectAll(args) => args.output,
            Self::Disconnect(args) => args.output,
            Self::Reload(args) => args.output,
            Self::Discover(args) => args.output,
            Self::Link(args) => args.output,
            Self::Export(args) => args.output,
            Self::Host(args) => args.output,
            Self::List(args) => args.output,
            Self::Hosts(args) => args.output,
            Self::Stats(args) => args.output,
            Self::Top(args) => args.output,
            Self::Doctor(args) => args.output,
            Self::Bench(args) => args.output,
        }
    }
}

/// The program `tyche`.
pub fn main() -> ExitCode {
    serve_claims();
    shared::complete::answer_shell(Cli::command);
    let Cli { command } = Cli::try_parse().unwrap_or_else(|error| refuse(&error));
    run("tyche", command.log_level(), command.output(), || command.run())
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
    let started = shared::log::start().context(Code::Other, "a thread for the log");
    let started = started.and_then(|()| shared::limits::apply().context(Code::Other, "limits"));
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(level.to_string()));
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_ansi(false);
    let lines = lines.with_timer(shared::log::Clock).with_writer(shared::log::Log);
    let log = tracing_subscriber::registry().with(filter).with(shared::log::KeepFields);
    log.with(lines).init();
    let result = started.and_then(|()| command());
    shared::log::flush();
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
