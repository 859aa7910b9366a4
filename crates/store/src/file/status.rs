//! The thread that finds out which ranges of a file are holes.
//!
//! `lseek` with `SEEK_DATA` and `SEEK_HOLE` may wait for the medium, because it reads the map of
//! the file's blocks, and io_uring has no such operation. So a thread of the file does it for all
//! queues; it begins with the first request. A queue hands it the request's buffer, and is woken by
//! its [`Waker`] as after a sync of another queue.
//!
//! **Turns.** Who asks takes turns with the others: those whose buffers are of one arena, which is
//! that of a host's channel, have one turn together. A turn is an answer, whose work is bounded by
//! [`STEPS_MAX`], also if its list has room for more: who wants the rest asks for it, and waits for
//! the next turn. A client that wants one run only, as qemu does, causes no more.
//!
//! **What counts as a hole.** A write that was completed before the request is no hole, whether its
//! data are on the medium or in the page cache. That is up to the file system: [`knows_holes`] has
//! those that were checked, and in all other files all is data. A range that was allocated in
//! advance and never written counts as a hole: it reads as zeroes. A write that is in progress may
//! be told of or not.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::{mem, thread};

use rustix::fs::{SeekFrom, fstat, fstatfs, seek};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tyche_block::{Errno, Extent, StatusRun, StatusWriter};

use super::syncs::Waker;

/// The most steps of one answer, each two calls of `lseek`, and two runs where the file system has
/// the blocks of the export. Lower: a map of a file in many parts takes more requests. Higher:
/// others wait longer, and who wants one run causes more calls for nothing.
const STEPS_MAX: usize = 64;

/// Whether `lseek` tells the truth about the file. In these file systems it takes dirty pages and
/// delayed allocation into account (Linux: `iomap_seek_data` for ext4 and XFS,
/// `find_desired_extent` of btrfs, `shmem_file_llseek`). Others have told fresh data to be a hole
/// (OpenZFS before 2.2.2), ask a server that the page cache may be ahead of, or ask a file system
/// below, whichever that is (overlayfs).
pub(super) fn knows_holes(file: impl AsFd) -> bool {
    const KNOWN: [i64; 4] = [
        0xEF53,      // ext4
        0x5846_5342, // XFS
        0x9123_683E, // btrfs
        0x0102_1994, // tmpfs
    ];
    fstatfs(file).is_ok_and(|found| KNOWN.contains(&found.f_type))
}

/// A request for the thread.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) slot: u32,
    pub(super) offset: u64,
    /// The end of the disk, and of what is left of its file.
    pub(super) end: u64,
    pub(super) block_size: u32,
    pub(super) buffer: Extent,
    /// Bytes of the buffer for the answer.
    pub(super) len: usize,
    pub(super) answers: Answers,
}

impl Question {
    /// Answers that all is data.
    pub(super) fn tell_data(&mut self) {
        let mut status = StatusWriter::new(&mut self.buffer[..self.len]);
        status.push(StatusRun::data(self.end - self.offset));
    }
}

/// An answer for a queue's slot.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) slot: u32,
    pub(super) buffer: Extent,
    pub(super) result: Result<(), Errno>,
}

/// The answers for one queue, and what wakes it for them.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    list: Arc<Mutex<Vec<Answer>>>,
    waker: Waker,
}

impl Answers {
    pub(super) fn new(waker: Waker) -> Self {
        Self { list: Arc::default(), waker }
    }

    fn give(&self, answer: Answer) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        self.waker.wake();
    }

    /// Takes all that there are.
    pub(super) fn take(&self) -> Vec<Answer> {
        mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The way to the thread. It ends when its file is closed.
#[derive(Debug)]
pub(super) struct StatusThread {
    sender: Mutex<Option<Sender<Question>>>,
    /// The CPUs of who has opened the file; `None` if the kernel does not tell.
    cpus: Option<CpuSet>,
}

impl StatusThread {
    /// The way to a thread that will run where the calling thread may run: queues, which begin it,
    /// may be bound to the nodes of their links.
    pub(super) fn new() -> Self {
        Self { sender: Mutex::default(), cpus: sched_getaffinity(None).ok() }
    }

    /// Asks the thread, which `open` begins with a file description of its own if there is none.
    /// Gives the question back if it cannot be begun.
    pub(super) fn ask(
        &self,
        question: Question,
        open: impl FnOnce() -> Option<OwnedFd>,
    ) -> Result<(), Question> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            *sender = open().and_then(|file| begin(file, self.cpus));
        }
        match &*sender {
            Some(sender) => sender.send(question).map_err(|unsent| unsent.0),
            None => Err(question),
        }
    }
}

fn begin(file: OwnedFd, cpus: Option<CpuSet>) -> Option<Sender<Question>> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("file-status".into());
    let work = move || {
        run_on(cpus.as_ref());
        answer(&file, &receiver);
    };
    thread.spawn(work).ok().map(|_| sender)
}

/// Has the calling thread run on these CPUs, whichever its parent is bound to.
fn run_on(cpus: Option<&CpuSet>) {
    // It fails if the cpuset was changed; then the thread runs where its parent does.
    let _ = cpus.map(|cpus| sched_setaffinity(None, cpus));
}

/// The thread. As many questions wait at most as the queues of the file have slots.
fn answer(file: &OwnedFd, questions: &Receiver<Question>) {
    let mut turns = Turns::default();
    while let Ok(first) = questions.recv() {
        turns.push(first);
        while let Some(question) = turns.next() {
            answer_one(file, question);
            questions.try_iter().for_each(|more| turns.push(more));
        }
    }
}

fn answer_one(file: &OwnedFd, mut question: Question) {
    let Question { offset, end, block_size, len, .. } = question;
    let range = (offset, end, u64::from(block_size));
    let mut result = find_runs(file, range, &mut question.buffer[..len]);
    if let Err(Errno(libc::EINVAL | libc::ENOTTY | libc::EOPNOTSUPP)) = result {
        // It has no holes that it tells of.
        question.tell_data();
        result = Ok(());
    }
    let Question { slot, buffer, answers, .. } = question;
    answers.give(Answer { slot, buffer, result });
}

/// The questions that wait, by arena: each with questions has a turn after the others.
#[derive(Debug, Default)]
struct Turns(VecDeque<(usize, VecDeque<Question>)>);

impl Turns {
    fn push(&mut self, question: Question) {
        let arena = question.buffer.arena_id();
        match self.0.iter_mut().find(|(of, _)| *of == arena) {
            Some((_, waiting)) => waiting.push_back(question),
            None => self.0.push_back((arena, VecDeque::from([question]))),
        }
    }

    fn next(&mut self) -> Option<Question> {
        let (arena, mut waiting) = self.0.pop_front()?;
        let question = waiting.pop_front();
        if !waiting.is_empty() {
            self.0.push_back((arena, waiting));
        }
        question
    }
}

/// Writes the runs of a file from `offset` on, at most to `end`. Both, and the runs, are whole
/// blocks.
fn find_runs(
    file: &OwnedFd,
    (offset, end, block): (u64, u64, u64),
    bytes: &mut [u8],
) -> Result<(), Errno> {
    let mut status = StatusWriter::new(bytes);
    let mut at = offset;
    for _ in 0..STEPS_MAX {
        // The block in which data begin is data.
        let data = find(file, SeekFrom::Data(at), end)?;
        let start = (data - data % block).max(at);
        if !status.push(StatusRun::hole(start - at)) || start == end {
            break;
        }
        // So is the one in which they end. There is progress in any case: what was data may have
        // become a hole by now.
        let hole = find(file, SeekFrom::Hole(data), end)?.next_multiple_of(block);
        let stop = hole.max(start + block).min(end);
        if !status.push(StatusRun::data(stop - start)) || stop == end {
            break;
        }
        at = stop;
    }
    // A part that was cut off is lost, and no hole.
    let stat = fstat(file).map_err(from_system)?;
    if stat.st_size.unsigned_abs() < end { Err(Errno::IO) } else { Ok(()) }
}

/// Where the next data, or the next hole, begin; `end` if that is not before.
fn find(file: &OwnedFd, from: SeekFrom, end: u64) -> Result<u64, Errno> {
    match seek(file, from) {
        Ok(found) => Ok(found.min(end)),
        Err(rustix::io::Errno::NXIO) => Ok(end),
        Err(errno) => Err(from_system(errno)),
    }
}

fn from_system(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::thread::Pid;
    use tyche_block::{Arena, status_runs};

    use super::*;

    /// A file that ends in a hole, in a file system that has holes.
    fn sparse(size: u64) -> OwnedFd {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(size).expect("a sparse file");
        file.into()
    }

    fn runs(file: &OwnedFd, range: (u64, u64, u64)) -> Result<Vec<StatusRun>, Errno> {
        let mut bytes = [0; 4096];
        find_runs(file, range, &mut bytes)?;
        let block = u32::try_from(range.2).expect("a block's size");
        let runs = status_runs(&bytes, range.0, block).expect("an answer is valid");
        Ok(runs.collect())
    }

    #[test]
    fn runs_are_whole_blocks_and_end_with_the_disk() {
        let file = sparse(1 << 20);
        assert_eq!(runs(&file, (0, 1 << 20, 512)), Ok(vec![StatusRun::hole(1 << 20)]));
        let file = File::from(file);
        file.write_all_at(&[1; 100], (64 << 10) + 10).expect("a write");
        let file = OwnedFd::from(file);
        // Each file system has blocks of 4 KiB at least.
        let expected = [
            StatusRun::hole(64 << 10),
            StatusRun::data(4096),
            StatusRun::hole((1 << 20) - (68 << 10)),
        ];
        for block in [512, 4096] {
            assert_eq!(runs(&file, (0, 1 << 20, block)), Ok(expected.to_vec()));
        }
        assert_eq!(runs(&file, (65 << 10, 66 << 10, 512)), Ok(vec![StatusRun::data(1024)]));
        let last = (1 << 20) - 512;
        assert_eq!(runs(&file, (last, 1 << 20, 512)), Ok(vec![StatusRun::hole(512)]));
        // Blocks of an export that are larger than those of the file system.
        let wide = [StatusRun::hole(48 << 10), StatusRun::data(48 << 10)];
        assert_eq!(runs(&file, (0, 96 << 10, 48 << 10)), Ok(wide.to_vec()));
    }

    #[test]
    fn what_was_cut_off_is_no_hole() {
        let file = sparse(8192);
        assert_eq!(runs(&file, (0, 8192, 512)), Ok(vec![StatusRun::hole(8192)]));
        assert_eq!(runs(&file, (0, 16384, 512)), Err(Errno::IO));
    }

    /// A file of many parts: 16 KiB each, a quarter of which is data.
    fn in_parts(parts: u64) -> OwnedFd {
        let file = File::from(sparse(parts * 16384));
        for index in 0..parts {
            file.write_all_at(&[1; 4096], index * 16384).expect("a write");
        }
        file.into()
    }

    #[test]
    fn an_answer_has_as_many_runs_as_there_is_room_for() {
        let (file, mut bytes) = (in_parts(100), [0; 512]);
        find_runs(&file, (0, 100 * 16384, 512), &mut bytes).expect("runs");
        let runs: Vec<_> = status_runs(&bytes, 0, 512).expect("valid").collect();
        assert_eq!(runs.len(), 64);
        assert_eq!(runs[62..], [StatusRun::data(4096), StatusRun::hole(12288)]);
    }

    #[test]
    fn the_work_of_an_answer_is_bounded_and_the_rest_is_asked_for() {
        let (parts, file) = (1000, in_parts(1000));
        let (size, mut at, mut found, mut answers) = (parts * 16384, 0, 0, 0);
        while at < size {
            let runs = runs(&file, (at, size, 4096)).expect("runs");
            assert!(runs.len() <= 2 * STEPS_MAX, "{}", runs.len());
            at += runs.iter().map(|run| run.len).sum::<u64>();
            found += runs.iter().filter(|run| !run.is_hole).count() as u64;
            answers += 1;
        }
        assert_eq!((at, found, answers), (size, parts, parts.div_ceil(STEPS_MAX as u64)));
    }

    #[test]
    fn a_channel_with_many_questions_does_not_keep_another_waiting() {
        let (greedy, other) = (Arena::new(64), Arena::new(64));
        let answers = Answers::new(Waker::new().expect("an eventfd"));
        let ask = |arena: &Arena, slot| Question {
            slot,
            offset: 0,
            end: 4096,
            block_size: 512,
            buffer: arena.alloc(4096).expect("room"),
            len: 4096,
            answers: answers.clone(),
        };
        let mut turns = Turns::default();
        (0..4).for_each(|slot| turns.push(ask(&greedy, slot)));
        (10..12).for_each(|slot| turns.push(ask(&other, slot)));
        let order: Vec<_> = std::iter::from_fn(|| turns.next()).map(|it| it.slot).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 3]);
        turns.push(ask(&other, 12));
        assert_eq!(turns.next().map(|it| it.slot), Some(12));
        assert!(turns.next().is_none());
    }

    #[test]
    fn the_thread_is_not_bound_as_the_queue_that_begins_it() {
        let all = sched_getaffinity(None).expect("it tells");
        let Some(cpu) = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)) else { return };
        let (status, file, arena) = (StatusThread::new(), sparse(4096), Arena::new(1));
        let (waker, buffer) = (Waker::new().expect("an eventfd"), arena.alloc(4096));
        let answers = Answers::new(waker.clone());
        let question = Question {
            slot: 0,
            offset: 0,
            end: 4096,
            block_size: 512,
            buffer: buffer.expect("room"),
            len: 4096,
            answers: answers.clone(),
        };
        let queue = thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(cpu);
            sched_setaffinity(None, &one).expect("it is allowed");
            status.ask(question, || Some(file)).expect("a thread");
            status
        });
        let _status = queue.join().expect("it ends");
        let fd = waker.fd();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).expect("an answer");
        assert_eq!(answers.take().len(), 1);
        for task in std::fs::read_dir("/proc/self/task").expect("tasks").flatten() {
            // Others are of other tests, and may have ended.
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let number = task.file_name().to_str().and_then(|it| it.parse().ok());
            if let Some(number) = number.filter(|_| name.trim() == "file-status") {
                let found = sched_getaffinity(Pid::from_raw(number));
                assert!(found.is_err() || found == Ok(all), "as the queue");
            }
        }
    }
}
