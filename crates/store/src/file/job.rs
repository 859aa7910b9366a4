//! The steps that one request takes through the kernel.
//!
//! Most requests are one step. A transfer that the kernel cuts short takes several. Zeroing has a
//! chain of methods, from the cheapest to the one that always works, and a sync at the end where
//! the zeroes must be durable. A job does no I/O: it returns the next step and evaluates the
//! kernel's answer, so it is tested without a kernel.
//!
//! ```text
//! read, write      Transfer* ─────────────────────────▶ [Sync] ▶ done
//! flush            Sync ──────────────────────────────────────▶ done
//! discard          [DiscardDevice] ─▶ Punch ──────────────────▶ done
//! block status     Status ────────────────────────────────────▶ done
//! write zeroes     [Punch] ─▶ ZeroRange ─▶ ZeroWrite* ─▶ [Sync] ▶ done
//!                  (*: repeated; from one method to the next where the first is not supported)
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use tyche_block::{Errno, Operation, Request};

/// The most attempts at a step without progress; then its errno is the result of the request.
const ATTEMPTS_MAX: u32 = 100;

/// Bytes of zeroes that one [`Step::ZeroWrite`] writes at most.
pub(super) const ZEROES: u32 = 1024 * 1024;

/// The next operation for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read or write the rest of the buffer.
    Transfer,
    /// Discard on a block device.
    DiscardDevice,
    /// Deallocate the range; it reads as zeroes.
    Punch,
    /// Zero the range, allocated.
    ZeroRange,
    /// Write the next zeroes.
    ZeroWrite,
    /// Make everything durable.
    Sync,
    /// Have the thread of the file find out which ranges are holes.
    Status,
    /// No operation: the request fails, through the ring like all others, so that the ring alone
    /// signals completions.
    Refuse(Errno),
}

/// The abilities of the file: assumed until the kernel refuses, then remembered.
#[derive(Debug)]
pub(super) struct Abilities {
    pub(super) discard_device: AtomicBool,
    pub(super) punch: AtomicBool,
    pub(super) zero_range: AtomicBool,
    /// The file system tells which ranges are holes.
    pub(super) holes: bool,
    /// A completed write may still be volatile.
    pub(super) write_back: bool,
    /// The page cache is bypassed.
    pub(super) direct: bool,
    /// The alignment of offsets, in bytes.
    pub(super) align: u32,
}

/// A request in progress. `done` bytes of it are finished.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) operation: Operation,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) done: u32,
    pub(super) step: Step,
    attempts: u32,
}

/// The outcome of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run `step`, again or for the first time.
    Again,
    /// The request is finished.
    Done(Result<(), Errno>),
}

impl Job {
    pub(super) fn new(request: &Request, can: &Abilities) -> Self {
        let Request { operation, offset, len, .. } = *request;
        let able = |ability: &AtomicBool| ability.load(Ordering::Relaxed);
        let step = match operation {
            Operation::Read | Operation::Write { .. } => Step::Transfer,
            Operation::Flush => Step::Sync,
            Operation::Discard if able(&can.discard_device) => Step::DiscardDevice,
            Operation::Discard if able(&can.punch) => Step::Punch,
            Operation::Discard => Step::Refuse(Errno::OPNOTSUPP),
            Operation::WriteZeroes { may_unmap: true, .. } if able(&can.punch) => Step::Punch,
            Operation::WriteZeroes { .. } if able(&can.zero_range) => Step::ZeroRange,
            Operation::WriteZeroes { .. } => Step::ZeroWrite,
            Operation::BlockStatus => Step::Status,
        };
        Self { operation, offset, len, done: 0, step, attempts: 0 }
    }

    pub(super) fn refuse(request: &Request, errno: Errno) -> Self {
        let Request { operation, offset, len, .. } = *request;
        Self { operation, offset, len, done: 0, step: Step::Refuse(errno), attempts: 0 }
    }

    /// The offset on the disk of the next transfer.
    pub(super) fn position(&self) -> u64 {
        self.offset + u64::from(self.done)
    }

    /// The most bytes of the next transfer.
    pub(super) fn remaining(&self) -> u32 {
        let left = self.len - self.done;
        if self.step == Step::ZeroWrite { left.min(ZEROES) } else { left }
    }

    /// Whether a write must be durable before it completes.
    pub(super) fn durable(&self, can: &Abilities) -> bool {
        match self.operation {
            Operation::Write { fua } | Operation::WriteZeroes { fua, .. } => fua || !can.write_back,
            Operation::Read | Operation::Flush | Operation::Discard | Operation::BlockStatus => {
                false
            }
        }
    }

    /// Whether the transfer itself is durable (`RWF_DSYNC`). Only direct writes are, and where
    /// there is no cache: the kernel might report the loss of another request's data to this
    /// request, and then not to the other.
    pub(super) fn durable_transfer(&self, can: &Abilities) -> bool {
        can.direct && !can.write_back && self.step == Step::Transfer && self.durable(can)
    }

    /// Evaluates the kernel's answer to `step`: a number of bytes, zero, or a negative errno.
    pub(super) fn advance(&mut self, answer: i32, can: &Abilities) -> Next {
        if let Step::Refuse(errno) = self.step {
            return Next::Done(Err(errno));
        }
        match u32::try_from(answer) {
            Ok(count) => self.succeeded(count, can),
            Err(_) => self.failed(Errno(answer.saturating_neg()), can),
        }
    }

    fn succeeded(&mut self, count: u32, can: &Abilities) -> Next {
        match self.step {
            Step::Transfer | Step::ZeroWrite => {
                let before = self.done;
                let end = self.done + count.min(self.remaining());
                // A direct transfer can only continue at an aligned offset.
                self.done = if end == self.len { end } else { end - end % can.align };
                if self.done == before {
                    // The file has become shorter than the export.
                    return Next::Done(Err(Errno::IO));
                }
                self.attempts = 0;
                if self.done < self.len { Next::Again } else { self.finish(can) }
            }
            Step::Punch | Step::ZeroRange => self.finish(can),
            Step::DiscardDevice | Step::Sync | Step::Status | Step::Refuse(_) => Next::Done(Ok(())),
        }
    }

    /// Ends the transfer, with a sync if the bytes must be durable and are not yet.
    fn finish(&mut self, can: &Abilities) -> Next {
        if self.durable(can) && !self.durable_transfer(can) {
            self.step = Step::Sync;
            self.attempts = 0;
            return Next::Again;
        }
        Next::Done(Ok(()))
    }

    fn failed(&mut self, errno: Errno, can: &Abilities) -> Next {
        if matches!(errno.0, libc::EINTR | libc::EAGAIN | libc::ECANCELED) {
            self.attempts += 1;
            return if self.attempts < ATTEMPTS_MAX { Next::Again } else { Next::Done(Err(errno)) };
        }
        if !matches!(errno.0, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL) {
            return Next::Done(Err(errno));
        }
        // `EINVAL` may concern this range only; the other errors concern the whole file.
        let forget = |ability: &AtomicBool| {
            if errno.0 != libc::EINVAL {
                ability.store(false, Ordering::Relaxed);
            }
        };
        let zeroes = matches!(self.operation, Operation::WriteZeroes { .. });
        self.step = match self.step {
            Step::DiscardDevice => {
                forget(&can.discard_device);
                Step::Punch
            }
            Step::Punch if zeroes => {
                forget(&can.punch);
                Step::ZeroRange
            }
            Step::ZeroRange => {
                forget(&can.zero_range);
                Step::ZeroWrite
            }
            Step::Punch => {
                forget(&can.punch);
                return Next::Done(Err(errno));
            }
            Step::Transfer | Step::ZeroWrite | Step::Sync | Step::Status | Step::Refuse(_) => {
                return Next::Done(Err(errno));
            }
        };
        Next::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(write_back: bool, align: u32) -> Abilities {
        Abilities {
            discard_device: true.into(),
            punch: true.into(),
            zero_range: true.into(),
            holes: true,
            write_back,
            direct: align > 1,
            align,
        }
    }

    fn job(operation: Operation, len: u32, can: &Abilities) -> Job {
        Job::new(&Request { operation, offset: 4096, len, buffer: None }, can)
    }

    const ZERO: Operation = Operation::WriteZeroes { fua: false, may_unmap: true };

    #[test]
    fn a_short_transfer_goes_on_where_alignment_allows() {
        let can = abilities(true, 512);
        let mut read = job(Operation::Read, 8192, &can);
        assert_eq!(read.advance(1000, &can), Next::Again);
        assert_eq!((read.position(), read.remaining()), (4096 + 512, 8192 - 512));
        assert_eq!(read.advance(8192 - 512, &can), Next::Done(Ok(())));

        let mut buffered = job(Operation::Read, 8192, &abilities(true, 1));
        assert_eq!(buffered.advance(1000, &abilities(true, 1)), Next::Again);
        assert_eq!(buffered.position(), 4096 + 1000);
    }

    #[test]
    fn a_transfer_without_progress_is_an_error_not_a_loop() {
        let can = abilities(true, 512);
        assert_eq!(job(Operation::Read, 512, &can).advance(0, &can), Next::Done(Err(Errno::IO)));
        let mut stuck = job(Operation::Read, 8192, &can);
        assert_eq!(stuck.advance(511, &can), Next::Done(Err(Errno::IO)));
    }

    #[test]
    fn interruptions_are_retried_but_not_for_ever() {
        let can = abilities(true, 1);
        let mut read = job(Operation::Read, 8192, &can);
        for _ in 1..ATTEMPTS_MAX {
            assert_eq!(read.advance(-libc::EAGAIN, &can), Next::Again);
        }
        assert_eq!(read.advance(4096, &can), Next::Again, "progress starts the count afresh");
        for _ in 1..ATTEMPTS_MAX {
            assert_eq!(read.advance(-libc::EINTR, &can), Next::Again);
        }
        assert_eq!(read.advance(-libc::EINTR, &can), Next::Done(Err(Errno(libc::EINTR))));
    }

    #[test]
    fn zeroing_falls_back_step_by_step_and_remembers() {
        let can = abilities(false, 4096);
        let len = ZEROES + 8192;
        let mut zero = job(ZERO, len, &can);
        assert_eq!(zero.step, Step::Punch);
        assert_eq!(zero.advance(-libc::EOPNOTSUPP, &can), Next::Again);
        assert_eq!(zero.step, Step::ZeroRange);
        assert_eq!(zero.advance(-libc::EOPNOTSUPP, &can), Next::Again);
        assert_eq!((zero.step, zero.remaining()), (Step::ZeroWrite, ZEROES));
        assert_eq!(zero.advance(ZEROES.cast_signed(), &can), Next::Again);
        assert_eq!((zero.position(), zero.remaining()), (4096 + u64::from(ZEROES), 8192));
        assert_eq!(zero.advance(8192, &can), Next::Again);
        assert_eq!(zero.step, Step::Sync, "write-through: zeroes are durable");
        assert_eq!(zero.advance(0, &can), Next::Done(Ok(())));
        assert_eq!(job(ZERO, len, &can).step, Step::ZeroWrite);
    }

    #[test]
    fn zeroing_write_back_syncs_only_on_fua() {
        let can = abilities(true, 1);
        assert_eq!(job(ZERO, 4096, &can).advance(0, &can), Next::Done(Ok(())));
        let mut fua = job(Operation::WriteZeroes { fua: true, may_unmap: false }, 4096, &can);
        assert_eq!(fua.step, Step::ZeroRange);
        assert_eq!(fua.advance(0, &can), Next::Again);
        assert_eq!(fua.step, Step::Sync);
        assert_eq!(fua.advance(-libc::EIO, &can), Next::Done(Err(Errno::IO)));
    }

    #[test]
    fn a_durable_write_ends_with_a_sync_where_there_is_a_cache() {
        let write = |fua| Operation::Write { fua };
        let cached = abilities(true, 1);
        let mut fua = job(write(true), 4096, &cached);
        assert_eq!(fua.advance(4096, &cached), Next::Again);
        assert_eq!(fua.step, Step::Sync);
        assert_eq!(job(write(false), 4096, &cached).advance(4096, &cached), Next::Done(Ok(())));
        let direct = abilities(true, 512);
        let mut fua = job(write(true), 4096, &direct);
        assert!(!fua.durable_transfer(&direct), "it could take a report from a flush");
        assert_eq!(fua.advance(4096, &direct), Next::Again);
        assert_eq!(fua.step, Step::Sync);
        let through = abilities(false, 512);
        assert!(job(write(false), 4096, &through).durable_transfer(&through));
    }

    #[test]
    fn an_ability_survives_the_refusal_of_one_range() {
        let can = abilities(true, 1);
        let mut zero = job(ZERO, 4096, &can);
        assert_eq!(zero.advance(-libc::EINVAL, &can), Next::Again);
        assert_eq!(job(ZERO, 4096, &can).step, Step::Punch);
        assert_eq!(zero.advance(-libc::ENOSPC, &can), Next::Done(Err(Errno::NOSPC)));
    }

    #[test]
    fn discard_fails_where_no_method_is_supported() {
        let can = abilities(false, 1);
        let mut discard = job(Operation::Discard, 4096, &can);
        assert_eq!(discard.step, Step::DiscardDevice);
        assert_eq!(discard.advance(-libc::EOPNOTSUPP, &can), Next::Again);
        assert_eq!(discard.step, Step::Punch);
        let unsupported = Next::Done(Err(Errno::OPNOTSUPP));
        assert_eq!(discard.advance(-libc::EOPNOTSUPP, &can), unsupported);
        let mut next = job(Operation::Discard, 4096, &can);
        assert_eq!(next.step, Step::Refuse(Errno::OPNOTSUPP));
        assert_eq!(next.advance(0, &can), unsupported);
        assert!(!next.durable(&can), "a discard promises nothing");
    }
}
