//! An exchange of a target: one command, or one task management function.
//!
//! ```text
//!            a write             all data            executed
//! Offered ──┬──► Gathering ──────────────┬──► Executing ──┐
//!           ├─── anything else ──────────┘                ▼
//!           └─── the device server has answered ──────► Sending ──► Done
//! Managing ───── the function is done ────────────────►
//! ```
//!
//! ABTS leads to Aborted from everywhere, but from Offered, Executing and Managing not before the
//! user has said that this is over.

use arrayvec::ArrayVec;
use tyche_fc_wire::fcp::{Residual, Response, ResponseCode};
use tyche_fc_wire::{Header, Xid};
use tyche_time::Instant;

use super::outputs::Function;
use crate::received::Received;

/// The most bytes of sense data.
pub const SENSE_LEN_MAX: usize = 34;

/// Statuses of SCSI that have their cause here (SAM-5).
pub(super) mod status {
    pub(crate) const CHECK_CONDITION: u8 = 0x02;
    pub(crate) const TASK_SET_FULL: u8 = 0x28;
    pub(crate) const TASK_ABORTED: u8 = 0x40;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The user has the command, and has not said yet what it is.
    Offered,
    /// Data of a write come.
    Gathering(Phase),
    /// It is at the store.
    Executing,
    /// A task management function waits for commands to end, or the user does the rest.
    Managing(Function, Managing),
    /// Data of a read go out, and then the response.
    Sending,
    /// The response was sent.
    Done,
    /// Ended by ABTS. Frames of it may still be on the way.
    Aborted,
}

/// The place of a write's next burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits until there is room for it at our end.
    Waiting,
    /// There is; FCP_XFER_RDY waits to be sent.
    Granted,
    /// The initiator was asked for it.
    Asked,
}

/// The place of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Managing {
    /// Commands that it has ended are still at the store.
    Draining,
    /// The user does the rest.
    Offered,
}

/// The end that an exchange is to have when the user is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its initiator knows: it has logged out, or wanted a function that ends it.
    Silent,
    /// Another initiator wanted a function that ends it, or the target's user does.
    TaskAborted,
    /// BA_ACC to the ABTS of that sequence.
    Abort { seq_id: u8 },
}

/// The burst that was asked for last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    pub(super) offset: u32,
    pub(super) len: u32,
    /// Frames that there is room for.
    pub(super) frames: u32,
    /// Frames that have come, repeated ones aside.
    pub(super) came: u32,
    /// When it is over, whatever is missing.
    pub(super) until: Option<Instant>,
    /// SEQ_ID of all its frames, once it is known.
    pub(super) seq_id: Option<u8>,
}

/// The end of a command, to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) status: u8,
    pub(super) residual: Residual,
    pub(super) code: Option<ResponseCode>,
    pub(super) sense: ArrayVec<u8, SENSE_LEN_MAX>,
    /// Whether the initiator is to confirm it, and has not done so.
    pub(super) confirm: bool,
}

/// The state of one exchange at a target: numbers, progress of the data, outcome, and who is at
/// work with it. It lives in a slot of [`Exchanges`](super::table::Exchanges).
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) state: State,
    /// The initiator's place among those that are logged in.
    pub(super) nexus: u16,
    pub(super) ox_id: Xid,
    pub(super) rx_id: Xid,
    /// SEQ_ID of the initiator's last sequence.
    pub(super) seq_id: u8,
    /// Whether the command has a number (CRN): its initiator counts its sequences, too.
    pub(super) is_numbered: bool,
    pub(super) lun: [u8; 8],
    /// The directions in which there may be data.
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Bytes that the initiator expects: FCP_DL.
    pub(super) expected: u32,
    /// Bytes of the data that are moved, in either direction.
    pub(super) len: u32,
    /// Bytes that were asked for, or sent.
    pub(super) moved: u32,
    pub(super) received: Received,
    pub(super) burst: Burst,
    /// Until then data that were missed may come, and the slot is not given to another.
    pub(super) late_until: Option<Instant>,
    pub(super) outcome: Outcome,
    /// SEQ_ID of the next sequence that we send.
    pub(super) next_seq_id: u8,
    /// The sequence of a read's data, and SEQ_CNT of its next frame.
    pub(super) sequence: (u8, u16),
    pub(super) ending: Option<Ending>,
    /// Whether it counts among the exchanges that its initiator holds.
    pub(super) is_held: bool,
    /// Whether the user knows of it.
    pub(super) is_lent: bool,
    /// Whether it is among those that have a frame to send.
    pub(super) is_ready: bool,
}

impl Exchange {
    /// An exchange of an initiator that has just begun.
    pub(super) fn new(nexus: u16, header: &Header) -> Self {
        Self {
            state: State::Offered,
            nexus,
            ox_id: header.ox_id,
            rx_id: Xid::NONE,
            seq_id: header.seq_id,
            is_numbered: false,
            lun: [0; 8],
            reads: false,
            writes: false,
            expected: 0,
            len: 0,
            moved: 0,
            received: Received::default(),
            burst: Burst::default(),
            late_until: None,
            outcome: Outcome::default(),
            next_seq_id: 0,
            sequence: (0, 0),
            ending: None,
            is_held: false,
            is_lent: false,
            is_ready: false,
        }
    }

    /// Its numbers on the wire.
    pub(super) fn ids(&self) -> (Xid, Xid) {
        (self.ox_id, self.rx_id)
    }

    /// Whether the user is at work with it.
    pub(super) fn is_with_user(&self) -> bool {
        matches!(self.state, State::Offered | State::Executing | State::Managing(..))
    }

    /// Whether it has not ended.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, State::Done | State::Aborted)
    }

    /// The difference between the data that the initiator expects and those that there are.
    pub(super) fn residual(&self, len: u32) -> Residual {
        match self.expected {
            expected if len < expected => Residual::Under(expected - len),
            expected if len > expected => Residual::Over(len - expected),
            _ => Residual::None,
        }
    }

    /// Begins a sequence; returns its SEQ_ID.
    pub(super) fn begin_sequence(&mut self) -> u8 {
        let seq_id = self.next_seq_id;
        self.next_seq_id = seq_id.wrapping_add(1);
        seq_id
    }
}

impl Outcome {
    /// A response without effect on the medium.
    pub(super) fn of_code(code: ResponseCode) -> Self {
        Self { code: Some(code), ..Self::default() }
    }

    /// CHECK CONDITION with sense data in the fixed format (SPC-4).
    pub(super) fn check(key: u8, (code, qualifier): (u8, u8), residual: Residual) -> Self {
        let (mut sense, additional) = ([0; 18], 10);
        (sense[0], sense[2], sense[7]) = (0x70, key, additional);
        (sense[12], sense[13]) = (code, qualifier);
        let sense = sense.as_slice().try_into().expect("it is short");
        Self { status: status::CHECK_CONDITION, residual, sense, ..Self::default() }
    }

    /// Data of a write are lost: the initiator is to send the command again.
    pub(super) fn data_phase_error() -> Self {
        // Aborted command: data phase error.
        Self::check(0x0b, (0x4b, 0x00), Residual::None)
    }

    /// The response's fields.
    pub(super) fn response(&self) -> Response<'_> {
        Response {
            status: self.status,
            qualifier: 0,
            confirm: self.confirm,
            residual: self.residual,
            code: self.code.map(ResponseCode::to_wire),
            sense: &self.sense,
        }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        let sense = ArrayVec::new();
        Self { status: 0, residual: Residual::None, code: None, sense, confirm: false }
    }
}
