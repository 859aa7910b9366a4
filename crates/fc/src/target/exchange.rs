//! An exchange of a target: one command, or one task management function.
//!
//! ```text
//!           a command                  all data           executed
//! Free ──► Offered ──┬──► Gathering ──────────► Executing ──────┐
//!   │                ├────────────────────────►                 ▼
//!   │                └─────────────── answered ─────────────► Sending ──► Done
//!   └────► Managing ──────────────────────────────────────────►
//! ```
//!
//! ABTS leads to Aborted from everywhere; from Offered, Executing and Managing not before the user
//! has said that it is over.

use arrayvec::ArrayVec;
use tyche_fc_wire::fcp::{Residual, Response, ResponseCode};
use tyche_fc_wire::{PortId, Xid};
use tyche_time::Instant;

use super::outputs::Function;
use crate::received::Received;

/// The most bytes of sense data.
pub const SENSE_LEN_MAX: usize = 32;

/// Statuses of SCSI that have their cause here (SAM-5).
pub(super) mod status {
    pub(crate) const CHECK_CONDITION: u8 = 0x02;
    pub(crate) const TASK_SET_FULL: u8 = 0x28;
    pub(crate) const TASK_ABORTED: u8 = 0x40;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is known of it.
    #[default]
    Free,
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
    /// Another initiator wanted a function that ends it.
    TaskAborted,
    /// BA_ACC to the ABTS of that sequence.
    Abort {
        seq_id: u8,
    },
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
}

/// The end of a command, to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) status: u8,
    pub(super) residual: Residual,
    pub(super) code: Option<ResponseCode>,
    pub(super) sense: ArrayVec<u8, SENSE_LEN_MAX>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) state: State,
    /// The initiator's place among those that are logged in.
    pub(super) nexus: u16,
    pub(super) originator: PortId,
    pub(super) ox_id: Xid,
    pub(super) crn: u8,
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
    pub(super) outcome: Outcome,
    /// SEQ_ID of the next sequence that we send.
    pub(super) seq_id: u8,
    /// SEQ_CNT of the next frame of a read's data.
    pub(super) seq_cnt: u16,
    /// When to give up waiting.
    pub(super) at: Option<Instant>,
    pub(super) ending: Option<Ending>,
    /// Whether the user knows of it.
    pub(super) is_lent: bool,
    /// Whether it is among those that have a frame to send.
    pub(super) is_ready: bool,
}

impl Exchange {
    /// Begins a new exchange.
    pub(super) fn begin(&mut self, originator: PortId, ox_id: Xid) {
        let Self { received, outcome, .. } = std::mem::take(self);
        *self = Self { originator, ox_id, received, outcome, ..Self::default() };
        self.received.clear();
        self.outcome = Outcome::default();
    }

    /// Whether the user is at work with it.
    pub(super) fn is_with_user(&self) -> bool {
        matches!(self.state, State::Offered | State::Executing | State::Managing(..))
    }

    /// Whether it is a command that has not ended.
    pub(super) fn is_task(&self) -> bool {
        use State::{Executing, Gathering, Offered, Sending};
        matches!(self.state, Offered | Gathering(_) | Executing | Sending)
    }

    /// The difference between the data that the initiator expects and those that there are.
    pub(super) fn residual(&self, len: u32) -> Residual {
        match self.expected {
            expected if len < expected => Residual::Under(expected - len),
            expected if len > expected => Residual::Over(len - expected),
            _ => Residual::None,
        }
    }

    /// SEQ_ID of a new sequence.
    pub(super) fn next_sequence(&mut self) -> u8 {
        self.seq_id = self.seq_id.wrapping_add(1);
        self.seq_id
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
        Self { status: status::CHECK_CONDITION, residual, code: None, sense }
    }

    /// The response's fields.
    pub(super) fn response(&self) -> Response<'_> {
        Response {
            status: self.status,
            qualifier: 0,
            confirm: false,
            residual: self.residual,
            code: self.code.map(ResponseCode::to_wire),
            sense: &self.sense,
        }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self { status: 0, residual: Residual::None, code: None, sense: ArrayVec::new() }
    }
}
