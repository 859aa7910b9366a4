//! Input and output of the programs: sizes, results as text or JSON, errors with exit codes.

#![forbid(unsafe_code)]

pub mod error;
pub mod output;
pub mod size;
