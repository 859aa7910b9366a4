//! The transmit queue of an interface, which all threads share.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_fcoe::fc::wire::{FRAME_LEN_MAX, Frame, HEAD_LEN};
use tyche_link::{Interface, Link, Mac, Receiver, RxBatch, TxBatch, TxVectors};

/// Frames in a system call.
const BATCH: usize = 64;

struct Queue {
    link: Box<dyn Link>,
    frames: VecDeque<Vec<u8>>,
    vectors: TxVectors,
}

/// The transmit queue of an interface, with its link, behind one lock. A thread queues its frames,
/// and flushes once it is done with its batch, as frames are sent without the layers.
#[derive(Clone)]
pub(super) struct Transmit(Arc<Mutex<Queue>>);

impl Transmit {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a frame to a buffer of its own, data included, and queues it.
    pub(super) fn push(&self, frame: &Frame<'_>) {
        let mut buffer = [0; FRAME_LEN_MAX];
        let len = frame.emit(&mut buffer);
        let frame = buffer[..len].to_vec();
        self.queue().frames.push_back(frame);
    }

    /// Sends what is queued; false if there was nothing. What the interface does not take is lost.
    pub(super) fn flush(&self) -> bool {
        let mut queue = self.queue();
        let Queue { link, frames, vectors } = &mut *queue;
        if frames.is_empty() {
            return false;
        }
        while !frames.is_empty() {
            let len = frames.len().min(BATCH);
            let mut batch = vectors.batch();
            frames.iter().take(len).for_each(|frame| batch.push_whole(frame, HEAD_LEN));
            if let Err(error) = link.send(&batch) {
                tracing::warn!(link = link.name(), %error, "frames were not sent");
            }
            frames.drain(..len);
        }
        true
    }
}

/// The link of the port's loop, which receives by itself and sends under the lock of the queue.
pub(super) struct SharedLink {
    name: String,
    mac: Mac,
    receiver: Box<dyn Receiver>,
    transmit: Transmit,
}

impl SharedLink {
    /// Shares a link.
    ///
    /// # Errors
    /// The link can't be received from in another thread.
    pub(super) fn new(mut link: Box<dyn Link>) -> io::Result<Self> {
        let (name, mac) = (link.name().to_owned(), link.mac());
        let receiver = link.take_receiver()?;
        let vectors = TxVectors::new(BATCH, 1);
        let queue = Queue { link, frames: VecDeque::new(), vectors };
        let transmit = Transmit(Arc::new(Mutex::new(queue)));
        Ok(Self { name, mac, receiver, transmit })
    }

    /// The queue.
    pub(super) fn transmit(&self) -> Transmit {
        self.transmit.clone()
    }
}

impl Link for SharedLink {
    fn interface(&self) -> Interface<'_> {
        Interface { name: &self.name, mac: self.mac }
    }

    fn frame_len_max(&self) -> usize {
        self.transmit.queue().link.frame_len_max()
    }

    fn receive_capacity(&self, frame_len: usize) -> usize {
        self.transmit.queue().link.receive_capacity(frame_len)
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        self.receiver.receive(batch)
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        self.transmit.queue().link.send(batch)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.receiver.wait_fd()
    }

    fn join(&mut self, address: Mac) -> io::Result<()> {
        self.transmit.queue().link.join(address)
    }

    fn leave(&mut self, address: Mac) -> io::Result<()> {
        self.transmit.queue().link.leave(address)
    }
}
