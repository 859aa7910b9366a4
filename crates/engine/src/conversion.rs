//! Conversions of requests, results and disks between the protocol and [`tyche_block`].

use tyche_block::{Errno, Geometry, Operation as BlockOperation, Request};
use tyche_proto::wire::{Command, CommandFlags, Opcode, Status};
use tyche_proto::{ExportState, Operation};

/// The geometry of an export at its host.
pub(crate) fn geometry(export: &ExportState) -> Geometry {
    Geometry {
        size: export.size,
        block_size: export.block_size,
        read_only: export.read_only,
        write_cache: export.write_cache,
        discard: export.discard,
        rotational: export.rotational,
    }
}

/// The operation of a host's session for a request.
pub(crate) fn operation(request: &Request) -> Operation {
    let mut flags = CommandFlags::NONE;
    let opcode = match request.operation {
        BlockOperation::Read => Opcode::Read,
        BlockOperation::Write { fua } => {
            flags.set(CommandFlags::FUA, fua);
            Opcode::Write
        }
        BlockOperation::Flush => Opcode::Flush,
        BlockOperation::Discard => Opcode::Discard,
        BlockOperation::WriteZeroes { fua, may_unmap } => {
            flags.set(CommandFlags::FUA, fua);
            flags.set(CommandFlags::MAY_UNMAP, may_unmap);
            Opcode::WriteZeroes
        }
    };
    let flush = opcode == Opcode::Flush;
    let (offset, len) = if flush { (0, 0) } else { (request.offset, request.len) };
    Operation { opcode, flags, offset, len }
}

/// The operation of a target's store for a command.
pub(crate) fn block_operation(command: &Command) -> BlockOperation {
    let fua = command.flags.contains(CommandFlags::FUA);
    let may_unmap = command.flags.contains(CommandFlags::MAY_UNMAP);
    match command.opcode {
        Opcode::Read => BlockOperation::Read,
        Opcode::Write => BlockOperation::Write { fua },
        Opcode::Flush => BlockOperation::Flush,
        Opcode::Discard => BlockOperation::Discard,
        Opcode::WriteZeroes => BlockOperation::WriteZeroes { fua, may_unmap },
    }
}

/// The result of a request at the host.
pub(crate) fn result(status: Status) -> Result<(), Errno> {
    Err(match status {
        Status::Success => return Ok(()),
        Status::Io => Errno::IO,
        Status::Invalid => Errno::INVAL,
        Status::ReadOnly => Errno::ROFS,
        Status::NoSpace => Errno::NOSPC,
        Status::Unsupported => Errno::OPNOTSUPP,
        Status::NoMemory => Errno::NOMEM,
    })
}

/// The status on the wire for the result of a target's store.
pub(crate) fn status(result: Result<(), Errno>) -> Status {
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

    #[test]
    fn a_host_learns_what_the_store_said() {
        for &end in Status::ALL {
            assert_eq!(status(result(end)), end);
        }
        assert_eq!(status(Err(Errno::PERM)), Status::Io);
    }
}
