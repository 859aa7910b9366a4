//! The thread that finds out which ranges of a file are holes.
//!
//! `lseek` with `SEEK_DATA` and `SEEK_HOLE` may wait for the medium, because it reads the map of
//! the file's blocks, and io_uring has no such operation. So a thread of the file does it for all
//! queues, one request after the other; it begins with the first. A queue hands it the request's
//! buffer, and is woken by its [`Waker`] as after a sync of another queue.
//!
//! **What counts as a hole.** A write that was completed before the request is no hole, whether its
//! data are on the medium or in the page cache. That is up to the file system: [`knows_holes`] has
//! those that were checked, and in all other files all is data. A range that was allocated in
//! advance and never written counts as a hole: it reads as zeroes. A write that is in progress may
//! be told of or not.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::{mem, thread};

use rustix::fs::{SeekFrom, fstat, fstatfs, seek};
use tyche_block::{Errno, Extent, StatusRun, StatusWriter};

use super::syncs::Waker;

/// The most steps of one answer, each two calls of `lseek`. A file system whose blocks are smaller
/// than those of the export may need several for a run.
const STEPS_MAX: usize = 1024;

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
#[derive(Debug, Default)]
pub(super) struct StatusThread(Mutex<Option<Sender<Question>>>);

impl StatusThread {
    /// Asks the thread, which `open` begins with a file description of its own if there is none.
    /// Gives the question back if it cannot be begun.
    pub(super) fn ask(
        &self,
        question: Question,
        open: impl FnOnce() -> Option<OwnedFd>,
    ) -> Result<(), Question> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            *sender = open().and_then(begin);
        }
        match &*sender {
            Some(sender) => sender.send(question).map_err(|unsent| unsent.0),
            None => Err(question),
        }
    }
}

fn begin(file: OwnedFd) -> Option<Sender<Question>> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("file-status".into());
    thread.spawn(move || answer(&file, &receiver)).ok().map(|_| sender)
}

/// The thread. As many questions wait at most as the queues of the file have slots.
fn answer(file: &OwnedFd, questions: &Receiver<Question>) {
    for mut question in questions {
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

    use tyche_block::status_runs;

    use super::*;

    /// A file that ends in a hole, in a file system that has holes.
    fn sparse(size: u64) -> OwnedFd {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(size).expect("a sparse file");
        file.into()
    }

    fn runs(file: &OwnedFd, range: (u64, u64, u64)) -> Result<Vec<StatusRun>, Errno> {
        let mut bytes = [0; 512];
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

    #[test]
    fn an_answer_has_as_many_runs_as_there_is_room_for() {
        let file = File::from(sparse(4 << 20));
        for index in 0..100 {
            file.write_all_at(&[1; 4096], index * 16384).expect("a write");
        }
        let runs = runs(&file.into(), (0, 4 << 20, 512)).expect("runs");
        assert_eq!(runs.len(), 64);
        assert_eq!(runs[62..], [StatusRun::data(4096), StatusRun::hole(12288)]);
    }
}
