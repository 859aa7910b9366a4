//! The undo log: the blocks of the disk as they were before their unflushed writes.
//!
//! Before the first write to a block since the last flush is submitted, the block enters the log
//! with its content. It leaves the log when a flush succeeds that began after such a write had
//! completed, or when a FUA write to the block succeeds. A crash writes the log back.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use std::{io, mem};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tyche_block::{Arena, Completion, Extent, Operation, PAGE, Request};

use crate::{Queue, Store};

/// Bytes read or written at a time.
const CHUNK: usize = 16 * PAGE;
/// The longest wait for one such transfer.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the [module](self).
pub(super) struct UndoLog {
    blocks: BTreeMap<u64, Before>,
    /// Flushes begun.
    epoch: u64,
    block_size: u64,
    queue: Box<dyn Queue>,
    arena: Arena,
}

/// The content of a block before its unflushed writes.
struct Before {
    content: Box<[u8]>,
    /// The epoch in which the first of the writes completed; `None` until then.
    written: Option<u64>,
}

impl UndoLog {
    pub(super) fn new(store: &dyn Store) -> io::Result<Self> {
        Ok(Self {
            blocks: BTreeMap::new(),
            epoch: 0,
            block_size: u64::from(store.geometry().block_size),
            queue: store.queue(1)?,
            arena: Arena::new(CHUNK / PAGE),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Saves the blocks of a range before they are modified.
    pub(super) fn remember(&mut self, offset: u64, len: u32) -> io::Result<()> {
        let block_size = self.block_size;
        let end = offset + u64::from(len);
        let mut at = offset;
        while at < end {
            let chunk = (CHUNK as u64).min(end - at);
            let numbers = at / block_size..(at + chunk) / block_size;
            if numbers.clone().any(|number| !self.blocks.contains_key(&number)) {
                let content = self.transfer(Operation::Read, at, self.buffer(chunk))?;
                for (number, block) in numbers.zip(content.chunks_exact(block_size as usize)) {
                    let before = || Before { content: block.into(), written: None };
                    self.blocks.entry(number).or_insert_with(before);
                }
            }
            at += chunk;
        }
        Ok(())
    }

    /// Records a completed write to a range: with FUA its blocks are durable, otherwise volatile.
    pub(super) fn written(&mut self, offset: u64, len: u32, fua: bool) {
        let first = offset / self.block_size;
        for number in first..first + u64::from(len) / self.block_size {
            if fua {
                self.blocks.remove(&number);
            } else if let Some(before) = self.blocks.get_mut(&number) {
                before.written = before.written.or(Some(self.epoch));
            }
        }
    }

    /// Begins a flush; returns its number, for [`flushed`](Self::flushed).
    pub(super) fn flush_begins(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch - 1
    }

    /// Forgets the blocks that a successful flush has made durable.
    pub(super) fn flushed(&mut self, epoch: u64) {
        self.blocks.retain(|_, before| before.written.is_none_or(|written| written > epoch));
    }

    /// Puts back every block for which `keep` is false, and empties the log.
    pub(super) fn undo(&mut self, mut keep: impl FnMut(u64) -> bool) -> io::Result<()> {
        for (number, before) in mem::take(&mut self.blocks) {
            if !keep(number) {
                let mut buffer = self.buffer(self.block_size);
                buffer.copy_from_slice(&before.content);
                let write = Operation::Write { fua: true };
                self.transfer(write, number * self.block_size, buffer)?;
            }
        }
        Ok(())
    }

    fn buffer(&self, len: u64) -> Extent {
        self.arena.alloc(len as usize).expect("one chunk is out at a time")
    }

    /// Runs one request on the wrapped store and waits for it.
    fn transfer(
        &mut self,
        operation: Operation,
        offset: u64,
        buffer: Extent,
    ) -> io::Result<Extent> {
        let len = u32::try_from(buffer.len()).expect("a chunk is small");
        let request = Request { operation, offset, len, buffer: Some(buffer) };
        self.queue.submit(0, request);
        let mut completions = Vec::with_capacity(1);
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.queue.kick()?;
            self.queue.reap(&mut completions);
            if let Some(Completion { result, buffer, .. }) = completions.pop() {
                result?;
                return Ok(buffer.expect("a transfer gives its buffer back"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!("the wrapped store took over {PATIENCE:?} for a block");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            if let Some(fd) = self.queue.wait_fd() {
                wait_readable(fd, left)?;
            }
        }
    }
}

fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
