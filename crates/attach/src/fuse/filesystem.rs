//! The file system: a directory with the disk as its only file.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, TimeOrNow, WriteFlags,
};
use tyche_block::{Disk, Geometry, Operation, Request, Sink};

use super::inflight::{FuseAnswer, InFlight, Zeroing, pieces};
use super::locks::RangeLock;
use crate::slots::{self, CLOSED_CHECK};

const FILE: INodeNo = INodeNo(2);

/// The lifetime of attributes in the kernel's cache: zero, so that the kernel asks each time and
/// sees a disk that has grown. Reads and writes need no attributes.
const ATTRIBUTES_VALID: Duration = Duration::ZERO;

/// The lifetime of the file's name in the kernel's cache: the name always means the same file.
const ENTRY_VALID: Duration = Duration::from_secs(3600);

/// Asynchronous requests that the kernel keeps in flight: as many as a loop device has.
const MAX_BACKGROUND: u16 = 128;

/// The longest range of one request to the disk, in bytes: whole pages. A file system is made with
/// one discard after the other, of some GiB each.
const PIECE: u32 = u32::MAX - 4095;

/// The file system's answers to the kernel. Never waits for the disk, except for room (see
/// [`slots`]).
pub(super) struct DiskFile {
    disk: Arc<dyn Disk>,
    /// The disk's queues, used round robin.
    queues: Vec<Arc<dyn Disk>>,
    next_queue: AtomicUsize,
    /// The name of the only file.
    name: String,
    in_flight: Arc<InFlight>,
    sink: Arc<dyn Sink>,
    /// The longest read or write, in bytes.
    io_max: u32,
}

impl DiskFile {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        name: &str,
        in_flight: Arc<InFlight>,
        io_max: u32,
    ) -> Self {
        let sink = Arc::clone(&in_flight) as _;
        let queues = tyche_block::queues(&disk);
        let (name, next_queue) = (name.to_owned(), AtomicUsize::new(0));
        Self { disk, queues, next_queue, name, in_flight, sink, io_max }
    }

    /// The queue for the next request.
    fn queue(&self) -> &dyn Disk {
        &*self.queues[self.next_queue.fetch_add(1, Ordering::Relaxed) % self.queues.len()]
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let Geometry { size, read_only, .. } = self.disk.geometry();
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o500, 0),
            FILE if read_only => (FileType::RegularFile, 0o400, size),
            FILE => (FileType::RegularFile, 0o600, size),
            _ => return None,
        };
        let never = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: never,
            mtime: never,
            ctime: never,
            crtime: never,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: self.io_max,
            flags: 0,
        })
    }

    /// Submits a request without data.
    fn submit(&self, request: Request, answer: FuseAnswer) {
        self.submit_to(self.queue(), request, answer);
    }

    /// Submits a request to the queue that its buffer is from.
    fn submit_to(&self, queue: &dyn Disk, request: Request, answer: FuseAnswer) {
        self.in_flight.submit(queue, &self.sink, request, answer);
    }

    /// The blocks that a range of bytes touches.
    fn blocks_of(&self, offset: u64, len: u32) -> Range<u64> {
        let block = u64::from(self.disk.geometry().block_size);
        offset - offset % block..(offset + u64::from(len)).next_multiple_of(block)
    }

    /// Locks blocks until a write of them is done; fails only at the end of the mount.
    fn lock(&self, blocks: Range<u64>) -> Result<RangeLock, Errno> {
        let InFlight { locks, closed, .. } = &*self.in_flight;
        locks.lock(blocks, closed).ok_or(Errno::ESHUTDOWN)
    }

    /// An operation on whole blocks of a queue, with memory for them; fails only at the end of the
    /// mount.
    fn request(
        &self,
        queue: &dyn Disk,
        operation: Operation,
        blocks: &Range<u64>,
    ) -> Result<Request, Errno> {
        let len = u32::try_from(blocks.end - blocks.start).map_err(|_| Errno::EINVAL)?;
        let buffer = slots::alloc(queue.arena(), len as usize, &self.in_flight.closed);
        let buffer = Some(buffer.ok_or(Errno::ESHUTDOWN)?);
        Ok(Request { operation, offset: blocks.start, len, buffer })
    }

    /// Reads a block and waits for it.
    fn read_block(&self, offset: u64) -> Result<Vec<u8>, Errno> {
        let queue = self.queue();
        let request = self.request(queue, Operation::Read, &self.blocks_of(offset, 1))?;
        let (sender, answer) = mpsc::sync_channel(1);
        self.submit_to(queue, request, FuseAnswer::Block(sender));
        loop {
            match answer.recv_timeout(CLOSED_CHECK) {
                Ok(block) => return block,
                Err(RecvTimeoutError::Timeout) if !self.in_flight.closed.is_raised() => {}
                Err(_) => return Err(Errno::ESHUTDOWN),
            }
        }
    }

    /// The request that writes `data` within `blocks`, which are locked. The rest of the first and
    /// the last block is read before.
    fn write_request(
        &self,
        queue: &dyn Disk,
        operation: Operation,
        blocks: &Range<u64>,
        offset: u64,
        data: &[u8],
    ) -> Result<Request, Errno> {
        let end = offset + data.len() as u64;
        let edges = [(blocks.start, offset), (end, blocks.end)];
        let mut partial: Vec<_> = edges
            .into_iter()
            .filter(|(from, to)| from != to)
            .map(|(from, _)| self.blocks_of(from, 1).start)
            .collect();
        partial.dedup();
        // Read before memory for the whole is taken: who waits for memory must not hold any.
        let partial: Vec<_> = partial
            .into_iter()
            .map(|block| Ok((block, self.read_block(block)?)))
            .collect::<Result<_, Errno>>()?;
        let mut request = self.request(queue, operation, blocks)?;
        let buffer = request.buffer.as_mut().expect("a write has data");
        let mut put = |at: u64, bytes: &[u8]| {
            let at = usize::try_from(at - blocks.start).expect("within the buffer");
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
        };
        partial.iter().for_each(|(block, bytes)| put(*block, bytes));
        put(offset, data);
        Ok(request)
    }

    /// Zeroes a range, which has been checked to lie within the disk.
    fn zero(&self, offset: u64, len: u64, may_unmap: bool, reply: ReplyEmpty) {
        let operation = Operation::WriteZeroes { fua: false, may_unmap };
        let Ok(count) = u32::try_from(len.div_ceil(u64::from(PIECE))) else {
            return reply.error(Errno::EINVAL);
        };
        let lock = match self.lock(offset..offset + len) {
            Ok(lock) => lock,
            Err(errno) => return reply.error(errno),
        };
        let zeroing = Zeroing::new(count, reply, lock);
        for request in pieces(operation, offset, len, PIECE) {
            self.submit(request, FuseAnswer::Piece(Arc::clone(&zeroing)));
        }
    }
}

impl Filesystem for DiskFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel with a lower limit returns it, and it is used instead.
        let _ = config.set_max_write(self.io_max);
        if let Err(limit) = config.set_max_readahead(self.io_max) {
            let _ = config.set_max_readahead(limit);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
        // Before Linux 6.6, a file with direct I/O can't be mapped with MAP_SHARED.
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| {
            io::Error::new(io::ErrorKind::Unsupported, "FUSE without asynchronous direct I/O")
        })
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if parent == INodeNo::ROOT && name == &*self.name => {
                let generation = Generation(0);
                reply.entry_with_ttls(&ATTRIBUTES_VALID, &ENTRY_VALID, &attributes, generation);
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &fuser::Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&ATTRIBUTES_VALID, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Accepts changes that have no effect: times, and the present size.
    fn setattr(
        &self,
        _: &fuser::Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(inode) else { return reply.error(Errno::ENOENT) };
        if mode.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::EPERM);
        } else if size.is_some_and(|size| size != attributes.size) {
            reply.error(Errno::EINVAL);
        } else {
            reply.attr(&ATTRIBUTES_VALID, &attributes);
        }
    }

    fn open(&self, _: &fuser::Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        if flags.acc_mode() != OpenAccMode::O_RDONLY && self.disk.geometry().read_only {
            return reply.error(Errno::EROFS);
        }
        // Closing needs no answer: `fsync` provides durability.
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        self.in_flight.opened();
        reply.opened(FileHandle(0), flags);
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.in_flight.released();
        reply.ok();
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Geometry { size, .. } = self.disk.geometry();
        // A read at the end of a file is cut short, where a disk would refuse it.
        let Some(left) = size.checked_sub(offset).filter(|&left| left > 0) else {
            return reply.data(&[]);
        };
        let len = u32::try_from(left).unwrap_or(u32::MAX).min(len);
        if len > self.io_max {
            return reply.error(Errno::EINVAL);
        }
        let (queue, blocks) = (self.queue(), self.blocks_of(offset, len));
        let request = match self.request(queue, Operation::Read, &blocks) {
            Ok(request) => request,
            Err(errno) => return reply.error(errno),
        };
        let skipped = usize::try_from(offset - blocks.start).expect("less than a block");
        self.submit_to(queue, request, FuseAnswer::Read(reply, skipped..skipped + len as usize));
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = match u32::try_from(data.len()) {
            Ok(len) if len <= self.io_max => len,
            _ => return reply.error(Errno::EINVAL),
        };
        let (queue, blocks) = (self.queue(), self.blocks_of(offset, len));
        if blocks.end > self.disk.geometry().size {
            return reply.error(Errno::ENOSPC);
        }
        // `O_SYNC` contains `O_DSYNC`.
        let operation = Operation::Write { fua: flags.0 & libc::O_DSYNC != 0 };
        let lock = self.lock(blocks.clone());
        let request = lock.and_then(|lock| {
            Ok((self.write_request(queue, operation, &blocks, offset, data)?, lock))
        });
        match request {
            Ok((request, lock)) => {
                self.submit_to(queue, request, FuseAnswer::Write { reply, len, _lock: lock });
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let request = Request { operation: Operation::Flush, offset: 0, len: 0, buffer: None };
        self.submit(request, FuseAnswer::Empty(reply));
    }

    /// A loop device turns discards into punched holes, and zeroing too unless the blocks are to
    /// stay allocated. Callers of both expect zeroes, which `WriteZeroes` guarantees and `Discard`
    /// does not. On a disk without discard a hole would cost as much as writing; the refusal makes
    /// the loop device stop offering discards.
    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let geometry = self.disk.geometry();
        let may_unmap = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE if geometry.discard => true,
            libc::FALLOC_FL_ZERO_RANGE => false,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if geometry.read_only {
            return reply.error(Errno::EROFS);
        }
        let block = u64::from(geometry.block_size);
        let fits = offset.checked_add(len).is_some_and(|end| end <= geometry.size);
        if !fits || len == 0 || !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return reply.error(Errno::EINVAL);
        }
        self.zero(offset, len, may_unmap, reply);
    }

    /// Reports the block size, which a loop device takes as its discard granularity.
    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        let Geometry { size, block_size, .. } = self.disk.geometry();
        let blocks = size / u64::from(block_size);
        reply.statfs(blocks, 0, 0, 1, 0, block_size, 255, block_size);
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.name.as_str()),
        ];
        for (next, (inode, kind, name)) in (1..).zip(entries).skip_while(|(n, _)| *n <= offset) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fsyncdir(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    // The kernel calls each of the following once: after the refusal, it never calls it again.

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &fuser::Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &fuser::Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: i64,
        _: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mkfs discards the whole disk: the fewer requests, the sooner it is done.
    #[test]
    fn a_disk_of_8_tib_is_discarded_by_2049_requests_of_whole_pages() {
        let requests = || pieces(Operation::Discard, 0, 8 << 40, PIECE);
        assert_eq!(requests().count(), 2049);
        assert!(requests().all(|request| request.len.is_multiple_of(4096)));
    }
}
