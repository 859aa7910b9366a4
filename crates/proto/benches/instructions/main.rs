//! The cost of the hot path in instructions: see [`tyche_testkit::instructions`].

mod frames;
mod pair;
mod steps;
mod trips;

use std::process::ExitCode;

use tyche_testkit::instructions;

fn main() -> ExitCode {
    instructions::run(&[frames::CASES, steps::CASES, trips::CASES].concat())
}
