//! The one blocking wait of a loop, on the protocol's clock.

use std::os::fd::BorrowedFd;

use tyche_proto::Instant;

/// Sleeps until one of `sources` is readable or `deadline` has come; without one, for any time.
pub(crate) fn wait<'a>(
    sources: impl IntoIterator<Item = BorrowedFd<'a>>,
    now: Instant,
    deadline: Option<Instant>,
) {
    tyche_wake::sleep(sources, deadline.map(|deadline| deadline.since(now)));
}
