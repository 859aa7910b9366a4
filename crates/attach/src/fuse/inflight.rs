//! FUSE requests in flight at the disk, and their answers.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use fuser::{Errno as FuseErrno, ReplyData, ReplyEmpty, ReplyWrite};
use tyche_block::{Completion, Disk, Errno, Operation, Request, Sink};

use super::locks::{RangeLock, RangeLocks};
use crate::slots::{Closed, Slots};

/// The most requests submitted and not answered yet. The kernel keeps `MAX_BACKGROUND` asynchronous
/// ones in flight; the rest is for synchronous ones, which it does not limit.
const IN_FLIGHT_MAX: usize = 256;

/// The answer to who waits: a program, or the thread that needs a block.
#[derive(Debug)]
pub(super) enum FuseAnswer {
    /// Has these bytes of the buffer.
    Read(ReplyData, Range<usize>),
    /// Has the number of bytes written.
    Write { reply: ReplyWrite, len: u32, _lock: RangeLock },
    /// Has the result alone.
    Empty(ReplyEmpty),
    /// Has the result of the zeroing; sent when its last piece is done.
    Piece(Arc<Zeroing>),
    /// Has the whole buffer. The receiver may have given up.
    Block(mpsc::SyncSender<Result<Vec<u8>, FuseErrno>>),
}

impl FuseAnswer {
    fn send(self, result: Result<(), Errno>, data: &[u8]) {
        match (self, result.map_err(to_fuse)) {
            (Self::Read(reply, part), Ok(())) => reply.data(&data[part]),
            (Self::Write { reply, len, .. }, Ok(())) => reply.written(len),
            (Self::Empty(reply), Ok(())) => reply.ok(),
            (Self::Read(reply, _), Err(errno)) => reply.error(errno),
            (Self::Write { reply, .. }, Err(errno)) => reply.error(errno),
            (Self::Empty(reply), Err(errno)) => reply.error(errno),
            (Self::Piece(zeroing), result) => zeroing.piece_done(result),
            (Self::Block(receiver), result) => {
                let _ = receiver.send(result.map(|()| data.to_vec()));
            }
        }
    }
}

/// Converts an error. `ENOSYS` and numbers outside 1 to 511 become `EIO`. The kernel drops an
/// answer with a number of 512 or more, so the program would wait for ever. After `ENOSYS` it never
/// asks again, so every later `fsync` would succeed without a flush.
fn to_fuse(errno: Errno) -> FuseErrno {
    match errno.0 {
        libc::ENOSYS => FuseErrno::EIO,
        1..512 => FuseErrno::from_i32(errno.0),
        _ => FuseErrno::EIO,
    }
}

/// A range that is zeroed in pieces: it is too long for one request, or no number of blocks.
#[derive(Debug)]
pub(super) struct Zeroing {
    pieces_left: AtomicU32,
    /// Zero, or the first error.
    error: AtomicI32,
    reply: Mutex<Option<ReplyEmpty>>,
    _lock: RangeLock,
}

impl Zeroing {
    /// A range of `pieces` requests, at least one.
    pub(super) fn new(pieces: u32, reply: ReplyEmpty, lock: RangeLock) -> Arc<Self> {
        assert!(pieces > 0, "a range of no pieces is never answered");
        Arc::new(Self {
            pieces_left: AtomicU32::new(pieces),
            error: AtomicI32::new(0),
            reply: Mutex::new(Some(reply)),
            _lock: lock,
        })
    }

    fn piece_done(&self, result: Result<(), FuseErrno>) {
        if let Err(errno) = result {
            let relaxed = Ordering::Relaxed;
            // Only the first error is reported; the others are usually the same.
            let _ = self.error.compare_exchange(0, errno.code(), relaxed, relaxed);
        }
        if self.pieces_left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reply = reply.expect("only the last piece answers");
        match self.error.load(Ordering::Relaxed) {
            0 => reply.ok(),
            code => reply.error(FuseErrno::from_i32(code)),
        }
    }
}

/// Requests in flight of one file system.
#[derive(Debug)]
pub(super) struct InFlight {
    slots: Slots<FuseAnswer>,
    /// Open handles of the file.
    open: AtomicUsize,
    /// Raised when the mount ends.
    pub(super) closed: Closed,
    /// The blocks of writes and zeroings.
    pub(super) locks: Arc<RangeLocks>,
}

impl InFlight {
    pub(super) fn new() -> Arc<Self> {
        let slots = Slots::new(IN_FLIGHT_MAX);
        let (open, closed) = (AtomicUsize::new(0), Closed::default());
        Arc::new(Self { slots, open, closed, locks: Arc::default() })
    }

    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Must be called once for each [`opened`](Self::opened).
    pub(super) fn released(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a program has the file open, in any mount namespace.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Submits `request` to the disk, waiting for a free slot; `answer` is sent when it is done.
    pub(super) fn submit(
        &self,
        disk: &dyn Disk,
        sink: &Arc<dyn Sink>,
        request: Request,
        answer: FuseAnswer,
    ) {
        if let Err(errno) = request.check(&disk.geometry()) {
            return answer.send(Err(errno), &[]);
        }
        match self.slots.insert(answer, &self.closed) {
            Ok(token) => disk.submit(request, token, sink),
            Err(answer) => answer.send(Err(Errno::SHUTDOWN), &[]),
        }
    }
}

impl Sink for InFlight {
    fn complete(&self, completion: Completion) {
        let Completion { token, result, buffer } = completion;
        let answer = self.slots.take(token);
        answer.send(result, buffer.as_deref().unwrap_or_default());
        drop(buffer);
        self.slots.free(token);
    }
}

/// The pieces of a range of bytes, as requests without data.
pub(super) fn pieces(
    operation: Operation,
    offset: u64,
    len: u64,
    piece: u32,
) -> impl Iterator<Item = Request> {
    assert!(piece > 0, "pieces have a length");
    let end = offset + len;
    (offset..end).step_by(piece as usize).map(move |offset| {
        let len = u32::try_from((end - offset).min(u64::from(piece))).expect("piece is a u32");
        Request { operation, offset, len, buffer: None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_once() {
        let cut = |offset, len| {
            pieces(Operation::Discard, offset, len, 4096)
                .map(|request| (request.offset, request.len))
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(512, 4096), [(512, 4096)]);
        assert_eq!(cut(512, 4608), [(512, 4096), (4608, 512)]);
        assert_eq!(cut(0, 8192), [(0, 4096), (4096, 4096)]);
    }

    #[test]
    fn strange_errors_become_eio() {
        assert_eq!(to_fuse(Errno::ROFS).code(), libc::EROFS);
        for strange in [0, -5, libc::ENOSYS, 512, i32::MAX, i32::MIN] {
            assert_eq!(to_fuse(Errno(strange)).code(), libc::EIO);
        }
    }
}
