//! Conversions of a target's commands and results between the protocol and [`tyche_block`].

use tyche_block::{Errno, Operation};
use tyche_proto::wire::{Command, CommandFlags, Opcode, Status};

/// The operation of a target's store for a command.
pub(super) fn block_operation(command: &Command) -> Operation {
    let fua = command.flags.contains(CommandFlags::FUA);
    let may_unmap = command.flags.contains(CommandFlags::MAY_UNMAP);
    match command.opcode {
        Opcode::Read => Operation::Read,
        Opcode::Write => Operation::Write { fua },
        Opcode::Flush => Operation::Flush,
        Opcode::Discard => Operation::Discard,
        Opcode::WriteZeroes => Operation::WriteZeroes { fua, may_unmap },
        Opcode::BlockStatus => Operation::BlockStatus,
    }
}

/// The status on the wire for the result of a target's store.
pub(super) fn status(result: Result<(), Errno>) -> Status {
    let Err(errno) = result else { return Status::Success };
    match errno {
        Errno::INVAL => Status::Invalid,
        Errno::ROFS => Status::ReadOnly,
        Errno::NOSPC => Status::NoSpace,
        Errno::OPNOTSUPP => Status::Unsupported,
        Errno::NOMEM => Status::NoMemory,
        _ => Status::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversion::result;

    #[test]
    fn a_host_learns_what_the_store_said() {
        for &end in Status::ALL {
            assert_eq!(status(result(end)), end);
        }
        assert_eq!(status(Err(Errno::PERM)), Status::Io);
    }
}
