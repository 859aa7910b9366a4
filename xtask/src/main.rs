//! Build, demo and test commands.
fn main() {}
