//! The time of a loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tyche_time::Instant;

/// The current time of the system's monotonic clock.
pub fn now() -> Instant {
    Instant(tyche_wake::now_ns())
}

/// The clock that a loop reads.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system's monotonic clock.
    #[default]
    Monotonic,
    /// A clock that stands still until its owner sets it, in nanoseconds: that of a simulation.
    Simulated(Arc<AtomicU64>),
}

impl Clock {
    /// The current time.
    pub fn now(&self) -> Instant {
        match self {
            Self::Monotonic => now(),
            Self::Simulated(at) => Instant(at.load(Ordering::Relaxed)),
        }
    }
}
