//! Counters of channels, and of dropped frames by reason.

use tyche_counters::{CountsBy, counters};
use tyche_wire::Reject;

counters! {
    /// The events on one channel.
    pub struct ChannelStats {
        /// Frames sent again.
        retransmitted: Counter in Frames,
        /// Frames that the peer reported missing.
        nacked: Counter in Frames,
        /// Frames received more than once.
        duplicates: Counter in Frames,
        /// Reports of missing frames sent.
        nacks_sent: Counter in Frames,
        /// Acknowledgements sent in a frame of their own.
        acks_sent: Counter in Frames,
        /// Retransmission timers that expired.
        timeouts: Counter in Events,
        /// Frames received that the network had marked as congested (ECN).
        congested: Counter in Frames,
        /// Frames sent with entries (requests, answers, data), without those sent again.
        batches: Counter in Frames,
        /// Entries of frames (requests, answers, data), without those sent again.
        batch_entries: Counter in Entries,
        /// Sum of the batch sizes that were in force when frames with entries were sent; 0 unless
        /// frames wait for more entries (`--batch adaptive`).
        batch_sizes: Counter in Entries,
    }
}

/// Numbers of dropped frames, by reason.
pub type RejectCounts = CountsBy<Reject, { Reject::ALL.len() }>;
