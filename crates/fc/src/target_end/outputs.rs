//! The outputs of a target, and counters of what it ignores.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use tyche_counters::counters;
use tyche_fc_wire::fcp::CDB_LEN;
use tyche_fc_wire::{Ethernet, Header, PortId, Wwn};

use crate::Outgoing;

/// Answers that belong to no exchange of ours, and wait to be sent. There is at most one for each
/// frame that has come.
const ANSWERS_MAX: usize = 1024;
/// Bytes of the longest of them: an FCP_RSP with response information.
const ANSWER_LEN_MAX: usize = 32;

/// Work for the user, who has the device server, the memory and the store, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A command. The user gives it to the device server, and goes on with
    /// [`complete`](super::Lane::complete) if that has answered it, or with
    /// [`accept`](super::Lane::accept).
    Command(Command),
    /// The payload of the frame that was handled last belongs to the exchange's data.
    Place {
        /// The exchange.
        exchange: u16,
        /// The first byte within its data.
        offset: u32,
        /// Bytes: all of the payload.
        len: u32,
    },
    /// Nothing is missing any more of what was accepted: it is to be executed, once, and then
    /// [completed](super::Lane::complete).
    Execute {
        /// The exchange.
        exchange: u16,
    },
    /// The exchange is over. Its memory is free, and nothing of it is to follow. Comes once for
    /// each command.
    Release {
        /// The exchange.
        exchange: u16,
    },
    /// The initiator has got the response that was to be confirmed. Comes after
    /// [`Release`](Action::Release), and not at all if it is lost.
    Confirmed {
        /// The exchange.
        exchange: u16,
    },
    /// A task management function has ended its commands in this lane, none of which is at the
    /// store any more. The user does what is left of it, with [other
    /// lanes](super::Lane::end_tasks) as well, and says how it went with
    /// [`managed`](super::Lane::managed).
    Manage {
        /// The exchange.
        exchange: u16,
        /// The initiator that wants it.
        initiator: Wwn,
        /// The logical unit.
        lun: [u8; 8],
        /// The function.
        function: Function,
    },
    /// A task management function has taken too long, and has failed. If it was
    /// [offered](Action::Manage), the user does nothing more of it.
    Unmanage {
        /// The exchange.
        exchange: u16,
    },
    /// Nothing of the initiator's former login is at work any more.
    Drained(Wwn),
}

/// A command of an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The exchange: an index less than their number.
    pub exchange: u16,
    /// The initiator.
    pub initiator: Wwn,
    /// The logical unit, which need not exist.
    pub lun: [u8; 8],
    /// The CDB.
    pub cdb: [u8; CDB_LEN],
    /// The task attribute, 3 bits.
    pub attribute: u8,
}

/// A task management function that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Ends the initiator's commands at the logical unit.
    AbortTaskSet,
    /// Ends all initiators' commands at the logical unit.
    ClearTaskSet,
    /// The same, and the logical unit is as after power on.
    LuReset,
    /// The same for all logical units.
    TargetReset,
}

/// The data of a command, in bytes, as the device server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// None.
    None,
    /// Data for the initiator.
    In(u32),
    /// Data of the initiator, all of which are there before the command is executed.
    Out(u32),
}

counters! {
    /// Frames that had no effect, and commands that had another than they should have had.
    pub struct Ignored {
        /// Frames of a port that is not logged in as an initiator, or from another address.
        stranger: Counter in Frames,
        /// Frames whose payload could not be read, or whose fields contradict each other.
        malformed: Counter in Frames,
        /// Commands that came twice.
        repeated_command: Counter in Requests,
        /// Frames of exchanges that have been aborted.
        aborted: Counter in Frames,
        /// Data of no exchange, or not of this initiator.
        unknown: Counter in Frames,
        /// Data that no burst has asked for: too early, too late, or beside it.
        unasked: Counter in Frames,
        /// Data with the SEQ_ID of another sequence than that of the burst: of an earlier exchange.
        other_sequence: Counter in Frames,
        /// Data that came twice.
        repeated_data: Counter in Frames,
        /// Data with more holes between them than are kept: taken as lost.
        scattered: Counter in Frames,
        /// Confirmations, which are not asked for, and requests that are not served.
        unexpected: Counter in Frames,
        /// Bursts that did not come whole: their commands have failed, and are to be sent again.
        lost_data: Counter in Requests,
        /// Writes that were not asked for: their initiator had sent no data of others. They have
        /// failed, and are to be sent again.
        not_asked: Counter in Requests,
        /// Task management functions that have failed, for some command has not ended in time.
        management_failed: Counter in Requests,
        /// Commands for which there was no room, and those of them that could not be aborted for
        /// that reason.
        no_room: Counter in Requests,
        /// Our own answers that the caller did not take before too many others.
        undrained: Counter in Frames,
    }
}

/// A short frame to be sent that is about no exchange in the table.
pub(super) struct ShortFrame {
    ethernet: Ethernet,
    header: Header,
    payload: ArrayVec<u8, ANSWER_LEN_MAX>,
}

/// The outputs of the last input that the caller has not taken yet.
pub(super) struct Outputs {
    pub(super) actions: VecDeque<Action>,
    answers: VecDeque<ShortFrame>,
    pub(super) ignored: Ignored,
}

impl Outputs {
    /// Outputs of so many exchanges.
    pub(super) fn new(exchanges: usize) -> Self {
        Self {
            // Of each exchange its end, and what comes of that.
            actions: VecDeque::with_capacity(2 * exchanges),
            answers: VecDeque::with_capacity(ANSWERS_MAX),
            ignored: Ignored::default(),
        }
    }

    /// Sends an answer, unless too many wait already: of all ports, or of this one.
    pub(super) fn answer(&mut self, ethernet: Ethernet, header: Header, payload: &[u8]) {
        let free = ANSWERS_MAX - self.answers.len();
        // With fewer than half of them nobody has too many.
        let is_full = free <= ANSWERS_MAX / 2 && {
            let own = self.answers.iter().filter(|it| it.header.d_id == header.d_id).count();
            own >= free
        };
        if is_full {
            self.ignored.undrained += 1;
            return;
        }
        let payload = payload.try_into().expect("answers are short");
        self.answers.push_back(ShortFrame { ethernet, header, payload });
    }

    /// Forgets the answers to a port.
    pub(super) fn forget_answers(&mut self, to: PortId) {
        self.answers.retain(|it| it.header.d_id != to);
    }

    /// Composes the next answer; false if there is none.
    pub(super) fn compose(&mut self, out: &mut Outgoing) -> bool {
        let Some(ShortFrame { ethernet, header, payload }) = self.answers.pop_front() else {
            return false;
        };
        out.set(ethernet, &header, &payload);
        true
    }
}
