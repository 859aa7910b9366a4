//! Counters of a lane.

use tyche_counters::counters;

counters! {
    /// Frames that had no effect.
    pub struct Ignored as "fc_" {
        /// Frames of an exchange that comes from another port than its target, or to another one
        /// than ours.
        stranger: Counter in Frames,
        /// Frames of exchanges that have ended abnormally.
        late: Counter in Frames,
        /// Frames with an XID that is free.
        no_exchange: Counter in Frames,
        /// Frames with another RX_ID than the exchange has.
        other_rx_id: Counter in Frames,
        /// Information units and link services that could not be read, or contradict the command.
        malformed: Counter in Frames,
        /// Frames that do not fit the state of their exchange, such as data of a write.
        unexpected: Counter in Frames,
        /// Data, requests for data and responses that have come before.
        duplicate: Counter in Frames,
        /// Data behind the end of the command's.
        beyond: Counter in Frames,
        /// Good ends of a write whose data have not been sent.
        premature: Counter in Frames,
        /// Data with too many gaps before them.
        scattered: Counter in Frames,
    }
}

counters! {
    /// Counters of losses and faults, and of the repairs.
    pub struct Repairs as "fc_" {
        /// Reads whose data were lost.
        data_lost: Counter in Requests,
        /// Questions about an exchange that has made no progress (REC).
        questions: Counter in Frames,
        /// Commands that have never arrived.
        not_arrived: Counter in Requests,
        /// Commands whose answer was lost.
        answer_lost: Counter in Requests,
        /// Exchanges that were aborted: too long without an end.
        timed_out: Counter in Requests,
        /// Exchanges that were aborted: the target does not answer questions.
        silent: Counter in Requests,
        /// Exchanges that were aborted: the target waits for us, or takes the command as complete.
        out_of_step: Counter in Requests,
        /// Exchanges that were aborted: the target has asked for data that there are not, or twice.
        wrong_request: Counter in Requests,
        /// ABTS that were sent.
        aborts: Counter in Frames,
        /// Logins that could not go on.
        restarts: Counter in Events,
        /// Commands that were refused because too many XIDs were quarantined.
        no_xid: Counter in Requests,
    }
}
