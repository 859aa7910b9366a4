//! The completions that a call asks for.

use std::time::Duration;

/// The number of completions to return, and the time to wait for them.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// The number to wait for, unless fewer requests are in flight; at most `max`.
    pub(crate) min: usize,
    /// The most to return.
    pub(crate) max: usize,
    /// The longest wait.
    pub(crate) timeout: Duration,
}

impl Wanted {
    pub(crate) fn new(min: usize, max: usize, timeout: Duration) -> Self {
        Self { min: min.min(max), max, timeout }
    }

    /// Those that are there already.
    pub(crate) fn at_once(max: usize) -> Self {
        Self { min: 0, max, timeout: Duration::ZERO }
    }
}
