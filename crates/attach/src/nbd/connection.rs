//! The service of one client, from the handshake to the end of its connection.
//!
//! Two threads serve it. The *reader* speaks the handshake, then takes requests off the socket,
//! payloads straight into the arena, and submits them; it stops reading while [`IN_FLIGHT_MAX`]
//! requests wait or the arena is empty. The *writer* is described in [`outbox`](super::outbox).

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tracing::{debug, warn};
use tyche_block::{Completion, Disk, Errno, Extent, Operation, Request, STATUS_LEN_MAX, Sink};
use tyche_wake::Timed;

use super::PAYLOAD_MAX;
use super::ending::{Counters, Ending};
use super::handshake::{self, Agreed, Offer};
use super::outbox::{Outbox, Pushed, Reply};
use super::reply::{self, ReplyHeader, StatusQuestion};
use super::wire::{Command, RequestHeader, command_flag};
use crate::slots::{self, Closed, Slots};

/// The most requests of one connection that are in progress or wait for their replies to be sent.
const IN_FLIGHT_MAX: usize = 128;

/// The longest silence within a message, and the longest time that a client may take no replies:
/// such a client holds memory that others may be waiting for. Between requests it may be silent.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limits of the handshake, which depends on the client alone, and may be a person's: of each
/// step, and of the whole.
const HANDSHAKE_STEP: Duration = Duration::from_secs(10);
const HANDSHAKE: Duration = Duration::from_secs(120);

/// The same of a client that is one too many: it is told so, and holds a thread.
const REFUSAL: Duration = Duration::from_secs(2);

/// The time for which the last requests of a client that has disconnected are kept alive.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes read ahead: enough for several requests at once, but few enough that most of a write's
/// payload is read in place instead of being copied.
const READ_AHEAD: usize = 16 * RequestHeader::LEN;

/// A payload too long to be accepted is read and discarded up to this size, so that the client gets
/// a proper error. It is also the size that clients may assume a server to take.
const SKIP_MAX: u32 = 32 << 20;

/// The handle that ends a connection: its socket, and the flag that its waits check.
#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    closed: Closed,
    /// It is one too many, and told so.
    is_refused: bool,
}

impl Peer {
    pub(super) fn new(stream: UnixStream, is_refused: bool) -> Self {
        Self { stream, closed: Closed::default(), is_refused }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Ends every wait of the connection's threads, on the socket or elsewhere.
    pub(super) fn hang_up(&self) {
        self.closed.raise();
        // Fails if the client has hung up already, which is fine.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A request between its submission and its reply.
#[derive(Debug)]
struct Pending {
    cookie: u64,
    kind: ReplyKind,
}

/// The kind of the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyKind {
    /// A simple one; bytes of data that follow if it is a success.
    Simple(usize),
    /// A chunk with the data of a read.
    Data { offset: u64, len: usize },
    /// A chunk with the descriptors of a range; bytes that the disk answers.
    Status(StatusQuestion, usize),
}

impl ReplyKind {
    /// The header of the reply, and its data.
    fn reply(
        self,
        cookie: u64,
        result: Result<(), Errno>,
        buffer: Option<Extent>,
    ) -> (ReplyHeader, Option<Extent>, usize) {
        match (self, result) {
            (Self::Simple(len), Ok(())) if len > 0 => {
                (ReplyHeader::simple(cookie, Ok(())), buffer, len)
            }
            // A write's buffer is free for other requests before its reply is sent.
            (Self::Simple(_), _) => (ReplyHeader::simple(cookie, result), None, 0),
            (Self::Data { offset, len }, Ok(())) => {
                (ReplyHeader::data(cookie, offset, len), buffer, len)
            }
            (Self::Status(question, answer_len), Ok(())) => {
                let mut buffer = buffer;
                let answer = buffer.as_deref_mut().and_then(|it| it.get_mut(..answer_len));
                match answer.and_then(|it| reply::describe(it, question)) {
                    Some(count) => {
                        let header = ReplyHeader::status(cookie, count);
                        (header, buffer, count * reply::DESCRIPTOR_LEN)
                    }
                    // Not what a target may say.
                    None => (ReplyHeader::error(cookie, Errno::IO), None, 0),
                }
            }
            // A disk that cannot tell has data everywhere.
            (Self::Status(question, _), Err(Errno::OPNOTSUPP)) => {
                (ReplyHeader::all_data(cookie, question.len), None, 0)
            }
            (_, Err(errno)) => (ReplyHeader::error(cookie, errno), None, 0),
        }
    }
}

/// The sink for the disk's answers.
#[derive(Debug)]
struct Connection {
    peer: Arc<Peer>,
    slots: Slots<Pending>,
    outbox: Outbox,
    counters: Arc<Counters>,
}

impl Sink for Connection {
    fn complete(&self, completion: Completion) {
        let Completion { token, result, buffer } = completion;
        let pending = self.slots.take(token);
        let is_status = matches!(pending.kind, ReplyKind::Status(..));
        if result.is_err() && !(is_status && result == Err(Errno::OPNOTSUPP)) {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        let (header, data, data_len) = pending.kind.reply(pending.cookie, result, buffer);
        let reply = Reply { token, header, data, data_len, sent: 0 };
        match self.outbox.push(&self.peer.stream, reply) {
            Pushed::Queued => {}
            Pushed::Done => self.slots.free(token),
            Pushed::Broken => {
                self.slots.free(token);
                self.peer.hang_up();
            }
        }
    }
}

/// Serves one client to its end, from the handshake on.
pub(super) fn serve(
    peer: &Arc<Peer>,
    disk: &Arc<dyn Disk>,
    offer: &Offer,
    counters: &Arc<Counters>,
) -> Ending {
    let agreed = match shake_hands(&peer.stream, offer) {
        Ok(agreed) => agreed,
        Err(ending) => return ending,
    };
    debug!("NBD transmission starts");
    transmit(peer, disk, agreed, counters)
}

/// Serves one client that has the disk's parameters already. What was not `agreed` is refused.
/// Longer reads and writes are taken than a client is told now, as far as the disk's arena keeps
/// enough: the client, or a device, may have been told of another limit by a former process.
pub(super) fn transmit(
    peer: &Arc<Peer>,
    disk: &Arc<dyn Disk>,
    agreed: Agreed,
    counters: &Arc<Counters>,
) -> Ending {
    let connection = Arc::new(Connection {
        peer: Arc::clone(peer),
        slots: Slots::new(IN_FLIGHT_MAX),
        outbox: Outbox::new(IN_FLIGHT_MAX),
        counters: Arc::clone(counters),
    });
    let writer = {
        let connection = Arc::clone(&connection);
        thread::Builder::new().name("nbd-writer".into()).spawn(move || connection.write())
    };
    let Ok(writer) = writer else {
        warn!("no thread for an NBD connection: raise the limit of tasks");
        return Ending::TooMany;
    };

    let payload_max = slots::accepted_max(disk.arena(), PAYLOAD_MAX);
    let sink: Arc<dyn Sink> = Arc::clone(&connection) as _;
    let ending = Reader { connection: &connection, sink: &sink, disk, payload_max, agreed }.run();

    if ending.is_orderly() {
        connection.slots.wait_idle(DRAIN_TIMEOUT, &peer.closed);
    }
    peer.hang_up();
    for token in connection.outbox.close() {
        connection.slots.free(token);
    }
    match writer.join() {
        Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => Ending::NotReading,
        _ => ending,
    }
}

fn shake_hands(stream: &UnixStream, offer: &Offer) -> Result<Agreed, Ending> {
    let mut timed = Timed::with_steps(stream, HANDSHAKE_STEP, HANDSHAKE);
    let agreed = handshake::negotiate(&mut timed, offer)?;
    let set = stream.set_read_timeout(Some(STALL_TIMEOUT));
    set.and(stream.set_write_timeout(Some(STALL_TIMEOUT))).map_err(|_| Ending::HungUp)?;
    Ok(agreed)
}

/// Tells a client that is one too many why it is not served. Returns the reason of its end.
pub(super) fn turn_away(peer: &Peer, why: &str) -> Ending {
    handshake::turn_away(&mut Timed::new(&peer.stream, REFUSAL), why)
}

impl Connection {
    /// The writer thread.
    fn write(&self) -> std::io::Result<()> {
        let result = self.outbox.write_all(&self.peer.stream, |token| self.slots.free(token));
        if result.is_err() {
            // Ends the reader, which then cleans up.
            self.peer.hang_up();
        }
        result
    }
}

/// The state of the reader thread.
///
/// After [`Peer::hang_up`] it reports [`Ending::HungUp`]; the caller of `hang_up` knows the true
/// reason.
struct Reader<'a> {
    connection: &'a Connection,
    sink: &'a Arc<dyn Sink>,
    disk: &'a Arc<dyn Disk>,
    payload_max: u32,
    agreed: Agreed,
}

impl Reader<'_> {
    fn run(&self) -> Ending {
        let mut stream = BufReader::with_capacity(READ_AHEAD, &self.connection.peer.stream);
        loop {
            if let Err(ending) = self.serve_request(&mut stream) {
                return ending;
            }
        }
    }

    /// Reads one request off the stream, and submits or answers it.
    fn serve_request(&self, stream: &mut impl BufRead) -> Result<(), Ending> {
        self.await_request(stream)?;
        let mut header = [0; RequestHeader::LEN];
        stream.read_exact(&mut header).map_err(|_| Ending::Truncated)?;
        let header = RequestHeader::parse(&header).ok_or(Ending::BadMagic)?;
        if header.command == Command::Disconnect {
            return Err(Ending::Disconnected);
        }
        self.connection.counters.requests.fetch_add(1, Ordering::Relaxed);

        let request = match self.operation(&header) {
            Ok(operation) => self.receive(stream, &header, operation)?,
            Err(errno) => {
                if header.command == Command::Write {
                    skip_payload(stream, header.len)?;
                }
                Err(errno)
            }
        };
        let answer_len = request.as_ref().map_or(0, |request| request.len as usize);
        let kind = self.reply_kind(&header, answer_len);
        let pending = Pending { cookie: header.cookie, kind };
        let token = self
            .connection
            .slots
            .insert(pending, &self.connection.peer.closed)
            .map_err(|_| Ending::HungUp)?;
        match request {
            Ok(request) => self.disk.submit(request, token, self.sink),
            Err(errno) => {
                self.sink.complete(Completion { token, result: Err(errno), buffer: None });
            }
        }
        Ok(())
    }

    /// Waits for the first byte of a request, for as long as the client likes.
    fn await_request(&self, stream: &mut impl BufRead) -> Result<(), Ending> {
        loop {
            match stream.fill_buf() {
                Ok([]) => return Err(Ending::HungUp),
                Ok(_) => return Ok(()),
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    _ => return Err(Ending::HungUp),
                },
            }
        }
    }

    /// The kind of the reply to a request; `answer_len`: bytes that the disk answers.
    fn reply_kind(&self, header: &RequestHeader, answer_len: usize) -> ReplyKind {
        let RequestHeader { offset, len, flags, .. } = *header;
        match header.command {
            Command::Read if self.agreed.is_structured => {
                ReplyKind::Data { offset, len: len as usize }
            }
            Command::Read => ReplyKind::Simple(len as usize),
            Command::BlockStatus if self.agreed.is_structured => {
                let is_one = flags & command_flag::REQ_ONE != 0;
                let block_size = self.disk.geometry().block_size;
                let question = StatusQuestion { offset, len, is_one, block_size };
                ReplyKind::Status(question, answer_len)
            }
            _ => ReplyKind::Simple(0),
        }
    }

    /// The disk operation of a request, or the error that refuses it.
    fn operation(&self, header: &RequestHeader) -> Result<Operation, Errno> {
        let RequestHeader { command, flags, .. } = *header;
        if flags & !command.allowed_flags() != 0 {
            return Err(Errno::INVAL);
        }
        let fua = flags & command_flag::FUA != 0;
        let may_unmap = flags & command_flag::NO_HOLE == 0;
        match command {
            // The target's speed is unknown here, so the flag gets the answer that makes the client
            // use its fallback.
            Command::WriteZeroes if flags & command_flag::FAST_ZERO != 0 => Err(Errno::OPNOTSUPP),
            Command::Read | Command::Write if header.len > self.payload_max => Err(Errno::INVAL),
            Command::Read if flags & command_flag::DF != 0 && !self.agreed.is_structured => {
                Err(Errno::INVAL)
            }
            // One chunk, with DF or without.
            Command::Read => Ok(Operation::Read),
            Command::BlockStatus if self.agreed.tells_status => Ok(Operation::BlockStatus),
            Command::Write => Ok(Operation::Write { fua }),
            Command::Flush => Ok(Operation::Flush),
            Command::Trim if self.disk.geometry().discard => Ok(Operation::Discard),
            Command::WriteZeroes => Ok(Operation::WriteZeroes { fua, may_unmap }),
            Command::Trim | Command::BlockStatus | Command::Unknown | Command::Disconnect => {
                Err(Errno::INVAL)
            }
        }
    }

    /// Allocates a buffer, reads the payload, and checks the request against the disk's present
    /// size: a client that has learnt of a disk's growth may use it at once.
    fn receive(
        &self,
        stream: &mut impl Read,
        header: &RequestHeader,
        operation: Operation,
    ) -> Result<Result<Request, Errno>, Ending> {
        let mut buffer = None;
        let (offset, len) = match operation {
            Operation::Flush => (0, 0),
            Operation::BlockStatus => match self.status_range(header) {
                Ok(range) => range,
                Err(errno) => return Ok(Err(errno)),
            },
            _ => (header.offset, header.len),
        };
        if operation.has_data() {
            let len = len as usize;
            let closed = &self.connection.peer.closed;
            let extent = slots::alloc(self.disk.arena(), len, closed).ok_or(Ending::HungUp)?;
            let extent = buffer.insert(extent);
            if matches!(operation, Operation::Write { .. }) {
                stream.read_exact(extent).map_err(|_| Ending::Truncated)?;
            }
        }
        let request = Request { operation, offset, len, buffer };
        Ok(request.check(&self.disk.geometry()).map(|()| request))
    }

    /// The range that a disk is asked with for the status of a client's: its length is that of the
    /// answer, as long as fits the disk; a block for a client that wants one descriptor only.
    fn status_range(&self, header: &RequestHeader) -> Result<(u64, u32), Errno> {
        let geometry = self.disk.geometry();
        let RequestHeader { offset, len, flags, .. } = *header;
        geometry.check(Operation::Read, offset, len).map_err(|_| Errno::INVAL)?;
        let is_one = flags & command_flag::REQ_ONE != 0;
        let most = if is_one { geometry.block_size } else { STATUS_LEN_MAX };
        let left = geometry.size - offset;
        Ok((offset, u32::try_from(left).unwrap_or(most).min(most)))
    }
}

fn skip_payload(stream: &mut impl Read, len: u32) -> Result<(), Ending> {
    if len > SKIP_MAX {
        return Err(Ending::WriteTooLong);
    }
    handshake::skip(stream, len)
}
