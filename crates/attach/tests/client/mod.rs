//! A client of the NBD server that is driven message by message.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use tempfile::TempDir;
use tyche_attach::nbd::{Ending, NbdServer};
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::disk::MemoryDisk;

pub(crate) const NAME: &str = "disk one";
pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(crate) const OPT_SET_META_CONTEXT: u32 = 10;
pub(crate) const OPT_EXTENDED_HEADERS: u32 = 11;
pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_META_CONTEXT: u32 = 4;
pub(crate) const ERR_UNSUP: u32 = 0x8000_0001;
pub(crate) const ERR_POLICY: u32 = 0x8000_0002;
pub(crate) const ERR_INVALID: u32 = 0x8000_0003;
pub(crate) const ERR_UNKNOWN: u32 = 0x8000_0006;
pub(crate) const ERR_TOO_BIG: u32 = 0x8000_0009;
pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;
pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DF: u16 = 4;
pub(crate) const REQ_ONE: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;

pub(crate) struct Served {
    pub(crate) server: NbdServer,
    pub(crate) disk: MemoryDisk,
    pub(crate) path: PathBuf,
    _dir: TempDir,
}

pub(crate) fn serve(disk: MemoryDisk) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = NbdServer::start(&path, NAME, &disk.dyn_disk()).unwrap();
    Served { server, disk, path, _dir: dir }
}

impl Served {
    pub(crate) fn connect(&self) -> Client {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }

    /// A client in transmission.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.connect();
        client.greet(3);
        client.go(NAME, OPT_GO);
        let mut replies = client.replies(OPT_GO);
        assert_eq!(replies.pop().unwrap(), (REP_ACK, vec![]));
        client
    }

    pub(crate) fn wait_ended(&self, ending: Ending, count: u64) {
        wait_until(&format!("{count} ended: {ending}"), || self.server.ended(ending) == count);
    }
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
}

impl Client {
    pub(crate) fn greet(&mut self, flags: u32) {
        let mut greeting = [0; 18];
        self.stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        self.send(&flags.to_be_bytes());
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn receive<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(&bytes);
    }

    pub(crate) fn go(&mut self, name: &str, option: u32) {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend([0, 2, 0, 1, 0, 3]);
        self.option(option, &data);
    }

    /// The replies to an option, up to the final one.
    pub(crate) fn replies(&mut self, option: u32) -> Vec<(u32, Vec<u8>)> {
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.receive::<8>(), 0x0003_e889_0455_65a9_u64.to_be_bytes());
            assert_eq!(self.receive(), option.to_be_bytes());
            let kind = u32::from_be_bytes(self.receive());
            let mut data = vec![0; u32::from_be_bytes(self.receive()) as usize];
            self.stream.read_exact(&mut data).unwrap();
            replies.push((kind, data));
            if !matches!(kind, REP_SERVER | REP_INFO | REP_META_CONTEXT) {
                return replies;
            }
        }
    }

    /// The kind of the single reply to an option.
    pub(crate) fn reply(&mut self, option: u32) -> u32 {
        let mut replies = self.replies(option);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.pop().unwrap().0
    }

    pub(crate) fn request(&mut self, flags: u16, command: u16, cookie: u64, offset: u64, len: u32) {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        self.send(&bytes);
    }

    /// Cookie and error number of the next reply.
    pub(crate) fn result(&mut self) -> (u64, u32) {
        assert_eq!(self.receive(), 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(self.receive());
        (u64::from_be_bytes(self.receive()), error)
    }

    /// Error number of a request without data.
    pub(crate) fn call(&mut self, flags: u16, command: u16, offset: u64, len: u32) -> u32 {
        let cookie = offset ^ 0xa5a5_0000_0000_5a5a;
        self.request(flags, command, cookie, offset, len);
        let (answered, error) = self.result();
        assert_eq!(answered, cookie);
        error
    }

    pub(crate) fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.request(flags, WRITE, 7, offset, data.len() as u32);
        self.send(data);
        self.result().1
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        match self.call(0, READ, offset, len) {
            0 => {
                let mut data = vec![0; len as usize];
                self.stream.read_exact(&mut data).unwrap();
                Ok(data)
            }
            error => Err(error),
        }
    }

    /// Waits for the server to hang up; any data are an error.
    pub(crate) fn expect_end(&mut self) {
        match self.stream.read(&mut [0; 64]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("the server did not hang up: {other:?}"),
        }
    }
}

/// A client that has agreed on structured replies, and on the status of ranges.
pub(crate) fn structured(served: &Served) -> Client {
    let mut client = served.connect();
    client.greet(3);
    client.option(OPT_STRUCTURED_REPLY, &[]);
    assert_eq!(client.reply(OPT_STRUCTURED_REPLY), REP_ACK);
    client.contexts(OPT_SET_META_CONTEXT, &["base:allocation"]);
    let selected = [&[0, 0, 0, 1][..], b"base:allocation"].concat();
    let expected = [(REP_META_CONTEXT, selected), (REP_ACK, vec![])];
    assert_eq!(client.replies(OPT_SET_META_CONTEXT), expected);
    client.go(NAME, OPT_GO);
    let replies = client.replies(OPT_GO);
    assert_eq!(replies[0].1[10..], [0x01, 0xed], "SEND_DF");
    client
}

impl Client {
    pub(crate) fn contexts(&mut self, option: u32, queries: &[&str]) {
        let text = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
        let mut data = text(NAME);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| data.extend(text(query)));
        self.option(option, &data);
    }

    /// The kind of the chunk that is the reply to that request, and what is in it.
    pub(crate) fn chunk(&mut self, cookie: u64) -> (u16, Vec<u8>) {
        assert_eq!(self.receive(), [0x66, 0x8e, 0x33, 0xef, 0, 1], "one chunk, the last");
        let kind = u16::from_be_bytes(self.receive());
        assert_eq!(u64::from_be_bytes(self.receive()), cookie);
        let mut data = vec![0; u32::from_be_bytes(self.receive()) as usize];
        self.stream.read_exact(&mut data).unwrap();
        (kind, data)
    }

    /// Length and flags of the parts of a range, or an error.
    pub(crate) fn status(
        &mut self,
        flags: u16,
        offset: u64,
        len: u32,
    ) -> Result<Vec<(u32, u32)>, u8> {
        self.request(flags, BLOCK_STATUS, 9, offset, len);
        let (kind, data) = self.chunk(9);
        if kind == 0x8001 {
            return Err(data[3]);
        }
        assert_eq!((kind, &data[..4]), (5, &[0, 0, 0, 1][..]));
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        Ok(data[4..].chunks(8).map(|it| (number(&it[..4]), number(&it[4..]))).collect())
    }
}
