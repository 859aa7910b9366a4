//! The subject of an exchange: a command, or a link service about one.

use tyche_fc_wire::Xid;
use tyche_fc_wire::fcp::{CDB_LEN, Response};
use tyche_time::Instant;

use super::command::{Command, CommandAnswer, Data, Sense};
use crate::received::Received;

/// A command.
pub(super) struct Task {
    pub(super) nexus: u16,
    pub(super) unit: u16,
    pub(super) cdb: [u8; CDB_LEN],
    pub(super) data: Data,
    pub(super) modifies: bool,
    pub(super) hears_attentions: bool,
    pub(super) phase: Phase,
    /// Whether the user knows its end.
    pub(super) is_completed: bool,
    /// Whether it was sent before the logical unit had answered any command of the login.
    pub(super) is_first: bool,
    pub(super) sent_at: Instant,
    /// The exchange at the target, from its first frame on.
    pub(super) rx_id: Xid,
    /// Frames of the budget that it has.
    pub(super) frames: u32,
    /// Data that have come, or those that the target has asked for.
    pub(super) moved: Received,
    /// The sequence that we have sent last.
    pub(super) seq_id: u8,
    pub(super) burst: Option<Burst>,
    /// The exchange of our question about it, while we wait for its answer.
    pub(super) question: Option<Xid>,
    /// Questions in a row that were not answered.
    pub(super) silence: u8,
    /// The response, and whether it is to be confirmed.
    pub(super) answer: Option<(CommandAnswer, bool)>,
}

/// The state of a command's exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A command with data waits for room for them.
    Waiting,
    /// The command is to be sent.
    Ready,
    /// The command was sent.
    Sent,
    /// The response has come before all data.
    Answered,
    /// The target does not know it. It may still be on its way.
    Doubted,
    /// ABTS was sent so often, or is to be sent.
    Aborting(u8),
    /// No ABTS was answered.
    Stuck,
    /// FCP_CONF is to be sent.
    Confirming,
    /// The abort is confirmed. RRQ is sent when no frame can be on the way any more.
    Recovering,
}

/// Data that the target has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// The next byte, and the end.
    pub(super) next: u32,
    pub(super) end: u32,
    pub(super) seq_cnt: u16,
}

/// A link service about the exchange of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) nexus: u16,
    pub(super) kind: ServiceKind,
    /// The exchange that it is about.
    pub(super) about: Xid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceKind {
    Rec,
    Rrq,
}

impl Task {
    pub(super) fn new(command: &Command, nexus: u16) -> Self {
        Self {
            nexus,
            unit: command.unit.0,
            cdb: command.cdb,
            data: command.data,
            modifies: command.modifies,
            hears_attentions: command.hears_attentions,
            phase: Phase::Waiting,
            is_completed: false,
            is_first: false,
            sent_at: Instant(0),
            rx_id: Xid::NONE,
            frames: 0,
            moved: Received::default(),
            seq_id: 0,
            burst: None,
            question: None,
            silence: 0,
            answer: None,
        }
    }

    /// Leaves the budget; returns the frames that it had of it.
    pub(super) fn leave(&mut self) -> u32 {
        let frames = std::mem::take(&mut self.frames);
        if self.phase == Phase::Waiting { 0 } else { frames }
    }

    /// Whether frames of it may be on the wire.
    pub(super) fn is_sent(&self) -> bool {
        !matches!(self.phase, Phase::Waiting | Phase::Ready)
    }

    /// Bytes of data that have been moved.
    pub(super) fn moved(&self) -> u32 {
        self.moved.count() - self.burst.map_or(0, |it| it.end - it.next)
    }
}

impl CommandAnswer {
    pub(super) fn new(response: &Response<'_>) -> Self {
        Self {
            status: response.status,
            qualifier: response.qualifier,
            residual: response.residual,
            sense: Sense::new(response.sense),
        }
    }
}
