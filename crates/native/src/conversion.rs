//! Conversions of a host's requests and results between the protocol and [`tyche_block`].

use tyche_block::{Errno, Operation as BlockOperation, Request};
use tyche_proto::Operation;
use tyche_proto::wire::{CommandFlags, Opcode, Status};

/// The operation of a host's session for a request.
pub fn operation(request: &Request) -> Operation {
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
        BlockOperation::BlockStatus => Opcode::BlockStatus,
    };
    let flush = opcode == Opcode::Flush;
    let (offset, len) = if flush { (0, 0) } else { (request.offset, request.len) };
    Operation { opcode, flags, offset, len }
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
