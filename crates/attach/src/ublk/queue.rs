//! One queue of a device, and its ring: served by a thread of its own, or [polled](Poller) by the
//! thread that also serves the disk.
//!
//! Each tag has a command in the ring, which the kernel completes with a request of that tag; the
//! answer is the next command. So a request costs no system call of its own: one `io_uring_enter`
//! submits all answers and waits for requests.
//!
//! ```text
//! with the kernel --request--> serve --submit--> with the disk --answer--> commit --+
//!       ^                        |                                                  |
//!       |                        +--> starved (no pages) --> serve                  |
//!       +---------------------------------------------------------------------------+
//! ```
//!
//! Data are copied between the request's pages and the arena when both are known
//! (`UBLK_F_USER_COPY`), so a request holds as many pages as it needs, and only while it needs
//! them. Answers come through an [`Inbox`], whose bell the ring watches as well.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use tyche_block::{Completion, Disk, Errno, Extent, Operation, PAGE, Request, Sink};
use tyche_wake::{Inbox, Polled, Poller};
use zerocopy::IntoBytes;

use super::abi::{
    IO_COMMIT_AND_FETCH_REQ, IO_F_FUA, IO_F_NOUNMAP, IO_FETCH_REQ, IoCommand, IoDescriptor,
    OP_DISCARD, OP_FLUSH, OP_READ, OP_WRITE, OP_WRITE_ZEROES, RES_ABORT, RES_OK, data_offset,
};
use super::io_descriptors::IoDescriptors;
use crate::SECTOR;

/// The user data of the bell in the ring; tags are less.
const BELL: u64 = u64::MAX;
/// The pause before a request without pages is retried: another queue may have freed some.
const STARVED_PAUSE: Duration = Duration::from_millis(1);

/// The sink for the disk's answers.
struct Answers(Inbox<Completion>);

impl Sink for Answers {
    fn complete(&self, completion: Completion) {
        self.0.push(completion).expect("there is room for every tag");
        self.0.ring();
    }
}

/// See the [module](self).
pub(super) struct Queue {
    ring: IoUring,
    descriptors: IoDescriptors,
    device: Arc<File>,
    disk: Arc<dyn Disk>,
    answers: Arc<Answers>,
    /// The same, as a sink for the disk.
    sink: Arc<dyn Sink>,
    index: u16,
    depth: u16,
    /// Tags that the kernel has not aborted.
    live: u16,
    /// Tags whose requests wait for pages, in order.
    starved: VecDeque<u16>,
}

impl Queue {
    /// Makes the queue. Must be called by the thread that then [begins](Self::begin) and serves it.
    pub(super) fn new(
        device: &Arc<File>,
        disk: &Arc<dyn Disk>,
        index: u16,
        depth: u16,
    ) -> io::Result<Self> {
        let entries = (u32::from(depth) + 1).next_power_of_two();
        // Completions wait until this thread polls: no other thread is interrupted for them.
        let mut builder = IoUring::builder();
        builder.setup_coop_taskrun().setup_taskrun_flag().setup_single_issuer();
        let ring = builder.build(entries)?;
        let answers = Arc::new(Answers(Inbox::new(depth.into())?));
        Ok(Self {
            ring,
            descriptors: IoDescriptors::map(device, index, depth)?,
            device: Arc::clone(device),
            disk: Arc::clone(disk),
            sink: Arc::clone(&answers) as _,
            answers,
            index,
            depth,
            live: depth,
            starved: VecDeque::with_capacity(depth.into()),
        })
    }

    /// Fetches the first requests.
    ///
    /// # Errors
    /// If the ring breaks.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.push(IO_FETCH_REQ, tag, 0);
        }
        self.watch_bell();
        self.ring.submit().map(drop)
    }

    /// After [`begin`](Self::begin): serves requests until the device is stopped, in a thread of
    /// its own.
    ///
    /// # Errors
    /// If the ring breaks. The kernel then takes the server for dead.
    pub(super) fn run(mut self) -> io::Result<()> {
        while self.live > 0 {
            self.answer_all();
            self.wait()?;
            self.take();
        }
        Ok(())
    }

    /// Gives the kernel all pending answers, and retries the requests that found no pages.
    fn answer_all(&mut self) -> bool {
        let mut worked = false;
        while let Some(completion) = self.answers.0.pop() {
            self.answer(completion);
            worked = true;
        }
        while let Some(tag) = self.starved.pop_front() {
            if !self.serve(tag, false) {
                self.starved.push_front(tag);
                break;
            }
        }
        worked
    }

    /// Submits the new entries, and waits for requests and answers.
    fn wait(&mut self) -> io::Result<()> {
        // Announces the sleep to the bell, which an answer that waits already rings at once.
        self.answers.0.wait_fd();
        let result = if self.starved.is_empty() {
            self.ring.submit_and_wait(1)
        } else {
            let pause = Timespec::from(STARVED_PAUSE);
            self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&pause))
        };
        self.answers.0.awake();
        accept_early(result.map(drop))
    }

    /// Handles the completions in the ring; false if there were none.
    fn take(&mut self) -> bool {
        let mut worked = false;
        while let Some(entry) = self.pop() {
            worked = true;
            if entry.user_data() == BELL {
                // The ring reports each change once: the bell must be silenced, or the next ring is
                // missed.
                self.answers.0.awake();
                if !cqueue::more(entry.flags()) {
                    self.watch_bell();
                }
                continue;
            }
            let tag = entry.user_data() as u16;
            match entry.result() {
                RES_OK => {
                    if !self.serve(tag, true) {
                        self.starved.push_back(tag);
                    }
                }
                result => {
                    if result != RES_ABORT {
                        let error = io::Error::from_raw_os_error(-result);
                        tracing::warn!(queue = self.index, tag, %error, "ublk command refused");
                    }
                    self.live -= 1;
                }
            }
        }
        worked
    }

    fn pop(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn watch_bell(&mut self) {
        let bell = Fd(self.answers.0.wait_fd().as_raw_fd());
        self.answers.0.awake();
        let watch = opcode::PollAdd::new(bell, libc::POLLIN as u32).multi(true).build();
        self.push_entry(&watch.user_data(BELL));
    }

    /// Submits a request to the disk; false if there are no pages for it now.
    fn serve(&mut self, tag: u16, is_new: bool) -> bool {
        match self.request(tag, is_new) {
            Ok(Some(request)) => self.disk.submit(request, tag.into(), &self.sink),
            Ok(None) => return false,
            Err(errno) => self.push(IO_COMMIT_AND_FETCH_REQ, tag, -errno.0),
        }
        true
    }

    /// The request of a tag; `None` if there are no pages for it now, or others wait for some that
    /// came before.
    fn request(&self, tag: u16, is_new: bool) -> Result<Option<Request>, Errno> {
        let descriptor = self.descriptors.read(tag);
        let operation = operation(&descriptor).ok_or(Errno::OPNOTSUPP)?;
        let (offset, len) = match operation {
            Operation::Flush => (0, 0),
            _ => (
                descriptor.start_sector.checked_mul(SECTOR).ok_or(Errno::INVAL)?,
                bytes(&descriptor).ok_or(Errno::INVAL)?,
            ),
        };
        let mut buffer = None;
        if operation.has_data() {
            if len as usize > self.disk.arena().kept() * PAGE {
                return Err(Errno::INVAL);
            }
            if is_new && !self.starved.is_empty() {
                // Those that wait come first, or a long one might wait for ever.
                return Ok(None);
            }
            let Some(mut extent) = self.disk.arena().alloc(len as usize) else { return Ok(None) };
            if matches!(operation, Operation::Write { .. }) {
                self.copy_from_request(tag, &mut extent[..len as usize])?;
            }
            buffer = Some(extent);
        }
        let request = Request { operation, offset, len, buffer };
        request.check(&self.disk.geometry())?;
        Ok(Some(request))
    }

    /// Completes a request to the kernel.
    fn answer(&mut self, completion: Completion) {
        let Completion { token, result, buffer } = completion;
        let tag = token as u16;
        let result = result.and_then(|()| self.deliver(tag, buffer));
        self.push(IO_COMMIT_AND_FETCH_REQ, tag, result.unwrap_or_else(|errno| -errno.0));
    }

    /// Copies read data to the request's pages; returns the bytes that the request has moved.
    fn deliver(&self, tag: u16, buffer: Option<Extent>) -> Result<i32, Errno> {
        let Some(buffer) = buffer else { return Ok(0) };
        let descriptor = self.descriptors.read(tag);
        let len = bytes(&descriptor).ok_or(Errno::IO)?;
        if operation(&descriptor) == Some(Operation::Read) {
            let data = &buffer[..len as usize];
            let offset = data_offset(self.index, tag);
            let copied =
                rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.device, data, offset));
            check_copied(copied, data.len())?;
        }
        i32::try_from(len).map_err(|_| Errno::IO)
    }

    fn copy_from_request(&self, tag: u16, data: &mut [u8]) -> Result<(), Errno> {
        let offset = data_offset(self.index, tag);
        let len = data.len();
        let copied =
            rustix::io::retry_on_intr(|| rustix::io::pread(&self.device, &mut *data, offset));
        check_copied(copied, len)
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) {
        let fields = IoCommand { queue: self.index, tag, result, address: 0 };
        let mut bytes = [0; 16];
        bytes.copy_from_slice(fields.as_bytes());
        let device = Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd16::new(device, command).cmd(bytes).build();
        self.push_entry(&entry.user_data(tag.into()));
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: no entry points to memory, and the descriptors that they name outlive the ring.
        unsafe { self.ring.submission().push(entry) }
            .expect("there are as many entries as tags, and one for the bell");
    }
}

impl Poller for Queue {
    fn poll(&mut self) -> io::Result<Polled> {
        let answered = self.answer_all();
        let ring = self.ring.submission();
        let (pushed, deferred) = (!ring.is_empty(), ring.taskrun());
        drop(ring);
        if pushed || deferred {
            accept_early(self.ring.submit_and_wait(0).map(drop))?;
        }
        let taken = self.take();
        Ok(match (self.live, answered || taken) {
            (0, _) => Polled::Over,
            (_, true) => Polled::Worked,
            _ => Polled::Idle,
        })
    }

    fn announce(&self) {
        self.answers.0.wait_fd();
    }

    /// The ring's descriptor; the ring also watches the bell of the answers.
    fn wait_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor, which is open as long as the ring is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn awake(&self) {
        self.answers.0.awake();
    }
}

/// Treats an interrupted wait, or a timeout, as an early return.
fn accept_early(waited: io::Result<()>) -> io::Result<()> {
    match waited {
        Err(error)
            if error.kind() == ErrorKind::Interrupted
                || error.raw_os_error() == Some(libc::ETIME) =>
        {
            Ok(())
        }
        waited => waited,
    }
}

/// The length of a request's data in bytes; `None` if it overflows.
fn bytes(descriptor: &IoDescriptor) -> Option<u32> {
    descriptor.sectors.checked_mul(SECTOR as u32)
}

fn operation(descriptor: &IoDescriptor) -> Option<Operation> {
    let is = |flag| descriptor.op_flags & flag != 0;
    let fua = is(IO_F_FUA);
    Some(match descriptor.op_flags as u8 {
        OP_READ => Operation::Read,
        OP_WRITE => Operation::Write { fua },
        OP_FLUSH => Operation::Flush,
        OP_DISCARD => Operation::Discard,
        OP_WRITE_ZEROES => Operation::WriteZeroes { fua, may_unmap: !is(IO_F_NOUNMAP) },
        _ => return None,
    })
}

/// Checks that all bytes were copied. The copy fails if the kernel has taken the request back
/// meanwhile.
fn check_copied(copied: rustix::io::Result<usize>, len: usize) -> Result<(), Errno> {
    match copied {
        Ok(count) if count == len => Ok(()),
        _ => Err(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_operations_are_told_apart() {
        let of = |op_flags| {
            operation(&IoDescriptor { op_flags, sectors: 8, start_sector: 0, address: 0 })
        };
        assert_eq!(of(u32::from(OP_READ)), Some(Operation::Read));
        assert_eq!(of(u32::from(OP_WRITE)), Some(Operation::Write { fua: false }));
        assert_eq!(of(u32::from(OP_WRITE) | IO_F_FUA), Some(Operation::Write { fua: true }));
        let zeroes = |fua, may_unmap| Some(Operation::WriteZeroes { fua, may_unmap });
        assert_eq!(of(u32::from(OP_WRITE_ZEROES)), zeroes(false, true));
        assert_eq!(of(u32::from(OP_WRITE_ZEROES) | IO_F_NOUNMAP), zeroes(false, false));
        assert_eq!(of(13), None, "zone operations are not supported");
    }

    #[test]
    fn a_length_that_overflows_is_refused() {
        let of =
            |sectors| bytes(&IoDescriptor { op_flags: 0, sectors, start_sector: 0, address: 0 });
        assert_eq!([of(0), of(8), of(u32::MAX)], [Some(0), Some(4096), None]);
    }
}
