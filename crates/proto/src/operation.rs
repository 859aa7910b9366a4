//! An operation in progress: which of its pieces are issued, and what their ends mean to it.

use tyche_wire::{CommandFlags, Opcode, Status};

use crate::time::Instant;

/// An operation on the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What to do.
    pub opcode: Opcode,
    /// How.
    pub flags: CommandFlags,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Bytes, a multiple of 512; zero for a flush.
    pub len: u32,
}

/// Names an operation in progress; used again after its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// What the end of a piece means to its operation.
pub(crate) enum Progress {
    /// Other pieces are not done.
    Pending,
    /// It has to be issued once more from its beginning.
    Redo,
    /// All of it is done, at the target.
    Done(Status),
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) operation: Operation,
    /// The NUMA node of its memory, if that matters.
    pub(crate) node: Option<u16>,
    /// Bytes handed to pieces. A flush counts as one byte.
    pub(crate) issued: u32,
    pub(crate) pieces: u32,
    pub(crate) status: Status,
    pub(crate) active: bool,
    /// When it was submitted, or made progress last.
    pub(crate) since: Instant,
    /// Some of it may be in the target's volatile cache.
    pub(crate) volatile: bool,
    /// Some of it was lost with that cache: everything has to be done again.
    pub(crate) redo: bool,
}

impl Op {
    pub(crate) const IDLE: Self = Self {
        operation: Operation {
            opcode: Opcode::Flush,
            flags: CommandFlags::NONE,
            offset: 0,
            len: 0,
        },
        node: None,
        issued: 0,
        pieces: 0,
        status: Status::Success,
        active: false,
        since: Instant(0),
        volatile: false,
        redo: false,
    };

    pub(crate) fn is_issued(&self) -> bool {
        self.issued >= self.operation.len.max(1)
    }

    /// A piece has ended.
    pub(crate) fn done(&mut self, status: Status) -> Progress {
        self.pieces -= 1;
        self.volatile |= self.operation.is_volatile() && status == Status::Success;
        if self.status == Status::Success {
            self.status = status;
        }
        if self.status != Status::Success {
            self.issued = self.operation.len.max(1);
        }
        if self.pieces > 0 || !self.is_issued() {
            return Progress::Pending;
        }
        if self.redo && self.status == Status::Success {
            (self.redo, self.issued) = (false, 0);
            return Progress::Redo;
        }
        (self.active, self.volatile) = (false, false);
        Progress::Done(self.status)
    }
}

impl Operation {
    /// Whether its effect may be lost until a flush.
    pub(crate) fn is_volatile(&self) -> bool {
        self.opcode.modifies() && !self.flags.contains(CommandFlags::FUA)
    }
}
