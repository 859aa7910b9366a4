//! Requests of block devices for the operations of the plan.

use tyche_block::{Arena, Extent, Operation as BlockOperation, PAGE, Request};
use tyche_proto::Operation;
use tyche_wire::{CommandFlags, Opcode, SECTOR_LEN};

use crate::content::fill;

/// Content of memory before a read.
const STALE: u8 = 0xee;
/// Bytes of memory that requests share. One that finds no room gets memory of its own.
const MEMORY_LEN: usize = 32 << 20;

/// The request for an operation, with memory of its own. `stamp`: that of the data.
pub(crate) fn request(operation: &Operation, stamp: u64) -> Request {
    let Operation { opcode, flags, offset, len } = *operation;
    let (fua, may_unmap) =
        (flags.contains(CommandFlags::FUA), flags.contains(CommandFlags::MAY_UNMAP));
    let (operation, buffer) = match opcode {
        Opcode::Read | Opcode::BlockStatus => {
            let mut buffer = buffer(len);
            buffer.fill(STALE);
            let is_read = opcode == Opcode::Read;
            let kind = if is_read { BlockOperation::Read } else { BlockOperation::BlockStatus };
            (kind, Some(buffer))
        }
        Opcode::Write => {
            let mut buffer = buffer(len);
            fill(&mut buffer[..len as usize], stamp, offset / SECTOR_LEN);
            (BlockOperation::Write { fua }, Some(buffer))
        }
        Opcode::Flush => (BlockOperation::Flush, None),
        Opcode::WriteZeroes => (BlockOperation::WriteZeroes { fua, may_unmap }, None),
        Opcode::Discard => (BlockOperation::Discard, None),
    };
    Request { operation, offset, len, buffer }
}

thread_local! {
    /// Memory for the requests of all runs of a thread, because new memory from the kernel costs
    /// more than the rest of a run.
    static MEMORY: Arena = Arena::new(MEMORY_LEN / PAGE);
}

fn buffer(len: u32) -> Extent {
    let len = len as usize;
    let shared = MEMORY.with(|memory| memory.alloc(len));
    shared.or_else(|| Arena::new(len.div_ceil(PAGE)).alloc(len)).expect("an arena of its own")
}
