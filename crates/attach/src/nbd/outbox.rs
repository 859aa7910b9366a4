//! Replies to one client, in the order in which requests finish.
//!
//! Replies are made on the data path's own thread, which must not wait for a client. It sends a
//! short reply at once if the socket has room, because waking another thread costs more than the
//! system call. Everything else (long data, a full socket, a reply while another is being sent) is
//! queued for the connection's writer thread, which sends the queue in one system call. The flag
//! `sending` admits one sender at a time, so replies never mix.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tyche_block::Extent;

use super::reply::ReplyHeader;

/// The most data of a reply, in bytes, that the data path's own thread sends. Copying more into a
/// socket takes longer than waking the writer (some microseconds).
const INLINE_MAX: usize = 16 << 10;

/// The most replies sent with one system call.
const BATCH: usize = 32;

/// One reply, and the number of its bytes sent so far.
#[derive(Debug)]
pub(super) struct Reply {
    /// The slot of the request, freed when the reply is out.
    pub(super) token: u64,
    pub(super) header: ReplyHeader,
    /// The data of a read, or descriptors of a range; the first `data_len` bytes count.
    pub(super) data: Option<Extent>,
    pub(super) data_len: usize,
    pub(super) sent: usize,
}

impl Reply {
    fn data(&self) -> &[u8] {
        self.data.as_deref().map_or(&[], |data| &data[..self.data_len])
    }

    fn is_sent(&self) -> bool {
        self.sent == self.header.bytes().len() + self.data().len()
    }

    /// The rest to send, as header and data.
    fn unsent(&self) -> [&[u8]; 2] {
        let header = self.header.bytes();
        let data = &self.data()[self.sent.saturating_sub(header.len())..];
        [&header[self.sent.min(header.len())..], data]
    }
}

/// The queue between the disk and one client.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    changed: Condvar,
}

#[derive(Debug)]
struct OutboxState {
    queue: VecDeque<Reply>,
    /// Whether a thread writes to the socket, without holding the lock.
    sending: bool,
    closed: bool,
}

/// The outcome of [`Outbox::push`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// Sent, or dropped because the outbox is closed. The caller must free the slot.
    Done,
    /// Queued for the writer, which frees the slot.
    Queued,
    /// Lost, because the socket is broken. The caller must free the slot.
    Broken,
}

impl Outbox {
    /// A queue for at most `limit` replies at once.
    pub(super) fn new(limit: usize) -> Self {
        let queue = VecDeque::with_capacity(limit);
        let state = Mutex::new(OutboxState { queue, sending: false, closed: false });
        Self { state, changed: Condvar::new() }
    }

    /// Sends `reply` or queues it. Never waits for the client.
    pub(super) fn push(&self, stream: &UnixStream, mut reply: Reply) -> Pushed {
        let mut state = self.lock();
        if state.closed {
            return Pushed::Done;
        }
        if state.sending || !state.queue.is_empty() || reply.data_len > INLINE_MAX {
            assert!(state.queue.len() < state.queue.capacity(), "more replies than requests");
            state.queue.push_back(reply);
            if !state.sending {
                self.changed.notify_one();
            }
            return Pushed::Queued;
        }
        state.sending = true;
        drop(state);

        let result = send(stream, std::slice::from_mut(&mut reply), SendFlags::DONTWAIT);

        let mut state = self.lock();
        state.sending = false;
        let pushed = match result {
            _ if state.closed || reply.is_sent() => Pushed::Done,
            Ok(()) | Err(Errno::AGAIN) => {
                state.queue.push_front(reply);
                Pushed::Queued
            }
            Err(_) => Pushed::Broken,
        };
        if !state.queue.is_empty() {
            self.changed.notify_one();
        }
        pushed
    }

    /// The writer thread: sends queued replies until [`close`](Self::close), and calls `sent` with
    /// the token of each.
    ///
    /// # Errors
    /// When the socket breaks, or the client takes nothing for as long as the socket's timeout.
    pub(super) fn write_all(&self, stream: &UnixStream, sent: impl Fn(u64)) -> io::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let mut state = self.lock();
            while !state.closed && (state.sending || state.queue.is_empty()) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.closed {
                return Ok(());
            }
            state.sending = true;
            let len = state.queue.len().min(BATCH);
            batch.extend(state.queue.drain(..len));
            drop(state);

            let result = send_all(stream, &mut batch);
            for reply in batch.drain(..) {
                // The buffer is returned before the slot, for requests that wait for both.
                drop(reply.data);
                sent(reply.token);
            }
            self.lock().sending = false;
            result?;
        }
    }

    /// Drops the queue and ends the writer. Later replies are dropped. Returns the tokens of the
    /// dropped replies.
    pub(super) fn close(&self) -> Vec<u64> {
        let mut state = self.lock();
        state.closed = true;
        self.changed.notify_all();
        state.queue.drain(..).map(|reply| reply.token).collect()
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends all of `replies`, waiting as long as the socket's timeout allows each time.
fn send_all(stream: &UnixStream, replies: &mut [Reply]) -> io::Result<()> {
    let mut first = 0;
    while first < replies.len() {
        if replies[first].is_sent() {
            first += 1;
            continue;
        }
        match send(stream, &mut replies[first..], SendFlags::empty()) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes one `sendmsg` call, and records in each reply how much of it was sent.
fn send(stream: &UnixStream, replies: &mut [Reply], flags: SendFlags) -> Result<(), Errno> {
    let mut slices = [IoSlice::new(&[]); BATCH * 2];
    let mut count = 0;
    for reply in replies.iter().take(BATCH) {
        for part in reply.unsent() {
            slices[count] = IoSlice::new(part);
            count += 1;
        }
    }
    let mut control = SendAncillaryBuffer::default();
    let flags = flags | SendFlags::NOSIGNAL;
    let mut sent = sendmsg(stream, &slices[..count], &mut control, flags)?;
    for reply in replies {
        let taken = reply.unsent().iter().map(|part| part.len()).sum::<usize>().min(sent);
        reply.sent += taken;
        sent -= taken;
    }
    assert_eq!(sent, 0, "sendmsg sent more than it was given");
    Ok(())
}
