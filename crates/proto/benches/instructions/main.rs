//! What the hot path costs in instructions: they are the same on a busy machine and on an idle
//! one, so a small regression shows that time could not tell from noise.
//!
//! `cargo xtask instructions` runs each case under callgrind and compares with `counts.txt`. By
//! itself this program counts nothing: without arguments it names its cases and how many
//! operations each consists of, and with the name of a case it goes through that case once.
//!
//! A case prepares something and hands out its *round*. Rounds repeat: some to bring the channel
//! to its steady state, in which nothing is allocated any more, and then those that are counted.
//! Of these, callgrind counts what happens within [`counted`], and nothing else.

mod frames;
mod pair;
mod steps;
mod trips;

use std::hint::black_box;
use std::process::ExitCode;

/// Rounds before those that are counted: positions, acks and round-trip times have settled.
const ROUNDS_BEFORE: u32 = 4;
/// Rounds that are counted. More than one, for not every round has to send an ack.
const ROUNDS: u32 = 16;

/// Runs what is to be counted: [`counted`], or [`uncounted`] while it is too early.
type Count = fn(&mut dyn FnMut());

/// One time through a case.
type Round = Box<dyn FnMut(Count)>;

/// Something that is counted.
#[derive(Clone)]
struct Case {
    name: &'static str,
    /// Operations in a round: frames for cases of a single frame, else requests.
    operations: u32,
    prepare: fn() -> Round,
}

const fn case(name: &'static str, operations: u32, prepare: fn() -> Round) -> Case {
    Case { name, operations, prepare }
}

fn main() -> ExitCode {
    let cases = [frames::CASES, steps::CASES, trips::CASES].concat();
    // `cargo bench` passes an option.
    let Some(name) = std::env::args().skip(1).find(|arg| !arg.starts_with("--")) else {
        for case in cases {
            println!("{} {}", case.name, case.operations * ROUNDS);
        }
        return ExitCode::SUCCESS;
    };
    let Some(case) = cases.iter().find(|case| case.name == name) else {
        eprintln!("no case is named {name}");
        return ExitCode::FAILURE;
    };
    let mut round = (case.prepare)();
    for _ in 0..ROUNDS_BEFORE {
        round(uncounted);
    }
    for _ in 0..ROUNDS {
        round(counted);
    }
    ExitCode::SUCCESS
}

/// Callgrind knows this function by its name, and counts what happens until it returns.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
    // Without something to do afterwards the call would be a jump, and this function over.
    black_box(());
}

#[inline(never)]
fn uncounted(work: &mut dyn FnMut()) {
    work();
}
