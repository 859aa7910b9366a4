//! What a session knows of the target's volatile cache: whether a flush may succeed.
//!
//! A flush promises that everything completed before it will last. If the target has lost some of
//! that, the next flush must fail, once: that is how a disk tells. PROTOCOL.md, "Flush and FUA".

use tyche_wire::{CommandFlags, Opcode, Status};

use crate::initiator::Piece;
use crate::session::Operation;

/// What the target's volatile cache may hold of ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cache {
    /// Pieces of modifications completed so far.
    completed: u64,
    /// How many of them a flush has made durable.
    flushed: u64,
    /// Some were lost, and no flush has said so yet.
    lost: bool,
}

impl Cache {
    /// How many pieces a flush that begins now covers.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether the target may hold anything of ours that no flush has covered.
    pub(crate) fn is_dirty(&self) -> bool {
        self.flushed < self.completed
    }

    /// The target's cache has nothing of ours any more.
    pub(crate) fn forget(&mut self) {
        self.flushed = self.completed;
    }

    /// The next flush fails.
    pub(crate) fn note_loss(&mut self) {
        self.lost = true;
    }

    /// A piece has ended at the target. Pieces count, not operations: if the cache is lost between
    /// two pieces of one operation, the first is lost though the operation is not yet complete.
    pub(crate) fn written(&mut self, piece: &Piece, status: Status) {
        let volatile = piece.opcode.modifies() && !piece.flags.contains(CommandFlags::FUA);
        if volatile && status == Status::Success {
            self.completed += 1;
        }
    }

    /// An operation has succeeded at the target; returns what the host is told.
    pub(crate) fn finish(&mut self, operation: &Operation, covers: u64) -> Status {
        if operation.opcode == Opcode::Flush {
            if std::mem::take(&mut self.lost) {
                return Status::Io;
            }
            self.flushed = self.flushed.max(covers);
        }
        Status::Success
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(opcode: Opcode, flags: CommandFlags) -> Piece {
        Piece { op: 0, base: 0, opcode, flags, offset: 0, len: 512 }
    }

    fn flush(cache: &mut Cache, covers: u64) -> Status {
        let flags = CommandFlags::NONE;
        cache.finish(&Operation { opcode: Opcode::Flush, flags, offset: 0, len: 0 }, covers)
    }

    #[test]
    fn a_loss_fails_one_flush() {
        let mut cache = Cache::default();
        cache.written(&piece(Opcode::Write, CommandFlags::NONE), Status::Success);
        assert!(cache.is_dirty());
        cache.forget();
        cache.note_loss();
        assert_eq!(flush(&mut cache, 1), Status::Io);
        assert_eq!(flush(&mut cache, 1), Status::Success);
    }

    #[test]
    fn a_flush_covers_what_completed_before_it_began() {
        let mut cache = Cache::default();
        cache.written(&piece(Opcode::Write, CommandFlags::FUA), Status::Success);
        cache.written(&piece(Opcode::Write, CommandFlags::NONE), Status::Io);
        assert!(!cache.is_dirty(), "neither is in the cache for all we know");
        let covers = cache.completed();
        cache.written(&piece(Opcode::WriteZeroes, CommandFlags::NONE), Status::Success);
        assert_eq!(flush(&mut cache, covers), Status::Success);
        assert!(cache.is_dirty());
        let covers = cache.completed();
        assert_eq!(flush(&mut cache, covers), Status::Success);
        assert!(!cache.is_dirty());
    }
}
