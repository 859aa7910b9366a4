//! An operation on the export, of any length.

use tyche_wire::{CommandFlags, Opcode};

/// An operation on the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What to do.
    pub opcode: Opcode,
    /// Modifiers, such as FUA.
    pub flags: CommandFlags,
    /// First byte, a multiple of 512.
    pub offset: u64,
    /// Bytes, a multiple of 512; zero for a flush.
    pub len: u32,
}

/// Number of an operation in progress. It is used again once the event of its completion was
/// polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u32);

impl Operation {
    /// Whether its effect may be lost before the next flush.
    pub(crate) fn is_volatile(&self) -> bool {
        self.opcode.modifies() && !self.flags.contains(CommandFlags::FUA)
    }
}
