//! The system's monotonic clock as the protocol's.

use rustix::time::{ClockId, clock_gettime};
use tyche_proto::Instant;

/// Now.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
