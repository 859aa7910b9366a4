//! The `tyche-lab` command: what has no user, but shows and checks what `tyche` does.

#![forbid(unsafe_code)]

mod demo;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tyche_console::error::{Result, finish};
use tyche_console::output::Format;

/// The laboratory of Tyche: the protocol in a simulated world, and all of it on this machine alone.
///
/// Nothing here is needed to use Tyche; that is the program `tyche`.
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
  4  a privilege is missing (root)
  9  the disk cannot be used";

#[derive(Subcommand, Debug)]
enum Command {
    Sim(sim::SimArgs),
    Demo(demo::DemoArgs),
}

impl Command {
    fn run(&self) -> Result<()> {
        match self {
            Self::Sim(args) => sim::run(args),
            Self::Demo(args) => demo::run(args),
        }
    }

    fn output(&self) -> Format {
        match self {
            Self::Sim(args) => args.output,
            Self::Demo(args) => args.output,
        }
    }
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    finish("tyche-lab", &command.run(), command.output())
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
