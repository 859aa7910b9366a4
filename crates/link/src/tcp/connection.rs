//! One connection, of either end: frames out of and into a socket.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use super::input::{Input, Malformed};
use super::output::{Output, prefix};
use super::{FRAME_LEN_MAX, PREFIX, socket};
use crate::connections::{Broken, Connection, NoCounts, Readiness};
use crate::{Mac, RxBatch, TxFrame};

/// The most frames per system call.
const GATHER_FRAMES: usize = 64;
/// The most vectors per system call.
const GATHER_VECTORS: usize = 256;
/// The least room to read into. Less: the same bytes in more calls.
const ROOM_MIN: usize = PREFIX + FRAME_LEN_MAX;

/// One TCP connection of a link: its socket, with the receive and output buffers, and the Ethernet
/// address that stands for the peer. Frames are sent from where they lie; only what the socket does
/// not take is buffered.
pub struct TcpConnection {
    socket: OwnedFd,
    /// The source address given to the peer's frames.
    mac: Mac,
    input: Input,
    output: Output,
    /// Whether the socket may be readable.
    readable: bool,
    /// Whether the socket is watched for room for output.
    watches_output: bool,
}

impl From<Malformed> for Broken {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl TcpConnection {
    /// # Errors
    /// If there is no memory for it.
    pub(super) fn new(socket: OwnedFd, mac: Mac) -> io::Result<Self> {
        let (input, output) = (Input::new()?, Output::default());
        Ok(Self { socket, mac, input, output, readable: true, watches_output: false })
    }

    /// Whether output waits for the peer to read.
    fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    fn unpack(&mut self, batch: &mut RxBatch) -> Result<(), Malformed> {
        while batch.len() < batch.capacity() && self.input.pop(&self.mac, batch)? {}
        Ok(())
    }

    /// Sends waiting output, as far as the peer reads.
    fn flush(&mut self) -> io::Result<()> {
        while self.has_output() {
            let (first, second) = self.output.slices();
            let sent = socket::send(&self.socket, &[IoSlice::new(first), IoSlice::new(second)])?;
            if sent == 0 {
                break;
            }
            self.output.sent(sent);
        }
        Ok(())
    }

    /// Sends frames in place; buffers the rest of those that it took.
    fn gather<'a>(
        &mut self,
        frames: &mut std::iter::Peekable<impl Iterator<Item = TxFrame<'a>>>,
    ) -> io::Result<usize> {
        let mut chosen = [None::<TxFrame<'a>>; GATHER_FRAMES];
        let mut prefixes = [[0; PREFIX]; GATHER_FRAMES];
        let (mut count, mut parts) = (0, 0);
        while count < GATHER_FRAMES {
            let fits = |frame: &TxFrame<'_>| parts + parts_max(frame) <= GATHER_VECTORS;
            let Some(frame) = frames.next_if(fits) else { break };
            prefixes[count] = prefix(&frame);
            parts += parts_max(&frame);
            chosen[count] = Some(frame);
            count += 1;
        }
        let chosen = &chosen[..count];
        if count == 0 {
            // More vectors than one call takes, and nothing else waits: there is room.
            let frame = frames.next().expect("only called with a frame");
            assert!(self.output.push(&frame, 0)?, "an empty buffer holds any frame");
            self.flush()?;
            return Ok(1);
        }
        let mut vectors = [IoSlice::new(&[]); GATHER_VECTORS];
        let mut used = 0;
        for (prefix, frame) in prefixes.iter().zip(chosen.iter().flatten()) {
            for part in [prefix.as_slice()].into_iter().chain(frame.parts()) {
                vectors[used] = IoSlice::new(part);
                used += 1;
            }
        }
        let mut sent = socket::send(&self.socket, &vectors[..used])?;
        for frame in chosen.iter().flatten() {
            let gone = sent.min(PREFIX + frame.len());
            sent -= gone;
            if gone < PREFIX + frame.len() {
                let is_taken = self.output.push(frame, gone)?;
                assert!(is_taken, "one call's frames fit an empty buffer");
            }
        }
        Ok(count)
    }
}

/// The most vectors of a frame on the wire: length, head, data and tail.
fn parts_max(frame: &TxFrame<'_>) -> usize {
    frame.data().len() + 3
}

// The output buffer has room for all frames of one call, so no frame is cut off half-way.
const _: () = assert!(GATHER_FRAMES * (PREFIX + FRAME_LEN_MAX) <= super::OUTPUT_BYTES);

impl Connection for TcpConnection {
    type Counts = NoCounts;

    fn mac(&self) -> Mac {
        self.mac
    }

    /// The socket may be readable, or writable again.
    fn ready(&mut self) -> io::Result<()> {
        self.readable = true;
        self.flush()
    }

    /// Watches the socket for room while output waits.
    fn watch(&mut self, readiness: &Readiness, key: u64) -> io::Result<()> {
        let wanted = self.has_output();
        if wanted != self.watches_output {
            readiness.set_output(&self.socket, key, wanted)?;
            self.watches_output = wanted;
        }
        Ok(())
    }

    /// Whether frames already read wait.
    fn has_backlog(&self) -> bool {
        self.input.is_ready()
    }

    /// Reads from the socket at most once.
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Broken> {
        if self.input.is_lent() {
            // Another batch has frames of the last call.
            return Ok(());
        }
        self.unpack(batch)?;
        if self.readable && batch.len() < batch.capacity() {
            let room = self.input.room();
            let size = room.len();
            if size < ROOM_MIN {
                return Ok(());
            }
            let count = socket::receive(&self.socket, room)?;
            // A short read has emptied the socket.
            self.readable = count == Some(size);
            if let Some(count) = count {
                self.input.filled(count);
                self.unpack(batch)?;
            }
        }
        Ok(())
    }

    fn send<'a>(&mut self, frames: impl Iterator<Item = TxFrame<'a>>) -> io::Result<usize> {
        let mut frames = frames.peekable();
        let mut taken = 0;
        self.flush()?;
        while !self.has_output() && frames.peek().is_some() {
            taken += self.gather(&mut frames)?;
        }
        // The frames after the first that does not fit are not taken either: frames stay in order.
        for frame in frames {
            if !self.output.push(&frame, 0)? {
                break;
            }
            taken += 1;
        }
        Ok(taken)
    }
}
