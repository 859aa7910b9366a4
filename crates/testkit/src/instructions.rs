//! Cases whose instructions `cargo xtask instructions` counts: they are the same on a busy machine
//! and on an idle one, so a small regression shows that time could not tell from noise.
//!
//! The command runs each case under callgrind and compares with the checked-in counts. By itself a
//! program of cases counts nothing: without arguments it names its cases and how many operations
//! each consists of, and with the name of a case it goes through that case once.
//!
//! A case prepares something and hands out its *round*. Rounds repeat: some to bring the machine
//! to its steady state, in which nothing is allocated any more, and then those that are counted.
//! Of these, callgrind counts what happens within `counted`, and nothing else.

use std::hint::black_box;
use std::process::ExitCode;

/// Rounds before those that are counted: numbers, acks and round-trip times have settled.
const ROUNDS_BEFORE: u32 = 4;
/// Rounds that are counted. More than one, for not every round has to send an ack.
const ROUNDS: u32 = 16;

/// Runs what is to be counted, or runs it without a count while it is too early.
pub type Count = fn(&mut dyn FnMut());

/// One time through a case.
pub type Round = Box<dyn FnMut(Count)>;

/// Something that is counted.
#[derive(Clone, Debug)]
pub struct Case {
    name: &'static str,
    operations: u32,
    prepare: fn() -> Round,
}

/// A case. `operations` are those of a round: frames for cases of a single frame, else requests.
pub const fn case(name: &'static str, operations: u32, prepare: fn() -> Round) -> Case {
    Case { name, operations, prepare }
}

/// The program of these cases.
pub fn run(cases: &[Case]) -> ExitCode {
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
