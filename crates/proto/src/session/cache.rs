//! A queue's knowledge of the target's volatile cache: it decides whether a flush may succeed.
//!
//! A flush promises that the writes completed before it will last. If the target has lost some of
//! them, the next flush must fail, once, as with a disk. PROTOCOL.md, "Lost writes".

use tyche_wire::{Opcode, Status, Uuid};

use super::association::{Seat, Written};
use crate::operation::Operation;
use crate::rules::{Rule, Rules};

/// See the module.
#[derive(Debug)]
pub(crate) struct Cache {
    seat: Seat,
    /// For each operation and writer: what the operation has to cover, if it is a flush.
    covers: Box<[Written]>,
}

impl Cache {
    /// `operations`: operations in progress at most.
    pub(crate) fn new(seat: Seat, operations: u32) -> Self {
        let len = operations as usize * seat.association().writers();
        Self { seat, covers: vec![Written::NOTHING; len].into() }
    }

    fn covers(&mut self, op: u32) -> (&Seat, &mut [Written]) {
        let writers = self.seat.association().writers();
        (&self.seat, &mut self.covers[op as usize * writers..][..writers])
    }

    /// An operation begins. `all`: a flush covers all queues, not only this one.
    pub(crate) fn begin(&mut self, op: u32, operation: &Operation, all: bool) {
        if operation.opcode == Opcode::Flush {
            let (seat, covers) = self.covers(op);
            seat.cover(covers, all);
        }
    }

    /// The target has lost its cache of the generation `boot`: see [`Seat::lose_cache`].
    pub(crate) fn lose(&self, boot: Uuid, is_told: bool) -> bool {
        self.seat.lose_cache(boot, is_told)
    }

    /// Takes the end of an operation at the target; returns its status for the host.
    pub(crate) fn finish<R: Rules>(
        &mut self,
        op: u32,
        operation: &Operation,
        status: Status,
    ) -> Status {
        if operation.opcode == Opcode::Flush {
            return self.finish_flush::<R>(op, status);
        }
        if status != Status::Success {
            return status;
        }
        if self.seat.is_over() {
            // Other operations were reported as failed: a success now could be contradicted by one
            // of them.
            return Status::Io;
        }
        if operation.is_volatile() {
            self.seat.wrote();
        }
        Status::Success
    }

    /// A flush that fails tells the host that what it had to cover may be lost: that is not told
    /// again. If it had nothing to cover, the target has lost what others have written.
    fn finish_flush<R: Rules>(&mut self, op: u32, status: Status) -> Status {
        if self.seat.is_over() || (status != Status::Success && !R::keeps(Rule::TellOnce)) {
            return if status == Status::Success { Status::Io } else { status };
        }
        let (seat, covers) = self.covers(op);
        let covers_nothing = covers.iter().all(|cover| *cover == Written::NOTHING);
        if status != Status::Success {
            seat.keep_former(covers);
        }
        let (is_safe, is_lost) = (seat.flushed(covers), seat.take_loss());
        match status {
            _ if is_lost || !is_safe => Status::Io,
            Status::Success => Status::Success,
            _ if covers_nothing => Status::Success,
            failed => failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::CommandFlags;

    use super::super::association::Association;
    use super::*;
    use crate::rules::Sound;

    const WRITE: Operation =
        Operation { opcode: Opcode::Write, flags: CommandFlags::NONE, offset: 0, len: 512 };
    const FLUSH: Operation = Operation { opcode: Opcode::Flush, len: 0, ..WRITE };

    fn cache() -> Cache {
        Cache::new(Association::new(1, None).seat(0), 2)
    }

    fn flush(cache: &mut Cache) -> Status {
        cache.begin(1, &FLUSH, true);
        cache.finish::<Sound>(1, &FLUSH, Status::Success)
    }

    #[test]
    fn a_loss_fails_one_flush() {
        let mut cache = cache();
        cache.finish::<Sound>(0, &WRITE, Status::Success);
        assert!(cache.lose(Uuid::from_u128(1), true));
        assert!(!cache.lose(Uuid::from_u128(2), true), "nothing was written since");
        assert_eq!(flush(&mut cache), Status::Io);
        assert_eq!(flush(&mut cache), Status::Success);
    }

    #[test]
    fn a_failed_flush_may_be_older_than_what_a_former_session_has_completed() {
        let former = super::super::association::tests::export(1);
        let mut cache = Cache::new(Association::new(1, Some(former)).seat(0), 2);
        cache.seat.connect(former);
        cache.begin(1, &FLUSH, true);
        assert_eq!(cache.finish::<Sound>(1, &FLUSH, Status::Io), Status::Io);
        assert!(cache.lose(former.boot, true), "writes may have ended since that began");
        assert_eq!(flush(&mut cache), Status::Io);
        assert_eq!(flush(&mut cache), Status::Success);
    }

    #[test]
    fn a_failed_flush_tells_what_it_covers_and_nobody_else() {
        let mut cache = cache();
        let fail = |cache: &mut Cache| cache.finish::<Sound>(1, &FLUSH, Status::Io);
        cache.begin(1, &FLUSH, true);
        assert_eq!(fail(&mut cache), Status::Success, "it has written nothing");
        cache.finish::<Sound>(0, &WRITE, Status::Success);
        cache.begin(1, &FLUSH, true);
        assert_eq!(fail(&mut cache), Status::Io);
        assert!(!cache.lose(Uuid::from_u128(1), true), "it was told");
        assert_eq!(flush(&mut cache), Status::Success);
        cache.begin(1, &FLUSH, true);
        cache.finish::<Sound>(0, &WRITE, Status::Success);
        assert_eq!(fail(&mut cache), Status::Success);
        assert!(cache.lose(Uuid::from_u128(2), true), "it came later");
        assert_eq!(flush(&mut cache), Status::Io);
    }

    #[test]
    fn a_flush_covers_what_completed_before_it_began() {
        let mut cache = cache();
        cache.finish::<Sound>(0, &Operation { flags: CommandFlags::FUA, ..WRITE }, Status::Success);
        assert!(!cache.seat.is_dirty(), "it is durable already");
        cache.finish::<Sound>(0, &WRITE, Status::Success);
        cache.begin(1, &FLUSH, true);
        cache.finish::<Sound>(
            0,
            &Operation { opcode: Opcode::WriteZeroes, ..WRITE },
            Status::Success,
        );
        assert_eq!(cache.finish::<Sound>(1, &FLUSH, Status::Success), Status::Success);
        assert!(cache.seat.is_dirty());
        assert_eq!(flush(&mut cache), Status::Success);
        assert!(!cache.seat.is_dirty());
    }

    #[test]
    fn nothing_succeeds_in_a_session_that_is_over() {
        let mut cache = cache();
        assert_eq!(cache.finish::<Sound>(0, &WRITE, Status::Success), Status::Success);
        cache.seat.end(None);
        assert_eq!(cache.finish::<Sound>(0, &WRITE, Status::Success), Status::Io);
    }
}
