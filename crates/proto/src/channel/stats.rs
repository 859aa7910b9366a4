//! Counters of channels, and of dropped frames by reason.

use tyche_wire::Reject;

/// What happened on one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Frames sent again.
    pub retransmitted: u64,
    /// Positions that the peer reported missing.
    pub nacked: u64,
    /// Frames received with a position that had been received before.
    pub duplicates: u64,
    /// Nacks sent.
    pub nacks_sent: u64,
    /// Acks sent in a frame of their own.
    pub acks_sent: u64,
    /// Retransmission timers that expired.
    pub timeouts: u64,
    /// Frames received that the network had marked as congested.
    pub congested: u64,
    /// Frames sent with entries (requests, answers, data), without those sent again.
    pub batches: u64,
    /// Entries in them.
    pub batch_entries: u64,
    /// Sum of the batch sizes that were in force when they were sent; 0 unless the policy is
    /// adaptive. Divided by `batches`, the mean of the tuned size.
    pub batch_sizes: u64,
}

impl std::ops::AddAssign for ChannelStats {
    fn add_assign(&mut self, other: Self) {
        self.retransmitted += other.retransmitted;
        self.nacked += other.nacked;
        self.duplicates += other.duplicates;
        self.nacks_sent += other.nacks_sent;
        self.acks_sent += other.acks_sent;
        self.timeouts += other.timeouts;
        self.congested += other.congested;
        self.batches += other.batches;
        self.batch_entries += other.batch_entries;
        self.batch_sizes += other.batch_sizes;
    }
}

/// Numbers of dropped frames, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectCounts([u64; Reject::ALL.len()]);

impl RejectCounts {
    /// Counts a dropped frame.
    pub fn add(&mut self, reject: Reject) {
        self.0[reject as usize] += 1;
    }

    /// Number of frames dropped for this reason.
    pub fn of(&self, reject: Reject) -> u64 {
        self.0[reject as usize]
    }

    /// All reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Reject, u64)> {
        Reject::ALL.iter().map(|&reject| (reject, self.of(reject))).filter(|&(_, count)| count > 0)
    }

    /// Number of all dropped frames.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Default for RejectCounts {
    fn default() -> Self {
        Self([0; Reject::ALL.len()])
    }
}
