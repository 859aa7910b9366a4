//! The io_uring queue of one thread.
//!
//! Each request has a slot, whose index is its user data in the ring. A slot has at most one entry
//! in the ring, so neither the submission queue nor the completion queue, both at least as deep as
//! there are slots, can overflow. Slots that need a sync share one entry, for the sync or for the
//! end of another queue's. A slot owns the request's buffer until the kernel has answered.
//!
//! The ring runs completions cooperatively (`COOP_TASKRUN`): the kernel does not interrupt a busy
//! thread, but runs them in its next system call; a flag in shared memory tells a thread that makes
//! none. `DEFER_TASKRUN` would go further, but ties the ring to one thread, so that no other could
//! wait for the kernel when the queue is dropped. Besides, deferred completions do not wake a
//! `poll` on the ring's descriptor.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::{io, mem};

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use tyche_block::{Arena, Completion, Errno, Extent, Geometry, Operation, Request};

use super::buffers::Buffers;
use super::job::{Job, Next, Step};
use super::opened::{self, Opened};
use super::status::{Answer, Answers, Question};
use super::syncs::{Turn, Waker};
use crate::Queue;

/// The most entries that the kernel allows in a submission queue.
const DEPTH_MAX: usize = 32768;
/// The file's index in the ring's file table.
const FILE: types::Fixed = types::Fixed(0);
/// The index of the file description for syncs.
const SYNC_FILE: types::Fixed = types::Fixed(1);
/// The user data of the sync that this queue runs; slots have lower numbers.
const SYNC: u64 = u64::MAX;
/// The user data of the wait for another queue's sync, or for a status.
const WAKE: u64 = u64::MAX - 1;
/// `BLOCK_URING_CMD_DISCARD`, `_IO(0x12, 0)`: discard on a block device, since Linux 6.12.
const DISCARD_COMMAND: u32 = 0x1200;

/// See the [module](self). The fields are dropped in this order: the ring before the files and the
/// memory that it refers to.
pub(super) struct RingQueue {
    ring: IoUring,
    slots: Box<[Option<InFlight>]>,
    free: Vec<u32>,
    /// Entries put into the ring and not yet answered.
    unanswered: usize,
    waits: Waits,
    /// Slots whose status the file's thread finds out, and its answers.
    asked: usize,
    answers: Answers,
    buffers: Buffers,
    /// Whether the file was measured since the last kick.
    is_measured: bool,
    opened: Arc<Opened>,
}

/// The slots that wait for a sync, of this queue or another.
struct Waits {
    slots: Vec<u32>,
    /// An empty list, whose memory the next `slots` reuses.
    spare: Vec<u32>,
    /// Whether this queue runs a sync.
    runs: bool,
    /// Whether the ring waits for `waker`.
    is_armed: bool,
    waker: Waker,
}

/// An answer of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelAnswer {
    Slot(u32, i32),
    Sync(i32),
    /// Another queue's sync has ended, or a status is there.
    Woken,
}

/// A request that was taken and not yet reaped.
struct InFlight {
    token: u64,
    job: Job,
    buffer: Option<Extent>,
    /// The registered memory that the buffer is part of.
    registered: Option<u16>,
    /// The failed syncs when it was submitted.
    failures: u64,
    /// The number of the sync that it waits for.
    sync: u64,
}

impl RingQueue {
    pub(super) fn new(opened: &Arc<Opened>, depth: usize) -> io::Result<Self> {
        if depth == 0 || depth > DEPTH_MAX {
            let why = format!("queue depth {depth}: use 1 to {DEPTH_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let depth = u32::try_from(depth).expect("checked above");
        let ring = create_ring(depth).map_err(explain_setup)?;
        let files = [opened.file.as_raw_fd(), opened.syncs.file().as_raw_fd()];
        ring.submitter().register_files(&files)?;
        let buffers = Buffers::new(&ring.submitter());
        let slots = (0..depth).map(|_| None).collect();
        let free = (0..depth).rev().collect();
        let (spare, waker) = (Vec::new(), Waker::new()?);
        let answers = Answers::new(waker.clone());
        let waits = Waits { slots: Vec::new(), spare, runs: false, is_armed: false, waker };
        Ok(Self {
            ring,
            slots,
            free,
            unanswered: 0,
            waits,
            asked: 0,
            answers,
            buffers,
            is_measured: false,
            opened: Arc::clone(opened),
        })
    }

    /// Submits the current step of a slot's job.
    fn push(&mut self, slot: u32) {
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        if in_flight.job.step == Step::Sync {
            let (number, turn) = self.opened.syncs.join(&self.waits.waker);
            in_flight.sync = number;
            self.waits.slots.push(slot);
            self.take_turn(turn);
            return;
        }
        if in_flight.job.step == Step::Status && self.ask(slot) {
            return;
        }
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        let entry = in_flight.entry(&self.opened).user_data(u64::from(slot));
        self.enqueue(&entry);
    }

    /// Runs a sync, or waits for that of another queue. A queue that runs one needs no waker.
    fn take_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Run => {
                self.waits.runs = true;
                let sync = opcode::Fsync::new(SYNC_FILE).flags(types::FsyncFlags::DATASYNC);
                self.enqueue(&sync.build().user_data(SYNC));
            }
            Turn::Wait if !self.waits.runs => self.arm(),
            Turn::Wait | Turn::Done => {}
        }
    }

    /// Has the ring wait for the waker.
    fn arm(&mut self) {
        if mem::replace(&mut self.waits.is_armed, true) {
            return;
        }
        let fd = types::Fd(self.waits.waker.fd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32);
        self.enqueue(&poll.build().user_data(WAKE));
    }

    /// Has the thread of the file find out the status that a slot wants. False if that has ended:
    /// without holes or a thread all is data.
    fn ask(&mut self, slot: u32) -> bool {
        let opened = &self.opened;
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        let Job { offset, len, .. } = in_flight.job;
        let Geometry { size, block_size, .. } = opened.geometry();
        let end = size.min(opened.end());
        let end = end - end % u64::from(block_size);
        if offset >= end {
            // It was cut off.
            in_flight.job.step = Step::Refuse(Errno::IO);
            return false;
        }
        let mut question = Question {
            slot,
            offset,
            end,
            block_size,
            buffer: in_flight.buffer.take().expect("an answer was checked to have a buffer"),
            len: len as usize,
            answers: self.answers.clone(),
        };
        if opened.can.holes {
            let open = || opened::reopen(&opened.file).ok();
            match opened.status.ask(question, open) {
                Ok(()) => {
                    self.asked += 1;
                    self.arm();
                    return true;
                }
                Err(unasked) => question = unasked,
            }
        }
        question.tell_data();
        in_flight.buffer = Some(question.buffer);
        false
    }

    /// Ends the slots that the file's thread has answered, and goes on waiting for the others.
    fn hear(&mut self, out: &mut Vec<Completion>) {
        for Answer { slot, buffer, result } in self.answers.take() {
            self.asked -= 1;
            let in_flight = self.slots[slot as usize].take().expect("a slot in use");
            self.free.push(slot);
            out.push(Completion { token: in_flight.token, result, buffer: Some(buffer) });
        }
        if self.asked > 0 {
            self.arm();
        }
    }

    /// Puts an entry into the ring; the kernel does not see it yet.
    fn enqueue(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to (a slot's buffer, or the zeroes that `opened` keeps)
        // stays in place until the kernel has answered: `reap` frees a slot only then, `drop`
        // waits for it.
        unsafe { self.ring.submission().push(entry) }
            .expect("there are at least as many entries as slots, and one a slot");
        self.unanswered += 1;
    }

    /// Takes the next answer out of the ring.
    fn pop(&mut self) -> Option<KernelAnswer> {
        let entry = self.ring.completion().next()?;
        self.unanswered -= 1;
        if entry.user_data() == SYNC {
            return Some(KernelAnswer::Sync(entry.result()));
        }
        if entry.user_data() == WAKE {
            return Some(KernelAnswer::Woken);
        }
        let slot = u32::try_from(entry.user_data()).expect("user data is a slot's index");
        Some(KernelAnswer::Slot(slot, entry.result()))
    }

    /// Handles an answer of the kernel.
    fn handle(&mut self, answer: KernelAnswer, out: &mut Vec<Completion>) {
        match answer {
            KernelAnswer::Slot(slot, answer) => out.extend(self.advance(slot, answer)),
            KernelAnswer::Sync(answer) => {
                self.waits.runs = false;
                if self.opened.syncs.end(answer) {
                    self.take_turn(Turn::Run);
                } else {
                    self.settle(out);
                }
            }
            KernelAnswer::Woken => {
                self.waits.is_armed = false;
                self.waits.waker.clear();
                self.settle(out);
                self.hear(out);
            }
        }
    }

    /// Advances the slots whose sync has ended, and gets one for the others.
    fn settle(&mut self, out: &mut Vec<Completion>) {
        loop {
            let spare = mem::take(&mut self.waits.spare);
            let mut waited = mem::replace(&mut self.waits.slots, spare);
            let mut wanted = 0;
            for slot in waited.drain(..) {
                let in_flight = self.slots[slot as usize].as_ref().expect("a slot in use");
                let InFlight { sync, failures, .. } = *in_flight;
                if let Some(answer) = self.opened.syncs.answer(sync, failures) {
                    out.extend(self.advance(slot, answer));
                } else {
                    wanted = wanted.max(sync);
                    self.waits.slots.push(slot);
                }
            }
            self.waits.spare = waited;
            if wanted == 0 || self.waits.runs {
                return;
            }
            let turn = self.opened.syncs.go_on(wanted, &self.waits.waker);
            self.take_turn(turn);
            if turn != Turn::Done {
                return;
            }
        }
    }

    /// Advances a slot's job by one step.
    fn advance(&mut self, slot: u32, answer: i32) -> Option<Completion> {
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        if in_flight.job.step == Step::Transfer && answer == 0 {
            // The file has become shorter.
            self.opened.measure();
        }
        let result = match in_flight.job.advance(answer, &self.opened.can) {
            Next::Again => {
                self.push(slot);
                return None;
            }
            Next::Done(result) => result,
        };
        let InFlight { token, buffer, .. } = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(Completion { token, result, buffer })
    }

    /// Checks that the disk, and what is left of the file, have the range of a request. A write
    /// beyond the end of a file that has shrunk would lengthen it again, and what was cut off would
    /// read as zeroes, and look like a hole. So the file is measured before the modifications and
    /// questions of each batch.
    fn check(&mut self, request: &Request) -> Result<(), Errno> {
        request.check(&self.opened.geometry())?;
        let matters = request.operation.modifies() || request.operation == Operation::BlockStatus;
        if matters && !self.is_measured {
            self.is_measured = true;
            self.opened.measure();
        }
        let end = request.offset + u64::from(request.len);
        if end > self.opened.end() { Err(Errno::IO) } else { Ok(()) }
    }

    /// Runs the kernel's pending completions, and waits for `want` of them.
    fn enter(&self, want: u32) -> io::Result<()> {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: nothing is submitted and no argument is passed.
        let entered =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, want, flags, None) };
        entered.map(drop)
    }

    /// Entries submitted to the kernel whose answers have not been taken out of the ring.
    fn in_kernel(&mut self) -> usize {
        self.unanswered - self.ring.submission().len()
    }
}

/// Creates a ring with the newest features that the kernel has.
fn create_ring(depth: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
    match builder.build(depth) {
        // Before Linux 5.19.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().dontfork().build(depth)
        }
        outcome => outcome,
    }
}

fn explain_setup(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => "allow it (sysctl kernel.io_uring_disabled=0, or a seccomp profile)",
        Some(libc::ENOSYS) => "the kernel has no io_uring; use Linux 5.13 or later",
        Some(libc::ENOMEM) => "raise the limit on locked memory (ulimit -l)",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit on open files (ulimit -n)",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("io_uring_setup: {error}; {remedy}"))
}

impl InFlight {
    /// The ring entry for the current step.
    fn entry(&mut self, opened: &Opened) -> squeue::Entry {
        let job = &self.job;
        match job.step {
            Step::Transfer => self.transfer(opened),
            Step::ZeroWrite => {
                let zeroes = opened.zeroes().as_ptr();
                opcode::Write::new(FILE, zeroes, job.remaining()).offset(job.position()).build()
            }
            Step::Punch => self.allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            Step::ZeroRange => {
                self.allocate(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
            }
            Step::DiscardDevice => {
                let mut command = [0; 16];
                command[..8].copy_from_slice(&u64::from(job.len).to_ne_bytes());
                opcode::UringCmd16::new(FILE, DISCARD_COMMAND)
                    .addr(Some(job.offset))
                    .cmd(command)
                    .build()
            }
            // It has ended, or a status was told at once.
            Step::Refuse(_) | Step::Status => opcode::Nop::new().build(),
            Step::Sync => unreachable!("syncs are not a slot's own"),
        }
    }

    fn allocate(&self, mode: libc::c_int) -> squeue::Entry {
        let Job { offset, len, .. } = self.job;
        opcode::Fallocate::new(FILE, u64::from(len)).offset(offset).mode(mode).build()
    }

    /// The rest of a read or a write.
    fn transfer(&mut self, opened: &Opened) -> squeue::Entry {
        let job = &self.job;
        let (position, len) = (job.position(), job.remaining());
        let flags = if job.durable_transfer(&opened.can) { libc::RWF_DSYNC } else { 0 };
        let buffer = self.buffer.as_mut().expect("a transfer was checked to have a buffer");
        let memory = buffer[job.done as usize..job.len as usize].as_mut_ptr();
        match (job.operation, self.registered) {
            (Operation::Read, None) => {
                opcode::Read::new(FILE, memory, len).offset(position).build()
            }
            (Operation::Read, Some(index)) => {
                opcode::ReadFixed::new(FILE, memory, len, index).offset(position).build()
            }
            (_, None) => {
                opcode::Write::new(FILE, memory, len).offset(position).rw_flags(flags).build()
            }
            (_, Some(index)) => opcode::WriteFixed::new(FILE, memory, len, index)
                .offset(position)
                .rw_flags(flags)
                .build(),
        }
    }
}

impl Queue for RingQueue {
    fn register(&mut self, arena: &Arena) {
        self.buffers.register(arena);
    }

    fn unregister(&mut self, arena: &Arena) {
        self.buffers.unregister(&self.ring.submitter(), arena);
    }

    fn cut(&mut self, arena: &Arena, first: usize) -> usize {
        self.buffers.cut(&self.ring.submitter(), arena, first)
    }

    fn submit(&mut self, token: u64, request: Request) {
        let slot = self.free.pop();
        let slot = slot.unwrap_or_else(|| panic!("over {} requests in flight", self.slots.len()));
        let job = match self.check(&request) {
            Ok(()) => Job::new(&request, &self.opened.can),
            Err(errno) => Job::refuse(&request, errno),
        };
        let buffer = request.buffer;
        let submitter = self.ring.submitter();
        let registered = buffer.as_deref().and_then(|it| self.buffers.find(&submitter, it));
        let failures = self.opened.syncs.failures();
        let in_flight = InFlight { token, job, buffer, registered, failures, sync: 0 };
        self.slots[slot as usize] = Some(in_flight);
        self.push(slot);
    }

    fn kick(&mut self) -> io::Result<()> {
        self.is_measured = false;
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(0) => return Err(io::Error::other("io_uring_enter takes no submissions")),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Out of memory: a completion in flight will wake the caller, who kicks again.
                    Some(libc::EAGAIN | libc::EBUSY) if self.in_kernel() > 0 => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        if self.ring.submission().taskrun() {
            // Only interruption can fail it; then the flag stays set for the next call.
            let _ = self.enter(0);
        }
        while let Some(answer) = self.pop() {
            self.handle(answer, out);
        }
        // Submits the next steps of short transfers and fallbacks. If it fails, so will the
        // caller's next kick.
        let _ = self.kick();
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is open for as long as the ring, which `self` owns.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        // The ring may wait for it.
        self.waits.waker.wake();
        // Entries never kicked are dropped with the ring; a write among them must not happen now.
        while self.in_kernel() > 0 {
            if let Some(answer) = self.pop() {
                if let KernelAnswer::Sync(answer) = answer {
                    // Other queues must learn of a loss that it was told of.
                    self.waits.runs = self.opened.syncs.end(answer);
                }
                continue;
            }
            match self.enter(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    // The kernel may use this memory at any time: it is never reused.
                    mem::forget(mem::take(&mut self.slots));
                    mem::forget(Arc::clone(&self.opened));
                    return;
                }
                _ => {}
            }
        }
        if self.waits.runs {
            self.opened.syncs.give_up();
        }
        // The kernel would release the file, and so the lock, some time after the ring is closed;
        // this releases it now. It can only fail if there is nothing to release.
        let _ = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests;
