//! The tyche command.
fn main() {}
