//! The cost of commands in instructions: see [`tyche_testkit::instructions`].

mod pair;
mod steps;
mod trips;

use std::process::ExitCode;

use tyche_testkit::instructions;

fn main() -> ExitCode {
    instructions::run(&[steps::CASES, trips::CASES].concat())
}
