//! The `tyche-lab` command: shows, checks and measures what `tyche` does. For its developers, not
//! for its users.

#![forbid(unsafe_code)]

mod bench;
mod bottleneck;
mod crowd;
mod demo;
mod disks;
mod fault;
mod fcf;
mod floor;
mod handover;
mod layered;
mod messages;
mod rdma;
mod sides;
mod sim;
mod stages;
mod wrapped;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::level_filters::LevelFilter;
use tyche_cli::{ConnectArgs, DiscoverArgs, ServeArgs};
use tyche_console::error::Result;
use tyche_console::output::Format;

use crate::bench::StagedBenchArgs;
use crate::wrapped::Wrapped;

/// The laboratory of Tyche: a simulator of the protocol, a demo on this machine alone, the floor
/// under a load, a fabric without a switch, and the commands that use links, with faults injected
/// or with threads that hand work over to each other.
///
/// Nothing here is needed to use Tyche; that is the program `tyche`. Exit codes are those of
/// `tyche`.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Sim(sim::SimArgs),
    Demo(demo::DemoArgs),
    Floor(floor::FloorArgs),
    Messages(messages::MessagesArgs),
    Crowd(crowd::CrowdArgs),
    Fcf(fcf::FcfArgs),
    Bottleneck(bottleneck::BottleneckArgs),
    Serve(Wrapped<ServeArgs>),
    Connect(Wrapped<ConnectArgs>),
    Discover(Wrapped<DiscoverArgs>),
    Bench(Wrapped<StagedBenchArgs>),
}

impl Command {
    fn run(&mut self) -> Result<()> {
        match self {
            Self::Sim(args) => sim::run(args),
            Self::Demo(args) => demo::run(args),
            Self::Floor(args) => floor::run(args),
            Self::Messages(args) => messages::run(args),
            Self::Crowd(args) => crowd::run(args),
            Self::Fcf(args) => fcf::run(args),
            Self::Bottleneck(args) => bottleneck::run(args),
            Self::Serve(wrapped) => wrapped.run(),
            Self::Connect(wrapped) => wrapped.run(),
            Self::Discover(wrapped) => wrapped.run(),
            Self::Bench(wrapped) => wrapped.run(),
        }
    }

    fn output(&self) -> Format {
        match self {
            Self::Sim(args) => args.output,
            Self::Demo(args) => args.output,
            Self::Floor(args) => args.output(),
            Self::Messages(args) => args.output,
            Self::Crowd(args) => args.output,
            Self::Fcf(_) | Self::Bottleneck(_) => Format::Text,
            Self::Serve(wrapped) => wrapped.output(),
            Self::Connect(wrapped) => wrapped.output(),
            Self::Discover(wrapped) => wrapped.output(),
            Self::Bench(wrapped) => wrapped.output(),
        }
    }
}

fn main() -> ExitCode {
    tyche_cli::serve_claims();
    let Cli { mut command } = Cli::parse();
    let level = match command {
        Command::Serve(_) | Command::Connect(_) | Command::Fcf(_) => LevelFilter::INFO,
        // Simulated links and disks fail on purpose, all the time.
        Command::Sim(_) => LevelFilter::OFF,
        _ => LevelFilter::WARN,
    };
    tyche_cli::run("tyche-lab", level, command.output(), || command.run())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_definition_of_the_command_holds_together() {
        Cli::command().debug_assert();
    }
}
