//! The commands that only the laboratory has.

use std::path::Path;

use crate::lab::LAB;

/// Commands, and options of commands, that only the laboratory has.
const ONLY_HERE: [&str; 6] =
    ["crowd", "floor", "--fault", "--hand-over", "--rdma-double", "--stages"];
/// The ones whose output is not in the published schema.
const OWN_OUTPUT: [&str; 3] = ["crowd", "floor", "--stages"];

/// The program that has a command with these arguments.
pub(super) fn program(args: &[&str]) -> &'static Path {
    let is_only_here = |arg: &&str| ONLY_HERE.contains(&arg.split('=').next().unwrap_or(arg));
    if args.iter().any(is_only_here) { &LAB } else { Path::new(env!("CARGO_BIN_EXE_tyche")) }
}

/// Whether the output of a command with these arguments is in the published schema.
pub(super) fn is_published(args: &[&str]) -> bool {
    !args.iter().any(|arg| OWN_OUTPUT.contains(arg))
}
