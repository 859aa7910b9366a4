//! A queue's knowledge of the target's volatile cache: it decides whether a flush may succeed.
//!
//! A flush promises that the writes completed before it will last. If the target has lost some of
//! them, the next flush must fail, once, as with a disk. PROTOCOL.md, "Lost writes".

use tyche_wire::{Opcode, Status};

use super::shared::{QueueHandle, Written};
use crate::host::operation::Operation;
use crate::rules::{Rule, Rules};

/// The write-cache bookkeeping of one queue: for each flush in progress, the volatile writes that
/// it has to cover. A flush succeeds only if the target has lost none of them.
#[derive(Debug)]
pub(crate) struct Cache {
    handle: QueueHandle,
    /// For each operation and writer: what the operation has to cover, if it is a flush.
    covers: Box<[Written]>,
    /// Whether an answer that reports a loss is on its way to the device.
    is_telling: bool,
}

impl Cache {
    /// `operations`: operations in progress at most.
    pub(crate) fn new(handle: QueueHandle, operations: u32) -> Self {
        let len = operations as usize * handle.shared().writers();
        Self { handle, covers: vec![Written::NOTHING; len].into(), is_telling: false }
    }

    fn covers(&mut self, op: u32) -> (&QueueHandle, &mut [Written]) {
        let writers = self.handle.shared().writers();
        (&self.handle, &mut self.covers[op as usize * writers..][..writers])
    }

    /// An operation begins. `all`: a flush covers all queues, not only this one.
    pub(crate) fn begin(&mut self, op: u32, operation: &Operation, all: bool) {
        if operation.opcode == Opcode::Flush {
            let (handle, covers) = self.covers(op);
            handle.cover(covers, all);
        }
    }

    /// The target has lost its cache: see [`QueueHandle::lose_cache`].
    pub(crate) fn lose(&self, is_told: bool) -> bool {
        self.handle.lose_cache(is_told)
    }

    /// All answers so far are with the device; whether one of them has reported a loss.
    #[inline]
    pub(crate) fn answered(&mut self) -> bool {
        let has_told = std::mem::take(&mut self.is_telling);
        if has_told {
            self.handle.told();
        }
        has_told
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
        if self.handle.is_over() {
            // Other operations were reported as failed: a success now could be contradicted by one
            // of them.
            return Status::Io;
        }
        if operation.is_volatile() {
            self.handle.wrote();
        }
        Status::Success
    }

    /// A flush that fails tells the host that what it had to cover may be lost: that is not told
    /// again. If it had nothing to cover, the target has lost what others have written.
    fn finish_flush<R: Rules>(&mut self, op: u32, status: Status) -> Status {
        if self.handle.is_over() || (status != Status::Success && !R::keeps(Rule::TellOnce)) {
            return if status == Status::Success { Status::Io } else { status };
        }
        let (handle, covers) = self.covers(op);
        let covers_nothing = covers.iter().all(|cover| *cover == Written::NOTHING);
        if status != Status::Success {
            handle.keep_former(covers);
        }
        let is_safe = handle.is_safe(covers);
        let is_telling = !covers_nothing && (!is_safe || status != Status::Success);
        if is_telling {
            handle.tell();
        }
        handle.settle(covers);
        self.is_telling |= is_telling;
        match status {
            _ if !is_safe => Status::Io,
            Status::Success => Status::Success,
            _ if covers_nothing => Status::Success,
            failed => failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::CommandFlags;

    use super::super::shared::SessionShared;
    use super::*;
    use crate::rules::AllRules;

    const WRITE: Operation =
        Operation { opcode: Opcode::Write, flags: CommandFlags::NONE, offset: 0, len: 512 };
    const FLUSH: Operation = Operation { opcode: Opcode::Flush, len: 0, ..WRITE };

    fn cache() -> Cache {
        Cache::new(SessionShared::new(1, None).handle(0), 2)
    }

    fn flush(cache: &mut Cache) -> Status {
        cache.begin(1, &FLUSH, true);
        cache.finish::<AllRules>(1, &FLUSH, Status::Success)
    }

    #[test]
    fn a_loss_fails_one_flush() {
        let mut cache = cache();
        cache.finish::<AllRules>(0, &WRITE, Status::Success);
        assert!(cache.lose(true));
        assert!(!cache.lose(true), "nothing was written since");
        assert_eq!(flush(&mut cache), Status::Io);
        assert_eq!(flush(&mut cache), Status::Success);
    }

    #[test]
    fn a_failed_flush_may_be_older_than_what_a_former_session_has_completed() {
        let former = super::super::shared::tests::export(1);
        let mut cache = Cache::new(SessionShared::new(1, Some(former)).handle(0), 2);
        cache.handle.connect(former);
        cache.begin(1, &FLUSH, true);
        assert_eq!(cache.finish::<AllRules>(1, &FLUSH, Status::Io), Status::Io);
        assert!(cache.lose(true), "writes may have ended since that began");
        assert_eq!(flush(&mut cache), Status::Io);
        assert_eq!(flush(&mut cache), Status::Success);
    }

    #[test]
    fn a_loss_of_all_that_a_former_session_has_completed_is_told_once() {
        let former = super::super::shared::tests::export(1);
        let mut cache = Cache::new(SessionShared::new(1, Some(former)).handle(0), 2);
        cache.begin(1, &FLUSH, true);
        cache.handle.connect(super::super::shared::tests::export(2));
        assert!(cache.lose(true));
        assert_eq!(cache.finish::<AllRules>(1, &FLUSH, Status::Io), Status::Io);
        assert!(!cache.lose(true), "that flush has told of all");
        assert_eq!(flush(&mut cache), Status::Success);
    }

    #[test]
    fn a_failed_flush_tells_what_it_covers_and_nobody_else() {
        let mut cache = cache();
        let fail = |cache: &mut Cache| cache.finish::<AllRules>(1, &FLUSH, Status::Io);
        cache.begin(1, &FLUSH, true);
        assert_eq!(fail(&mut cache), Status::Success, "it has written nothing");
        cache.finish::<AllRules>(0, &WRITE, Status::Success);
        cache.begin(1, &FLUSH, true);
        assert_eq!(fail(&mut cache), Status::Io);
        assert!(!cache.lose(true), "it was told");
        assert_eq!(flush(&mut cache), Status::Success);
        cache.begin(1, &FLUSH, true);
        cache.finish::<AllRules>(0, &WRITE, Status::Success);
        assert_eq!(fail(&mut cache), Status::Success);
        assert!(cache.lose(true), "it came later");
        assert_eq!(flush(&mut cache), Status::Io);
    }

    #[test]
    fn a_flush_covers_what_completed_before_it_began() {
        let mut cache = cache();
        cache.finish::<AllRules>(
            0,
            &Operation { flags: CommandFlags::FUA, ..WRITE },
            Status::Success,
        );
        assert!(!cache.handle.is_dirty(), "it is durable already");
        cache.finish::<AllRules>(0, &WRITE, Status::Success);
        cache.begin(1, &FLUSH, true);
        cache.finish::<AllRules>(
            0,
            &Operation { opcode: Opcode::WriteZeroes, ..WRITE },
            Status::Success,
        );
        assert_eq!(cache.finish::<AllRules>(1, &FLUSH, Status::Success), Status::Success);
        assert!(cache.handle.is_dirty());
        assert_eq!(flush(&mut cache), Status::Success);
        assert!(!cache.handle.is_dirty());
    }

    /// The program may die before the answer is with the device.
    #[test]
    fn the_next_session_knows_of_a_loss_until_its_report_is_handed_over() {
        let export = super::super::shared::tests::export;
        let shared = SessionShared::new(2, None);
        let [mut one, other] = [0, 1].map(|queue| Cache::new(shared.handle(queue), 2));
        let generation = || other.handle.resumable().unwrap().generation.as_u128();
        for cache in [&one, &other] {
            cache.handle.connect(export(1));
        }
        one.finish::<AllRules>(0, &WRITE, Status::Success);
        for cache in [&one, &other] {
            cache.lose(true);
            cache.handle.connect(export(2));
        }
        assert_eq!(flush(&mut one), Status::Io);
        assert_eq!(generation(), 1, "nobody has been told yet");
        assert_eq!(flush(&mut one), Status::Success, "the same session tells once");
        assert_eq!(generation(), 1);
        assert!(one.answered() && !one.answered());
        assert_eq!(generation(), 2);
    }

    /// A target that has lost writes by a failed flush has a new generation, of which another queue
    /// may know first.
    #[test]
    fn the_next_session_knows_of_a_failed_flush_until_its_answer_is_handed_over() {
        let export = super::super::shared::tests::export;
        let mut cache = cache();
        cache.handle.connect(export(1));
        cache.finish::<AllRules>(0, &WRITE, Status::Success);
        cache.begin(1, &FLUSH, true);
        assert_eq!(cache.finish::<AllRules>(1, &FLUSH, Status::Io), Status::Io);
        assert!(!cache.lose(true), "it was told");
        cache.handle.connect(export(2));
        let generation = |cache: &Cache| cache.handle.resumable().unwrap().generation.as_u128();
        assert_eq!(generation(&cache), 1);
        assert!(cache.answered());
        assert_eq!(generation(&cache), 2);
    }

    #[test]
    fn nothing_succeeds_in_a_session_that_is_over() {
        let mut cache = cache();
        assert_eq!(cache.finish::<AllRules>(0, &WRITE, Status::Success), Status::Success);
        cache.handle.end(None);
        assert_eq!(cache.finish::<AllRules>(0, &WRITE, Status::Success), Status::Io);
    }
}
