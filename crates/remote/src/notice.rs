//! Notices of a session to its owner, in order.

use tyche_proto::wire::{Mac, Rejection, Versions};
use tyche_proto::{ExportState, Failure, NextKey, Problem, ResumeState};

/// Notices of a session to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Each queue has a live channel, for the first time or again.
    Connected(ExportState),
    /// A queue has lost its last live channel; requests wait.
    Lost(Problem),
    /// A channel is live over this link to this address of the target.
    Joined(String, Mac),
    /// A channel was lost. If it was the last one, [`Notice::Lost`] follows.
    Parted(String, Mac, Problem),
    /// The target refused a channel.
    Rejected(Box<Rejection>),
    /// A target on this link, at this address, speaks other versions of the protocol only.
    OtherVersion(String, Mac, Versions),
    /// The target was away for too long: requests fail from now on, and the session goes on.
    FailsFast,
    /// The target is back after [`Notice::FailsFast`]: requests are taken again.
    Resumed,
    /// The export has another size.
    Resized(u64),
    /// The target has lost completed writes: the next flush fails.
    CacheLost,
    /// The state for the next session of the device has changed. Comes before the first
    /// [`Notice::Connected`]; later, after the answers that must be given before it is stored.
    ResumeState(ResumeState),
    /// The target is to be known by another key.
    NextKey(NextKey),
    /// All requests fail from now on.
    Failed(Failure),
    /// The session has ended.
    Closed,
}
