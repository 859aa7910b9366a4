//! The system's monotonic clock as the protocol's.

use tyche_proto::Instant;

/// The current time.
pub(crate) fn now() -> Instant {
    Instant(tyche_wake::now_ns())
}
