//! One ring for one thread.
//!
//! Each request has a slot; the slot's index is what the ring knows it by. A slot has at most one
//! entry in the ring, so neither the submission queue nor the completion queue, both at least as
//! deep as there are slots, can overflow. A slot owns the request's buffer until the kernel has
//! answered.
//!
//! The ring runs completions cooperatively (`COOP_TASKRUN`): the kernel does not interrupt a
//! thread that is busy, but leaves them to its next system call, and a flag in shared memory
//! tells a thread that makes none. `DEFER_TASKRUN` would go further, but ties the ring to one
//! thread, so that nobody else could wait for the kernel when the queue is dropped; and what it
//! defers does not wake a `poll` on the ring's descriptor.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{io, mem};

use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use tyche_block::{Arena, Completion, Errno, Extent, Operation, Request};

use super::buffers::Buffers;
use super::job::{Job, Next, Step};
use super::opened::Opened;
use crate::Queue;

/// The most entries that the kernel gives to a submission queue.
const DEPTH_MAX: usize = 32768;
/// The file's place in the ring's table of files.
const FILE: types::Fixed = types::Fixed(0);
/// `BLOCK_URING_CMD_DISCARD`, `_IO(0x12, 0)`: discard on a block device, since Linux 6.12.
const DISCARD_COMMAND: u32 = 0x1200;

/// See the [module](self). The fields are dropped in this order: the ring before what it refers
/// to.
pub(super) struct RingQueue {
    ring: IoUring,
    slots: Box<[Option<InFlight>]>,
    free: Vec<u32>,
    buffers: Buffers,
    opened: Arc<Opened>,
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
        ring.submitter().register_files(&[opened.file.as_raw_fd()])?;
        let buffers = Buffers::new(&ring.submitter());
        let slots = (0..depth).map(|_| None).collect();
        let free = (0..depth).rev().collect();
        Ok(Self { ring, slots, free, buffers, opened: Arc::clone(opened) })
    }

    /// Puts the current step of a slot's job into the ring, unseen by the kernel as yet.
    fn push(&mut self, slot: u32) {
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        let entry = in_flight.entry(&self.opened).user_data(u64::from(slot));
        // SAFETY: what the entry points to (the slot's buffer, or the zeroes that `opened` keeps)
        // stays in place until the kernel has answered: `reap` frees a slot only then, `drop`
        // waits for it.
        unsafe { self.ring.submission().push(&entry) }
            .expect("there are at least as many entries as slots, and one a slot");
    }

    /// Takes the next completion out of the ring.
    fn pop(&mut self) -> Option<(u32, i32)> {
        let entry = self.ring.completion().next()?;
        let slot = u32::try_from(entry.user_data()).expect("user data is a slot's index");
        Some((slot, entry.result()))
    }

    /// Digests one answer of the kernel.
    fn advance(&mut self, slot: u32, answer: i32) -> Option<Completion> {
        let in_flight = self.slots[slot as usize].as_mut().expect("a slot in use");
        let syncing = in_flight.job.step == Step::Sync;
        let result = match in_flight.job.advance(answer, &self.opened.can) {
            Next::Again => {
                self.push(slot);
                return None;
            }
            Next::Done(result) => result,
        };
        if syncing && result.is_err() {
            self.opened.sync_failed.store(true, Ordering::Relaxed);
        }
        let InFlight { token, buffer, .. } = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some(Completion { token, result, buffer })
    }

    /// Why a request cannot even be tried.
    fn refusal(&self, request: &Request) -> Option<Errno> {
        let lost = request.operation == Operation::Flush
            && self.opened.sync_failed.load(Ordering::Relaxed);
        if lost { Some(Errno::IO) } else { self.opened.geometry().check(request).err() }
    }

    /// Lets the kernel run what it has finished, and waits for `want` completions.
    fn enter(&self, want: u32) -> io::Result<()> {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: nothing is submitted and no argument is passed.
        let entered =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, want, flags, None) };
        entered.map(drop)
    }

    /// Requests that the kernel has seen and not answered, or whose answers wait in the ring.
    fn in_kernel(&mut self) -> usize {
        self.in_flight() - self.ring.submission().len()
    }
}

/// A ring with the newest features that the kernel has.
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
            Step::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            Step::Refuse(_) => opcode::Nop::new().build(),
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
        let durable = job.durable(&opened.can);
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let buffer = self.buffer.as_mut().expect("a transfer was checked to have a buffer");
        let memory = buffer[job.done as usize..job.len as usize].as_mut_ptr();
        let entry = match (job.operation, self.registered) {
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
        };
        // Some filesystems take a cached write at once and then sync it while `kick` waits.
        if durable && !opened.direct { entry.flags(squeue::Flags::ASYNC) } else { entry }
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
        let job = match self.refusal(&request) {
            None => Job::new(&request, &self.opened.can),
            Some(errno) => Job::refuse(&request, errno),
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
                    // Short of memory: the completion of what it has will wake the caller, who
                    // kicks again.
                    Some(libc::EAGAIN | libc::EBUSY) if self.in_kernel() > 0 => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn reap(&mut self, out: &mut Vec<Completion>) {
        if self.ring.submission().taskrun() {
            // Only interruption can go wrong, and then the flag stays up for the next time.
            let _ = self.enter(0);
        }
        while let Some((slot, answer)) = self.pop() {
            out.extend(self.advance(slot, answer));
        }
        // What goes on after a short transfer or a fallback. If it fails, the caller's next kick
        // fails the same way.
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
        // What was never kicked is dropped with the ring; a write of it must not happen now.
        while self.in_kernel() > 0 {
            if let Some((slot, _)) = self.pop() {
                self.slots[slot as usize] = None;
                self.free.push(slot);
                continue;
            }
            match self.enter(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                    // The kernel may use this memory at any time: nobody else gets it.
                    mem::forget(mem::take(&mut self.slots));
                    mem::forget(Arc::clone(&self.opened));
                    return;
                }
                _ => {}
            }
        }
        // The kernel would let go of the file, and so of the lock, some time after closing the
        // ring; asked like this, it does now. It can only fail if there is nothing to let go of.
        let _ = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use tyche_block::PAGE;

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

    /// The kernel's next answer, kept from the queue.
    fn intercept(queue: &mut RingQueue) -> (u32, i32) {
        queue.kick().unwrap();
        let mut fds = [PollFd::from_borrowed_fd(queue.wait_fd().unwrap(), PollFlags::IN)];
        let timeout = Timespec::try_from(Duration::from_secs(60)).unwrap();
        assert_eq!(poll(&mut fds, Some(&timeout)).unwrap(), 1);
        queue.enter(0).unwrap();
        queue.pop().expect("readable means that a completion waits")
    }

    #[test]
    fn after_a_failed_sync_no_flush_succeeds() {
        let (_file, opened) = opened(4096);
        let mut queue = RingQueue::new(&opened, 2).unwrap();
        queue.submit(1, flush());
        let (slot, answer) = intercept(&mut queue);
        assert_eq!(answer, 0);
        let failed = queue.advance(slot, -libc::EIO).unwrap();
        assert_eq!(failed.result, Err(Errno::IO));
        // On any queue: the kernel reports the loss once, whoever asks first.
        for queue in [&mut queue, &mut RingQueue::new(&opened, 1).unwrap()] {
            queue.submit(2, flush());
            let (slot, answer) = intercept(queue);
            assert_eq!(queue.advance(slot, answer).unwrap().result, Err(Errno::IO));
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
        let (slot, answer) = intercept(&mut queue);
        assert_eq!(answer, 4 * PAGE as i32);
        assert!(queue.advance(slot, PAGE as i32).is_none(), "three pages are left");
        let (slot, answer) = intercept(&mut queue);
        assert_eq!(answer, 3 * PAGE as i32);
        let done = queue.advance(slot, answer).unwrap();
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
        let (slot, answer) = intercept(&mut queue);
        assert_eq!(answer, 4096, "the kernel knows the memory");
        drop(queue.advance(slot, answer));
        queue.unregister(&arena);
        assert_eq!(queue.buffers.find(&arena.claim(0, 1).unwrap()), None);
    }
}
