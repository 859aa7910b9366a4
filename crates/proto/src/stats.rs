//! Counters. What the network does wrong is counted here, by name, and nowhere else.

use tyche_wire::Reject;

/// What happened on one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Frames sent again.
    pub retransmitted: u64,
    /// Positions that the peer reported missing.
    pub nacked: u64,
    /// Frames that came twice.
    pub duplicates: u64,
    /// Reports of missing positions sent.
    pub nacks_sent: u64,
    /// Acks that found nothing to ride on.
    pub acks_sent: u64,
    /// Retransmission timers that expired.
    pub timeouts: u64,
}

impl std::ops::AddAssign for ChannelStats {
    fn add_assign(&mut self, other: Self) {
        self.retransmitted += other.retransmitted;
        self.nacked += other.nacked;
        self.duplicates += other.duplicates;
        self.nacks_sent += other.nacks_sent;
        self.acks_sent += other.acks_sent;
        self.timeouts += other.timeouts;
    }
}

/// How often a frame was dropped, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectCounts([u64; Reject::ALL.len()]);

impl RejectCounts {
    /// Counts one.
    pub fn add(&mut self, reject: Reject) {
        self.0[reject as usize] += 1;
    }

    /// How often frames were dropped for this reason.
    pub fn of(&self, reject: Reject) -> u64 {
        self.0[reject as usize]
    }

    /// All reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Reject, u64)> {
        Reject::ALL.iter().map(|&reject| (reject, self.of(reject))).filter(|&(_, count)| count > 0)
    }

    /// Dropped frames in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Default for RejectCounts {
    fn default() -> Self {
        Self([0; Reject::ALL.len()])
    }
}
