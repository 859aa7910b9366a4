//! Options of a session of either protocol.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The number of requests that a queue of a session may have at the target at once.
pub const QUEUE_SIZE: RangeInclusive<u16> = 1..=1024;

/// Options of a session of either protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// The most requests at the target at once, within [`QUEUE_SIZE`]; 128 by default.
    pub queue_size: u16,
    /// Whether to refuse writes.
    pub read_only: bool,
    /// The time that requests wait for a lost target before they fail; `None`: for ever. 600 s by
    /// default.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The time that they wait before they fail while the session goes on; shorter than
    /// `ctrl_loss_tmo`. `None`, the default: as long as that.
    pub fast_io_fail_tmo: Option<Duration>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            queue_size: 128,
            read_only: false,
            ctrl_loss_tmo: Some(Duration::from_secs(600)),
            fast_io_fail_tmo: None,
        }
    }
}
