//! A tiny protocol: a frame carries a sector, and is repeated until its answer comes. At 14 of a
//! frame is the operation, with `DONE` in answers; at 16 the number of the sector.

#![allow(unreachable_pub, reason = "it is compiled into the test")]

use std::collections::BTreeMap;
use std::mem::take;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tyche_block::{Arena, Completion, Extent, Operation, Request};
use tyche_engine::{Composed, FrameSink, Frames, Protocol, Received, Service};
use tyche_link::Mac;
use tyche_store::Queue;
use tyche_time::Instant;

/// Bytes of a frame before its data.
pub const HEAD: usize = 24;
pub const SECTOR: usize = 512;
pub const SECTORS: u64 = 64;
pub const WRITE: u8 = 1;
const READ: u8 = 2;
const DONE: u8 = 4;

/// Operation, sector, data.
type Message = (u8, u64, Option<Extent>);
/// Messages to be sent, and those whose data the link still reads.
type Outbox = [Vec<Message>; 2];

fn send(outbox: &mut Outbox) -> Composing<'_> {
    outbox[1] = take(&mut outbox[0]);
    Composing(&outbox[1], None)
}

/// The messages that follow, and the one that is composed.
struct Composing<'d>(&'d [Message], Option<&'d Message>);

impl<'d> Frames<'d> for Composing<'d> {
    fn compose(&mut self, _: Instant) -> Option<Composed> {
        self.1 = self.0.split_off_first();
        self.1.map(|_| Composed::default())
    }

    fn write(&mut self, source: Mac, sink: impl FrameSink<'d>) {
        let (operation, sector, data) = self.1.unwrap();
        let mut head = [0; HEAD];
        head[..6].fill(0xff);
        head[6..12].copy_from_slice(&source);
        head[12..15].copy_from_slice(&[0x88, 0xb5, *operation]);
        head[16..24].copy_from_slice(&sector.to_le_bytes());
        sink.gather(&head, data.as_deref().as_slice(), &[]);
    }
}

fn parse(frame: &Received<'_>) -> (u8, u64) {
    (frame.head[14], u64::from_le_bytes(frame.head[16..24].try_into().unwrap()))
}

/// Executes what it is asked for, until nobody has asked for a while.
pub struct Server {
    pub queue: Box<dyn Queue>,
    pub arena: Arena,
    pub over_at: Option<Instant>,
    pub done: Vec<Completion>,
    pub outbox: Outbox,
}

impl Protocol for Server {
    fn handle_frame(&mut self, now: Instant, _: usize, frame: &Received<'_>) {
        self.over_at = Some(now + Duration::from_millis(300));
        let (code, sector) = parse(frame);
        let mut buffer = self.arena.alloc(SECTOR).unwrap();
        buffer[..frame.payload.len()].copy_from_slice(frame.payload);
        let write = Operation::Write { fua: false };
        let operation = if code == WRITE { write } else { Operation::Read };
        let (offset, len, buffer) = (sector * SECTOR as u64, SECTOR as u32, Some(buffer));
        let request = Request { operation, offset, len, buffer };
        self.queue.submit(sector << 8 | u64::from(code), request);
    }

    fn handle_timeout(&mut self, _: Instant) {
        self.over_at = None;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.over_at
    }

    fn frames(&mut self, _: usize) -> impl Frames<'_> {
        send(&mut self.outbox)
    }
}

impl Service for Server {
    fn protocol(&mut self) -> &mut impl Protocol {
        self
    }

    fn work(&mut self, _: Instant) -> bool {
        self.queue.kick().unwrap();
        self.queue.reap(&mut self.done);
        self.outbox[0].extend(self.done.drain(..).map(|done| {
            let (code, sector) = (done.token as u8, done.token >> 8);
            (code | DONE, sector, done.buffer.filter(|_| code == READ))
        }));
        !self.outbox[0].is_empty()
    }

    fn is_over(&self) -> bool {
        self.over_at.is_none()
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queue.wait_fd().into_iter()
    }
}

/// Writes all sectors, then reads them; asks again every 20 ms.
pub struct Client {
    pub arena: Arena,
    /// The operation, and what was answered to it, by sector.
    pub code: u8,
    pub answers: BTreeMap<u64, Vec<u8>>,
    pub ask_at: Instant,
    pub outbox: Outbox,
}

impl Protocol for Client {
    fn handle_frame(&mut self, now: Instant, _: usize, frame: &Received<'_>) {
        let (code, sector) = parse(frame);
        if code == self.code | DONE {
            self.answers.insert(sector, frame.payload.to_vec());
        }
        if self.code == WRITE && self.answers.len() as u64 == SECTORS {
            (self.code, self.ask_at) = (READ, now);
            self.answers.clear();
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ask_at = now + Duration::from_millis(20);
        for sector in (0..SECTORS).filter(|sector| !self.answers.contains_key(sector)) {
            let mut data = self.arena.alloc(SECTOR).unwrap();
            data.fill(sector as u8 + 1);
            let data = Some(data).filter(|_| self.code == WRITE);
            self.outbox[0].push((self.code, sector, data));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.ask_at)
    }

    fn frames(&mut self, _: usize) -> impl Frames<'_> {
        send(&mut self.outbox)
    }
}

impl Service for Client {
    fn protocol(&mut self) -> &mut impl Protocol {
        self
    }

    fn is_over(&self) -> bool {
        self.code == READ && self.answers.len() as u64 == SECTORS
    }
}
