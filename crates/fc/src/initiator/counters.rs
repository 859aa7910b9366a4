//! Counters of a lane.

/// Frames that had no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Frames of an exchange that comes from another port than its target, or to another one than
    /// ours.
    pub stranger: u64,
    /// Frames of exchanges that have ended abnormally.
    pub late: u64,
    /// Frames with an XID that is free.
    pub no_exchange: u64,
    /// Frames with another RX_ID than the exchange has.
    pub other_rx_id: u64,
    /// Information units and link services that could not be read, or contradict the command.
    pub malformed: u64,
    /// Frames that do not fit the state of their exchange, such as data of a write.
    pub unexpected: u64,
    /// Data, requests for data and responses that have come before.
    pub duplicate: u64,
    /// Data behind the end of the command's.
    pub beyond: u64,
    /// Good ends of a write whose data have not been sent.
    pub premature: u64,
    /// Data with too many gaps before them.
    pub scattered: u64,
}

/// Counters of losses and faults, and of the repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Reads whose data were lost.
    pub data_lost: u64,
    /// Questions about an exchange that has made no progress (REC).
    pub questions: u64,
    /// Commands that have never arrived.
    pub not_arrived: u64,
    /// Commands whose answer was lost.
    pub answer_lost: u64,
    /// Exchanges that were aborted: too long without an end.
    pub timed_out: u64,
    /// Exchanges that were aborted: the target does not answer questions.
    pub silent: u64,
    /// Exchanges that were aborted: the target waits for us, or takes the command as complete.
    pub out_of_step: u64,
    /// Exchanges that were aborted: the target has asked for data that there are not, or twice.
    pub wrong_request: u64,
    /// ABTS that were sent.
    pub aborts: u64,
    /// Logins that could not go on.
    pub restarts: u64,
    /// Commands that were refused because too many XIDs were quarantined.
    pub no_xid: u64,
}
