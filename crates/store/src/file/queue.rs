//! The io_uring queue of one thread.
//!
//! Each request has a slot, whose index is its user data in the ring. A slot has at most one entry
//! in the ring, so neither the submission queue nor the completion queue, both at least as deep as
//! there are slots, can overflow. Slots that need a sync share one entry. A slot owns the request's
//! buffer until the kernel has answered.
//!
//! The ring runs completions cooperatively (`COOP_TASKRUN`): the kernel does not interrupt a busy
//! thread, but runs them in its next system call; a flag in shared memory tells a thread that makes
//! none. `DEFER_TASKRUN` would go further, but ties the ring to one thread, so that no other could
//! wait for the kernel when the queue is dropped. Besides, deferred completions do not wake a
//! `poll` on the ring's descriptor.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{io, mem};

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use tyche_block::{Arena, Completion, Errno, Extent, Operation, Request};

use super::buffers::Buffers;
use super::job::{Job, Next, Step};
use super::opened::Opened;
use crate::Queue;

/// The most entries that the kernel allows in a submission queue.
const DEPTH_MAX: usize = 32768;
/// The file's index in the ring's file table.
const FILE: types::Fixed = types::Fixed(0);
/// The index of the file description for syncs.
const SYNC_FILE: types::Fixed = types::Fixed(1);
/// The user data of the sync in flight; slots have lower numbers.
const SYNC: u64 = u64::MAX;
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
    syncs: Syncs,
    buffers: Buffers,
    /// Registered with the ring.
    _sync_file: OwnedFd,
    opened: Arc<Opened>,
}

/// The one sync that may be in flight, and the slots that wait for it or for the next.
#[derive(Default)]
struct Syncs {
    /// Slots that the sync answers.
    current: Vec<u32>,
    /// Slots that came during the sync in flight, which may not cover writes completed before them.
    next: Vec<u32>,
    /// An empty list, whose memory the next `current` reuses.
    spare: Vec<u32>,
    /// The store's count of losses when the sync began.
    losses: u64,
}

/// An answer of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Slot(u32, i32),
    Sync(i32),
}

/// A request that was taken and not yet reaped.
struct InFlight {
    token: u64,
    job: Job,
    buffer: Option<Extent>,
    /// The registered memory that the buffer is part of.
    registered: Option<u16>,
}

impl RingQueue {
    pub(super) fn new(opened: &Arc<Opened>, depth: usize) -> io::Result<Self> {
        if depth == 0 || depth > DEPTH_MAX {
            let why = format!("queue depth {depth}: use 1 to {DEPTH_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let depth = u32::try_from(depth).expect("checked above");
        let ring = create_ring(depth).map_err(explain_setup)?;
        let sync_file = opened.reopen()?;
        ring.submitter().register_files(&[opened.file.as_raw_fd(), sync_file.as_raw_fd()])?;
        let buffers = Buffers::new(&ring.submitter());
        let slots = (0..depth).map(|_| None).collect();
        let free = (0..depth).rev().collect();
        Ok(Self {
            ring,
            slots,
            free,
            unanswered: 0,
            syncs: Syncs::default(),
            buffers,
            _sync_file: sync_file,
            opened: Arc::clone(opened),
        })
    }

    /// Submits the current step of a slot's job.
    fn push(&mut self, slot: u32) {
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        if in_flight.job.step == Step::Sync {
            self.syncs.next.push(slot);
            self.begin_sync();
            return;
        }
        let entry = in_flight.entry(&self.opened).user_data(u64::from(slot));
        self.enqueue(&entry);
    }

    /// Begins a sync for all slots that wait, unless one is in flight: they wait for the next then.
    fn begin_sync(&mut self) {
        if self.syncs.current.is_empty() && !self.syncs.next.is_empty() {
            mem::swap(&mut self.syncs.current, &mut self.syncs.next);
            self.syncs.losses = self.opened.losses.load(Ordering::Acquire);
            let sync = opcode::Fsync::new(SYNC_FILE).flags(types::FsyncFlags::DATASYNC);
            self.enqueue(&sync.build().user_data(SYNC));
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
    fn pop(&mut self) -> Option<Answer> {
        let entry = self.ring.completion().next()?;
        self.unanswered -= 1;
        if entry.user_data() == SYNC {
            return Some(Answer::Sync(entry.result()));
        }
        let slot = u32::try_from(entry.user_data()).expect("user data is a slot's index");
        Some(Answer::Slot(slot, entry.result()))
    }

    /// Handles an answer of the kernel.
    fn handle(&mut self, answer: Answer, out: &mut Vec<Completion>) {
        match answer {
            Answer::Slot(slot, answer) => out.extend(self.advance(slot, answer)),
            Answer::Sync(answer) => {
                // The disk may have reported a loss, which concerns these requests as well, to
                // another request meanwhile.
                let lost = self.syncs.losses != self.opened.losses.load(Ordering::Acquire);
                let spare = mem::take(&mut self.syncs.spare);
                let mut waited = mem::replace(&mut self.syncs.current, spare);
                for slot in waited.drain(..) {
                    if lost && let Some(in_flight) = &mut self.slots[slot as usize] {
                        in_flight.job.step = Step::Refuse(Errno::IO);
                    }
                    out.extend(self.advance(slot, answer));
                }
                self.syncs.spare = waited;
                self.begin_sync();
            }
        }
    }

    /// Advances a slot's job by one step.
    fn advance(&mut self, slot: u32, answer: i32) -> Option<Completion> {
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        let failure_is_loss = in_flight.job.failure_is_loss(&self.opened.can);
        let result = match in_flight.job.advance(answer, &self.opened.can) {
            Next::Again => {
                self.push(slot);
                return None;
            }
            Next::Done(result) => result,
        };
        if failure_is_loss && result.is_err() {
            self.opened.losses.fetch_add(1, Ordering::AcqRel);
        }
        let InFlight { token, buffer, .. } = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(Completion { token, result, buffer })
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
            Step::Refuse(_) => opcode::Nop::new().build(),
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
        self.buffers.register(&self.ring.submitter(), arena);
    }

    fn unregister(&mut self, arena: &Arena) {
        self.buffers.unregister(&self.ring.submitter(), arena);
    }

    fn submit(&mut self, token: u64, request: Request) {
        let slot = self.free.pop();
        let slot = slot.unwrap_or_else(|| panic!("over {} requests in flight", self.slots.len()));
        let job = match request.check(&self.opened.geometry()) {
            Ok(()) => Job::new(&request, &self.opened.can),
            Err(errno) => Job::refuse(&request, errno),
        };
        let buffer = request.buffer;
        let registered = buffer.as_deref().and_then(|bytes| self.buffers.find(bytes));
        self.slots[slot as usize] = Some(InFlight { token, job, buffer, registered });
        self.push(slot);
    }

    fn kick(&mut self) -> io::Result<()> {
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
        // Entries never kicked are dropped with the ring; a write among them must not happen now.
        while self.in_kernel() > 0 {
            if self.pop().is_some() {
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
        // The kernel would release the file, and so the lock, some time after the ring is closed;
        // this releases it now. It can only fail if there is nothing to release.
        let _ = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests {
    use tyche_block::PAGE;
    use tyche_testkit::wait::{PATIENCE, wait_readable};

    use super::*;
    use crate::file::FileOptions;

    fn opened(size: u64) -> (tempfile::NamedTempFile, Arc<Opened>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        let opened = Opened::new(file.path(), &FileOptions::default()).unwrap();
        (file, Arc::new(opened))
    }

    fn flush() -> Request {
        Request { operation: Operation::Flush, offset: 0, len: 0, buffer: None }
    }

    /// Takes the kernel's next answer before the queue sees it.
    fn intercept(queue: &mut RingQueue) -> Answer {
        queue.kick().unwrap();
        assert!(wait_readable(queue.wait_fd().unwrap(), PATIENCE));
        queue.enter(0).unwrap();
        queue.pop().expect("readable means that a completion waits")
    }

    /// The results after an answer, by token.
    fn results(queue: &mut RingQueue, answer: Answer) -> Vec<(u64, Result<(), Errno>)> {
        let mut done = Vec::new();
        queue.handle(answer, &mut done);
        done.into_iter().map(|completion| (completion.token, completion.result)).collect()
    }

    #[test]
    fn a_failed_sync_is_counted_and_fails_all_its_requests() {
        let (_file, opened) = opened(4096);
        let mut queue = RingQueue::new(&opened, 4).unwrap();
        queue.submit(1, flush());
        queue.submit(2, flush());
        assert_eq!(intercept(&mut queue), Answer::Sync(0));
        let failed = Answer::Sync(-libc::EIO);
        assert_eq!(results(&mut queue, failed), [(1, Err(Errno::IO))]);
        assert_eq!(opened.losses.load(Ordering::Acquire), 1);
        // The second flush came while the first was in flight, so a sync of its own answers it.
        let answer = intercept(&mut queue);
        assert_eq!(results(&mut queue, answer), [(2, Ok(()))]);
    }

    #[test]
    fn flushes_that_wait_share_the_next_sync() {
        let (_file, opened) = opened(4096);
        let mut queue = RingQueue::new(&opened, 4).unwrap();
        (1..=4).for_each(|token| queue.submit(token, flush()));
        let first = intercept(&mut queue);
        assert_eq!(results(&mut queue, first), [(1, Ok(()))]);
        let second = intercept(&mut queue);
        assert_eq!(results(&mut queue, second), [(2, Ok(())), (3, Ok(())), (4, Ok(()))]);
        assert_eq!((queue.in_flight(), queue.unanswered), (0, 0));
    }

    /// The disk reports a loss once. Another sync in flight may succeed all the same, and must not
    /// count as proof.
    #[test]
    fn a_sync_that_succeeds_beside_a_failed_one_proves_nothing() {
        let (_file, opened) = opened(4096);
        let mut one = RingQueue::new(&opened, 1).unwrap();
        let mut other = RingQueue::new(&opened, 1).unwrap();
        one.submit(1, flush());
        other.submit(2, flush());
        let (_, answer) = (intercept(&mut one), intercept(&mut other));
        assert_eq!(results(&mut one, Answer::Sync(-libc::EIO)), [(1, Err(Errno::IO))]);
        assert_eq!(answer, Answer::Sync(0));
        assert_eq!(results(&mut other, answer), [(2, Err(Errno::IO))]);
        assert_eq!(opened.losses.load(Ordering::Acquire), 1, "one loss, told twice");
    }

    #[test]
    fn a_failed_write_is_a_loss_where_there_is_a_cache() {
        for (write_back, losses) in [(true, 1), (false, 0)] {
            let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
            file.as_file().set_len(4096).unwrap();
            let options = FileOptions { write_back, ..FileOptions::default() };
            let opened = Arc::new(Opened::new(file.path(), &options).unwrap());
            if !opened.direct {
                println!("SKIPPED: no direct I/O in /var/tmp");
                return;
            }
            let mut queue = RingQueue::new(&opened, 1).unwrap();
            let buffer = Arena::new(1).alloc(PAGE);
            let operation = Operation::Write { fua: true };
            queue.submit(1, Request { operation, offset: 0, len: 4096, buffer });
            let Answer::Slot(slot, 4096) = intercept(&mut queue) else { panic!("it succeeds") };
            let failed = queue.advance(slot, -libc::EIO).unwrap();
            assert_eq!(failed.result, Err(Errno::IO));
            assert_eq!(opened.losses.load(Ordering::Acquire), losses);
        }
    }

    #[test]
    fn a_short_answer_is_continued_by_reap_itself() {
        let (file, opened) = opened(4 * PAGE as u64);
        std::fs::write(file.path(), [0x5a; 4 * PAGE]).unwrap();
        let mut queue = RingQueue::new(&opened, 1).unwrap();
        let buffer = Arena::new(4).alloc(4 * PAGE);
        let len = 4 * PAGE as u32;
        queue.submit(1, Request { operation: Operation::Read, offset: 0, len, buffer });
        let Answer::Slot(slot, answer) = intercept(&mut queue) else { panic!("no sync") };
        assert_eq!(answer, 4 * PAGE as i32);
        assert!(queue.advance(slot, PAGE as i32).is_none(), "three pages are left");
        assert_eq!(intercept(&mut queue), Answer::Slot(slot, 3 * PAGE as i32));
        let done = queue.advance(slot, 3 * PAGE as i32).unwrap();
        assert_eq!(done.buffer.as_deref(), Some(&[0x5a; 4 * PAGE][..]));
    }

    #[test]
    fn registered_memory_is_used_as_such_while_it_is_registered() {
        let (_file, opened) = opened(4096);
        let mut queue = RingQueue::new(&opened, 4).unwrap();
        let arena = Arena::new(2);
        queue.register(&arena);
        let extent = arena.alloc(PAGE).unwrap();
        let Some(index) = queue.buffers.find(&extent) else {
            println!("SKIPPED: the kernel registers no memory here (ulimit -l?)");
            return;
        };
        assert_eq!(queue.buffers.find(Arena::new(1).alloc(1).as_deref().unwrap()), None);
        let operation = Operation::Write { fua: false };
        queue.submit(1, Request { operation, offset: 0, len: 4096, buffer: Some(extent) });
        assert_eq!(queue.slots.iter().flatten().next().unwrap().registered, Some(index));
        let answer = intercept(&mut queue);
        assert!(matches!(answer, Answer::Slot(_, 4096)), "the kernel knows the memory");
        assert_eq!(results(&mut queue, answer).len(), 1);
        queue.unregister(&arena);
        assert_eq!(queue.buffers.find(&arena.claim(0, 1).unwrap()), None);
    }
}
