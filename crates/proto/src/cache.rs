//! What a session knows of the target's volatile cache: whether a flush may succeed.
//!
//! A flush promises that everything completed before it will last. If the target has lost some of
//! that, the next flush must fail, once: that is how a disk tells. PROTOCOL.md, "Lost writes".

use tyche_wire::{Opcode, Status, Uuid};

use crate::operation::Operation;

/// What the target's volatile cache may hold of ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cache {
    /// Volatile modifications completed so far.
    completed: u64,
    /// How many of them a flush has made durable.
    flushed: u64,
    /// The `boot` that some were lost with, if no flush has said so yet.
    lost: Option<Uuid>,
}

impl Cache {
    /// That of a session that goes on where another ended: nobody knows what that one has left.
    pub(crate) fn inherited() -> Self {
        Self { completed: 1, flushed: 0, lost: None }
    }

    /// How many modifications a flush that begins now covers.
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

    /// What was completed under that `boot` is lost: the next flush fails.
    pub(crate) fn note_loss(&mut self, boot: Uuid) {
        self.lost.get_or_insert(boot);
    }

    /// The `boot` of what was lost, while no flush has said so.
    pub(crate) fn lost(&self) -> Option<Uuid> {
        self.lost
    }

    /// An operation has succeeded at the target; returns what the host is told.
    pub(crate) fn finish(&mut self, operation: &Operation, covers: u64) -> Status {
        if operation.is_volatile() {
            self.completed += 1;
        }
        if operation.opcode == Opcode::Flush {
            if self.lost.take().is_some() {
                return Status::Io;
            }
            self.flushed = self.flushed.max(covers);
        }
        Status::Success
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::CommandFlags;

    use super::*;

    const WRITE: Operation =
        Operation { opcode: Opcode::Write, flags: CommandFlags::NONE, offset: 0, len: 512 };
    const FLUSH: Operation = Operation { opcode: Opcode::Flush, len: 0, ..WRITE };

    #[test]
    fn a_loss_fails_one_flush() {
        let mut cache = Cache::default();
        cache.finish(&WRITE, 0);
        assert!(cache.is_dirty());
        cache.forget();
        cache.note_loss(Uuid::from_u128(1));
        cache.note_loss(Uuid::from_u128(2));
        assert_eq!(cache.lost(), Some(Uuid::from_u128(1)), "nobody was told of the first yet");
        assert_eq!(cache.finish(&FLUSH, 1), Status::Io);
        assert_eq!(cache.lost(), None);
        assert_eq!(cache.finish(&FLUSH, 1), Status::Success);
    }

    #[test]
    fn a_flush_covers_what_completed_before_it_began() {
        let mut cache = Cache::default();
        cache.finish(&Operation { flags: CommandFlags::FUA, ..WRITE }, 0);
        assert!(!cache.is_dirty(), "it is durable already");
        cache.finish(&WRITE, 0);
        let covers = cache.completed();
        cache.finish(&Operation { opcode: Opcode::WriteZeroes, ..WRITE }, 0);
        assert_eq!(cache.finish(&FLUSH, covers), Status::Success);
        assert!(cache.is_dirty());
        let covers = cache.completed();
        assert_eq!(cache.finish(&FLUSH, covers), Status::Success);
        assert!(!cache.is_dirty());
    }
}
