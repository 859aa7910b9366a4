//! Time of state machines without a clock: nanoseconds since an arbitrary start, passed in by the
//! caller ([`Instant`]), and a rate limit by them ([`Pace`]).
//!
//! It is a crate of its own because the protocols that share it share nothing else.

#![no_std]
#![forbid(unsafe_code)]

mod pace;

use core::ops::{Add, Sub};
use core::time::Duration;

pub use pace::Pace;

/// A moment on the caller's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Time since `earlier`; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns_since(earlier))
    }

    /// Nanoseconds since `earlier`; zero if `earlier` is later.
    #[inline]
    pub fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `ns` nanoseconds later; the last that there is, if that is later still.
    #[inline]
    #[must_use]
    pub fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        self.plus_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Sub for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// The earlier of two deadlines that may be absent.
#[inline]
pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_runs_back_nor_over() {
        let (early, late) = (Instant(5), Instant(7));
        assert_eq!((late - early, early - late), (Duration::from_nanos(2), Duration::ZERO));
        assert_eq!(early + Duration::from_nanos(2), late);
        assert_eq!(late + Duration::MAX, Instant(u64::MAX));
        assert_eq!(late.plus_ns(u64::MAX), Instant(u64::MAX));
    }

    #[test]
    fn an_absent_deadline_is_never() {
        let (early, late) = (Some(Instant(5)), Some(Instant(7)));
        assert_eq!(earliest(early, late), early);
        assert_eq!(earliest(late, early), early);
        assert_eq!((earliest(None, late), earliest(late, None)), (late, late));
        assert_eq!(earliest(None, None), None);
    }
}
