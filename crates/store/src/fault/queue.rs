//! The queue of a [`FaultStore`](super::FaultStore).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tyche_block::{Arena, Completion, Errno, Operation, Request};

use super::Shared;
use super::alarm::Alarm;
use super::rules::Verdict;
use crate::Queue;

/// See the [module](self).
pub(super) struct FaultQueue {
    shared: Arc<Shared>,
    inner: Box<dyn Queue>,
    alarm: Alarm,
    /// Requests in the wrapped store; the index is their token there.
    slots: Box<[Option<Forwarded>]>,
    free: Vec<usize>,
    /// Completions held back, by due time, then by the order in which they finished.
    finished: BTreeMap<(Instant, u64), Completion>,
    /// Requests finished so far.
    sequence: u64,
    /// Completions of the wrapped store on their way to `finished`.
    reaped: Vec<Completion>,
}

/// A request in the wrapped store.
struct Forwarded {
    token: u64,
    operation: Operation,
    offset: u64,
    len: u32,
    due: Instant,
    /// The number of crashes before its submission.
    crashes: u64,
    /// The number of the flush, if it is one.
    epoch: u64,
}

impl FaultQueue {
    pub(super) fn new(
        shared: &Arc<Shared>,
        inner: Box<dyn Queue>,
        depth: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::clone(shared),
            alarm: Alarm::new(inner.wait_fd())?,
            inner,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            finished: BTreeMap::new(),
            sequence: 0,
            reaped: Vec::with_capacity(depth),
        })
    }

    fn finish(&mut self, due: Instant, completion: Completion) {
        self.finished.insert((due, self.sequence), completion);
        self.sequence += 1;
    }

    /// Prepares the undo log: saves the blocks that a modification overwrites, or begins a flush
    /// and returns its number.
    fn prepare_undo(&self, request: &Request) -> Result<u64, Errno> {
        let Some(mut undo) = self.shared.undo() else { return Ok(0) };
        if request.operation == Operation::Flush {
            return Ok(undo.flush_begins());
        }
        if request.operation.modifies() && request.check(&self.shared.inner.geometry()).is_ok() {
            let remembered = undo.remember(request.offset, request.len);
            remembered.map_err(|error| Errno::from_io(&error))?;
        }
        Ok(0)
    }

    /// Collects the completions of the wrapped store.
    fn collect(&mut self) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.inner.reap(&mut reaped);
        for completion in reaped.drain(..) {
            let slot = usize::try_from(completion.token).expect("the token is a slot's index");
            let request = self.slots[slot].take().expect("a slot in use");
            self.free.push(slot);
            let result = self.update_undo(&request, completion.result);
            let Forwarded { token, due, .. } = request;
            self.finish(due, Completion { token, result, ..completion });
        }
        self.reaped = reaped;
    }

    /// Updates the undo log after a request. Returns its result, or `EIO` if there was a crash
    /// meanwhile.
    fn update_undo(&self, request: &Forwarded, result: Result<(), Errno>) -> Result<(), Errno> {
        let Some(mut undo) = self.shared.undo() else { return result };
        if request.crashes != self.shared.crashes() {
            return Err(Errno::IO);
        }
        result?;
        let fua = matches!(
            request.operation,
            Operation::Write { fua: true } | Operation::WriteZeroes { fua: true, .. }
        );
        if request.operation == Operation::Flush {
            undo.flushed(request.epoch);
        } else if request.operation.modifies() {
            undo.written(request.offset, request.len, fua);
        }
        Ok(())
    }

    fn set_alarm(&mut self) -> io::Result<()> {
        let first = self.finished.first_key_value();
        self.alarm.set(first.map(|(&(due, _), _)| due))
    }
}

impl Queue for FaultQueue {
    fn register(&mut self, arena: &Arena) {
        self.inner.register(arena);
    }

    fn unregister(&mut self, arena: &Arena) {
        self.inner.unregister(arena);
    }

    fn cut(&mut self, arena: &Arena, first: usize) -> usize {
        self.inner.cut(arena, first)
    }

    fn submit(&mut self, token: u64, request: Request) {
        let depth = self.slots.len();
        assert!(self.in_flight() < depth, "more than {depth} requests in flight");
        let Verdict { end, delay } = self.shared.rules().judge(&request);
        let due = Instant::now() + delay.min(Duration::from_secs(u64::from(u32::MAX)));
        let prepared = match end {
            Some(end) => {
                if end.is_err() {
                    self.shared.note_failure(request.operation);
                }
                Err(end)
            }
            None => self.prepare_undo(&request).map_err(Err),
        };
        let epoch = match prepared {
            Ok(epoch) => epoch,
            Err(result) => {
                self.finish(due, Completion { token, result, buffer: request.buffer });
                return;
            }
        };
        let Request { operation, offset, len, .. } = request;
        let crashes = self.shared.crashes();
        let slot = self.free.pop().expect("as many slots as requests");
        self.slots[slot] = Some(Forwarded { token, operation, offset, len, due, crashes, epoch });
        self.inner.submit(slot as u64, request);
    }

    fn kick(&mut self) -> io::Result<()> {
        self.inner.kick()?;
        if self.inner.wait_fd().is_none() {
            self.collect();
        }
        self.set_alarm()
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        self.collect();
        let now = Instant::now();
        while let Some(first) = self.finished.first_entry() {
            if first.key().0 > now {
                break;
            }
            out.push(first.remove());
        }
        // Cannot fail with a valid timer; the next kick would report it.
        let _ = self.set_alarm();
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.finished.len()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // The alarm watches this descriptor already. The call tells the wrapped queue of the sleep.
        self.inner.wait_fd();
        Some(self.alarm.fd())
    }
}
