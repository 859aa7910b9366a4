//! The NBD server and a hostile client.
//!
//! The client sends all its input at once, closes its side, and reads to the end. Then both streams
//! are parsed side by side, by the NBD specification: the server must have answered each complete
//! option and request, correctly and with nothing more, and the disk must have executed the
//! requests answered with success, as they were sent.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};

use rustix::net::{SendFlags, send};
use tempfile::TempDir;
use tyche_attach::Attachment;
use tyche_attach::nbd::{Ending, NbdServer};
use tyche_block::{Operation, PAGE};
use tyche_testkit::corpus::Bytes;
use tyche_testkit::wait::{PATIENCE, wait_until};
use tyche_testkit::{allocations, alone};

use super::ledger::{self, Entry, Ledger};

/// The most bytes of an input: a socket's buffer holds that many.
const INPUT_MAX: usize = 64 << 10;

/// Pages of the disk's arena. A quarter of it is the longest read or write.
const PAGES: usize = 32;
const PAYLOAD_MAX: u32 = 32 << 10;
/// The longest one that is taken: all that the arena keeps.
const ACCEPTED_MAX: u32 = (PAGES * PAGE) as u32;

/// The most bytes that a connection allocates for any input: threads, tables and queues.
const ALLOCATED_MAX: usize = 48 << 10;

/// The most bytes that each byte of input may add: the answers to an option are longer than the
/// option.
const ALLOCATED_PER_BYTE: usize = 8;

const EXPORT: &[u8] = b"vol";

/// The outcome of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) ending: Ending,
    pub(crate) executed: Vec<Operation>,
}

struct Server {
    server: NbdServer,
    disk: Arc<Ledger>,
    _dir: TempDir,
    /// All data from the server to one client, with room for the answers to the largest number of
    /// reads.
    received: Mutex<Vec<u8>>,
}

impl Server {
    fn start() -> Self {
        let disk = Ledger::new(PAGES);
        let dir = tempfile::tempdir().unwrap();
        let name = std::str::from_utf8(EXPORT).unwrap();
        let shown: Arc<dyn tyche_block::Disk> = Arc::clone(&disk) as _;
        let server = NbdServer::start(&dir.path().join("nbd"), name, &shown);
        let received = Vec::with_capacity(INPUT_MAX / 28 * (16 + ACCEPTED_MAX as usize));
        Self { server: server.unwrap(), disk, _dir: dir, received: Mutex::new(received) }
    }

    /// Counters of the ends of connections.
    fn endings(&self) -> [u64; Ending::ALL.len()] {
        Ending::ALL.map(|ending| self.server.ended(ending))
    }

    /// Sends `sent`, and reads the server's answers to the end.
    fn talk(&self, sent: &[u8], received: &mut Vec<u8>) {
        let mut stream = UnixStream::connect(self.server.device_path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = sent;
        while !rest.is_empty() {
            // Fails if the server has hung up already.
            let Ok(len) = send(&stream, rest, SendFlags::NOSIGNAL) else { break };
            rest = &rest[len..];
        }
        // Fails if the server has hung up already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        match stream.read_to_end(received) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server does not hang up: {error}"),
        }
    }

    /// Waits until the server has no client.
    fn await_end(&self) {
        wait_until("all connections have ended", || self.server.counts().connected == 0);
    }
}

/// Sends `sent` to a server, and checks all its effects.
pub(crate) fn check(sent: &[u8]) -> Session {
    let _alone = alone::in_program();
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(Server::start);
    let mut received = server.received.lock().unwrap();
    received.clear();
    let sent = &sent[..sent.len().min(INPUT_MAX)];

    let before = server.endings();
    let ((), allocated) = allocations::during_in_all_threads(|| {
        server.talk(sent, &mut received);
        server.await_end();
    });
    let allowed = ALLOCATED_MAX + ALLOCATED_PER_BYTE * sent.len();
    assert!(allocated <= allowed, "{allocated} bytes allocated for {} of a client", sent.len());

    let after = server.endings();
    let ended = |index: &usize| before[*index] != after[*index];
    let ending = Ending::ALL[(0..before.len()).find(ended).expect("endings are counted")];
    let executed = server.disk.take(ACCEPTED_MAX);
    let mut dialogue = Dialogue {
        sent: Bytes(sent),
        received: Bytes(&received),
        ending,
        is_structured: false,
        tells_status: false,
    };
    if dialogue.handshake() {
        dialogue.transmission(&executed);
    } else {
        assert_eq!(executed, [], "executed without a handshake");
    }
    assert!(dialogue.received.0.is_empty(), "said unasked: {:x?}", dialogue.received.0);
    Session { ending, executed: executed.iter().map(|entry| entry.operation).collect() }
}

mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const LIST: u32 = 3;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
    pub(super) const STRUCTURED_REPLY: u32 = 8;
    pub(super) const LIST_META_CONTEXT: u32 = 9;
    pub(super) const SET_META_CONTEXT: u32 = 10;
}

const ACK: u32 = 1;
const ERROR: u32 = 1 << 31;

/// The most options in a handshake, bytes of an option, and bytes of an option that can't be
/// refused.
const OPTIONS_MAX: usize = 64;
const OPTION_MAX: usize = 1 << 20;
const NAME_OPTION_MAX: usize = 8192;

/// The streams of both sides.
struct Dialogue<'a> {
    sent: Bytes<'a>,
    received: Bytes<'a>,
    ending: Ending,
    is_structured: bool,
    tells_status: bool,
}

impl<'a> Dialogue<'a> {
    /// Parses the handshake. True if transmission starts after it.
    fn handshake(&mut self) -> bool {
        assert_eq!(self.received.take(18), Some(&b"NBDMAGICIHAVEOPT\0\x03"[..]));
        let Some(flags) = self.sent.array().map(u32::from_be_bytes) else { return false };
        if flags & !3 != 0 {
            return false;
        }
        for _ in 0..OPTIONS_MAX {
            let Some((number, data)) = self.option() else { return false };
            match number {
                option::EXPORT_NAME if data.is_empty() || data == EXPORT => {
                    self.export();
                    let zeroes = if flags & 2 == 0 { 124 } else { 0 };
                    assert_eq!(self.received.take(zeroes), Some(&[0; 124][..zeroes]));
                    return true;
                }
                option::EXPORT_NAME => return false,
                option::ABORT => {
                    if data.len() <= NAME_OPTION_MAX {
                        assert_eq!(self.answers(number), ACK);
                        return false;
                    }
                    assert_ne!(self.answers(number), ACK);
                }
                option::SET_META_CONTEXT if data.len() <= NAME_OPTION_MAX => {
                    // Set by its answer.
                    self.tells_status = false;
                    if self.answers(number) != ACK {
                        self.tells_status = false;
                    }
                    assert!(self.is_structured || !self.tells_status, "selected too early");
                }
                _ => {
                    let is_done = self.answers(number) == ACK;
                    self.is_structured |= is_done && number == option::STRUCTURED_REPLY;
                    if is_done && number == option::GO {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// The client's next option, unless it ends the connection.
    fn option(&mut self) -> Option<(u32, &'a [u8])> {
        let magic = self.sent.take(8)?;
        let number = u32::from_be_bytes(self.sent.array()?);
        let len = u32::from_be_bytes(self.sent.array()?) as usize;
        let max = if number == option::EXPORT_NAME { NAME_OPTION_MAX } else { OPTION_MAX };
        if magic != b"IHAVEOPT" || len > max {
            return None;
        }
        Some((number, self.sent.take(len)?))
    }

    /// Parses the answers to an option. Returns the kind of the last.
    fn answers(&mut self, number: u32) -> u32 {
        /// Three kinds of information, and an end.
        const ANSWERS_MAX: usize = 4;
        for _ in 0..ANSWERS_MAX {
            let mut header = Bytes(self.received.take(20).expect("an answer to each option"));
            assert_eq!(header.array(), Some(0x0003_e889_0455_65a9_u64.to_be_bytes()));
            assert_eq!(header.array(), Some(number.to_be_bytes()));
            let kind = u32::from_be_bytes(header.array().unwrap());
            let len = u32::from_be_bytes(header.array().unwrap()) as usize;
            match (number, kind) {
                (_, kind) if kind == ACK || kind & ERROR != 0 => {
                    assert_eq!(len, 0);
                    return kind;
                }
                (option::LIST, 2) => {
                    assert_eq!(self.received.take(len), Some(&b"\0\0\0\x03vol"[..]));
                }
                (option::INFO | option::GO, 3) => self.information(len),
                (option::LIST_META_CONTEXT | option::SET_META_CONTEXT, 4) => {
                    let is_selection = number == option::SET_META_CONTEXT;
                    let id = u32::from(is_selection).to_be_bytes();
                    assert_eq!(self.received.array(), Some(id));
                    assert_eq!(self.received.take(len - 4), Some(&b"base:allocation"[..]));
                    self.tells_status |= is_selection;
                }
                _ => panic!("option {number} is answered with {kind}"),
            }
        }
        panic!("answers to option {number} without end")
    }

    fn information(&mut self, len: usize) {
        let kind = u16::from_be_bytes(self.received.array().expect("a kind of information"));
        match (kind, len) {
            (0, 12) => self.export(),
            (1, 5) => assert_eq!(self.received.take(3), Some(EXPORT)),
            (3, 14) => {
                let sizes = [ledger::BLOCK, 4096, PAYLOAD_MAX].map(u32::to_be_bytes);
                assert_eq!(self.received.take(12), Some(sizes.as_flattened()));
            }
            _ => panic!("{len} bytes of information {kind}"),
        }
    }

    /// Size and transmission flags.
    fn export(&mut self) {
        assert_eq!(self.received.array(), Some(ledger::SIZE.to_be_bytes()));
        let flags = if self.is_structured { 0xed } else { 0x6d };
        assert_eq!(self.received.take(2), Some(&[1, flags][..]));
    }

    /// Parses requests and replies to the end.
    fn transmission(&mut self, executed: &[Entry]) {
        let mut executed = executed.iter().peekable();
        while let Some(Request { command, flags, cookie, offset, len }) = self.request() {
            let payload = if command == WRITE { len as usize } else { 0 };
            let Some(payload) = self.sent.take(payload) else { break };
            let asked = self.entry((command, flags), offset, len, payload);
            let done = executed.next_if(|done| Some(**done) == asked).is_some();
            if self.is_structured && matches!(command, READ | BLOCK_STATUS) {
                let one = command == BLOCK_STATUS && flags & REQ_ONE != 0;
                self.chunk((command, cookie), done, (offset, len), one);
                continue;
            }
            let Some(error) = self.reply(cookie) else { continue };
            assert_eq!(error == 0, done, "error {error} for {asked:?}");
            if done && command == READ {
                self.data(offset, len as usize);
            }
        }
        assert_eq!(executed.next(), None, "executed unasked");
    }

    /// The client's next request, unless it ends the connection.
    fn request(&mut self) -> Option<Request> {
        let mut header = Bytes(self.sent.take(28)?);
        let magic = header.take(4);
        let request = Request {
            flags: u16::from_be_bytes(header.array()?),
            command: u16::from_be_bytes(header.array()?),
            cookie: header.array()?,
            offset: u64::from_be_bytes(header.array()?),
            len: u32::from_be_bytes(header.array()?),
        };
        let ends = magic != Some(&[0x25, 0x60, 0x95, 0x13]) || request.command == DISCONNECT;
        (!ends).then_some(request)
    }

    /// The error of the next reply, which must be to this request. Replies may be cut anywhere if
    /// the connection ends by a later error of the client.
    fn reply(&mut self, cookie: [u8; 8]) -> Option<u32> {
        let Some(mut header) = self.received.take(16).map(Bytes) else {
            assert!(!self.ending.is_orderly(), "no reply to {cookie:x?}");
            self.received = Bytes(&[]);
            return None;
        };
        assert_eq!(header.take(4), Some(&[0x67, 0x44, 0x66, 0x98][..]));
        let error = u32::from_be_bytes(header.array().unwrap());
        assert_eq!(header.array(), Some(cookie));
        Some(error)
    }

    /// Parses the only chunk of a structured reply, which may be cut as simple ones.
    fn chunk(
        &mut self,
        (command, cookie): (u16, [u8; 8]),
        done: bool,
        (offset, len): (u64, u32),
        one: bool,
    ) {
        let Some(mut header) = self.received.take(20).map(Bytes) else {
            assert!(!self.ending.is_orderly(), "no reply to {cookie:x?}");
            self.received = Bytes(&[]);
            return;
        };
        assert_eq!(header.take(6), Some(&[0x66, 0x8e, 0x33, 0xef, 0, 1][..]));
        let kind = u16::from_be_bytes(header.array().unwrap());
        assert_eq!(header.array(), Some(cookie));
        let bytes = u32::from_be_bytes(header.array().unwrap()) as usize;
        assert_eq!(kind < 1 << 15, done, "chunk {kind} for {command}");
        match kind {
            1 => {
                assert_eq!((command, bytes), (READ, 8 + len as usize));
                assert!(self.received.take(8).is_none_or(|it| it == offset.to_be_bytes()));
                self.data(offset, len as usize);
            }
            5 => {
                assert_eq!(command, BLOCK_STATUS);
                let rest = (ledger::SIZE - offset) as u32 - ledger::BLOCK;
                let hole = (len - ledger::BLOCK.min(len)).min(rest);
                let mut expected = vec![1, ledger::BLOCK.min(len), 0];
                if hole > 0 && !one {
                    expected.extend([hole, 3]);
                }
                let expected: Vec<u8> = expected.into_iter().flat_map(u32::to_be_bytes).collect();
                let there = self.received.0.len().min(bytes);
                assert!(there == bytes || !self.ending.is_orderly());
                assert_eq!(bytes, expected.len());
                assert_eq!(self.received.take(there), Some(&expected[..there]));
            }
            _ => assert_eq!((bytes, self.received.take(6).is_some()), (6, true)),
        }
    }

    fn data(&mut self, offset: u64, len: usize) {
        let there = self.received.0.len().min(len);
        assert!(there == len || !self.ending.is_orderly(), "{there} bytes of {len}");
        let mut expected = [0; ACCEPTED_MAX as usize];
        ledger::fill(offset, &mut expected[..len]);
        assert!(self.received.take(there) == Some(&expected[..there]), "other data at {offset}");
    }
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;

struct Request {
    flags: u16,
    command: u16,
    cookie: [u8; 8],
    offset: u64,
    len: u32,
}

impl Dialogue<'_> {
    /// The disk's expected entry for a request, if it is valid.
    fn entry(
        &self,
        (command, flags): (u16, u16),
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> Option<Entry> {
        // A fast zeroing is refused, as are flags that were not offered.
        let allowed = match command {
            WRITE_ZEROES => 3,
            READ if self.is_structured => 1 | DF,
            BLOCK_STATUS => 1 | REQ_ONE,
            _ => 1,
        };
        if flags & !allowed != 0 {
            return None;
        }
        let fua = flags & 1 != 0;
        let may_unmap = flags & 2 == 0;
        let digest = if command == WRITE { ledger::digest(payload) } else { 0 };
        let (operation, offset, len) = match command {
            READ => (Operation::Read, offset, len),
            WRITE => (Operation::Write { fua }, offset, len),
            3 => (Operation::Flush, 0, 0),
            4 => (Operation::Discard, offset, len),
            WRITE_ZEROES => (Operation::WriteZeroes { fua, may_unmap }, offset, len),
            BLOCK_STATUS if self.tells_status => {
                let end = offset.checked_add(len.into())?;
                let whole = (offset | u64::from(len)).is_multiple_of(ledger::BLOCK.into());
                if len == 0 || end > ledger::SIZE || !whole {
                    return None;
                }
                let most = if flags & REQ_ONE != 0 { ledger::BLOCK } else { 4096 };
                (Operation::BlockStatus, offset, (ledger::SIZE - offset).min(most.into()) as u32)
            }
            _ => return None,
        };
        Some(Entry { operation, offset, len, digest })
    }
}
