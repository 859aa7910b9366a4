//! A peer with the key to our window.
//!
//! An input is the peer's invitation, a byte for our queue (1: base, 2: a long ring), and then what
//! the peer does and what we do meanwhile, a byte for each and its fields:
//!
//! ```text
//!  0  write       place u16, length u8, bytes    the peer writes anywhere in our window
//!  1  announce    tail u32                       the peer says how far our ring is filled
//!  2  report      units u16                      the peer takes so much more out of its own
//!  3  record      length u16                     the peer writes a frame as it should
//!  4  receive
//!  5  send        length u16
//!  6  end                                        the card has done all writes
//!  7  sleep
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;

use tyche_link::connections::{Broken, Connection};
use tyche_link::rdma::window::{
    HEAD_AT, INTERRUPTS_MAX, INVITATION, PeerWindow, RECORD_HEAD, RING_AT, UNIT, UNUSED, units_of,
    window_len,
};
use tyche_link::rdma::{FRAME_LEN_MAX, QueueKind, QueuePair, RdmaConnection, Region, Write};
use tyche_link::{HEAD, Mac, RxBatch, TxVectors};
use tyche_testkit::corpus::Bytes;

/// Units of our ring: the fewest, or so many that announcements are what runs out.
const UNITS: [u32; 2] = [64, 2048];
/// The longest frame to us.
const LEN_MAX: usize = 64 * UNIT / 4 - RECORD_HEAD;
/// Units of the peer's ring, unless its invitation is good.
const THEIRS: PeerWindow = PeerWindow { key: 1, address: 1 << 40, units: 64 };
/// The address given to what the peer sends.
const PEER: Mac = [2, 0, 0, 0, 0, 1];
/// The most writes that have begun, and are not known to have ended.
const WRITES_MAX: usize = 128;
/// Frames of a batch.
const BATCH: usize = 16;

/// The outcome of an input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Frames received.
    pub(crate) received: usize,
    /// Frames sent.
    pub(crate) sent: usize,
    /// Frames that found no room.
    pub(crate) waited: usize,
    /// Whether the connection has ended.
    pub(crate) is_broken: bool,
    /// Whether the peer's invitation was good.
    pub(crate) is_invited: bool,
}

thread_local! {
    /// Used again: to make them takes longer than what is done with them.
    static STAGE: RefCell<Stage> = RefCell::new(Stage::new());
}

/// Card and buffers of all inputs.
struct Stage {
    card: Card,
    batch: RxBatch,
    vectors: TxVectors,
    frame: Vec<u8>,
}

impl Stage {
    fn new() -> Self {
        Self {
            card: Card {
                window: Region::anonymous(window_len(UNITS[1])).unwrap(),
                staging: Region::anonymous(window_len(PeerWindow::UNITS_MAX)).unwrap(),
                peer: THEIRS,
                announced: VecDeque::new(),
                under_way: Vec::new(),
                last: 0,
                to_notify: 0,
                notified: 0,
                written: 0,
                taken: 0,
                units: 0,
                told: 0,
                is_hostile: false,
            },
            batch: RxBatch::new(BATCH, LEN_MAX - HEAD),
            vectors: TxVectors::new(1, 1),
            frame: (0..FRAME_LEN_MAX + HEAD).map(|n| n as u8).collect(),
        }
    }
}

/// Our card.
struct Card {
    window: Region,
    staging: Region,
    peer: PeerWindow,
    announced: VecDeque<u32>,
    /// Writes that the card may still read the memory of, with what that had when they began.
    under_way: Vec<(Write, Vec<u8>)>,
    /// The last write, and the last one that has to be notified.
    last: u64,
    to_notify: u64,
    notified: u64,
    /// Units of the peer's ring that were written, and that it has taken out, as it says.
    written: u64,
    taken: u64,
    /// Units of our ring, and of those taken out, as we say.
    units: u32,
    told: u64,
    /// Whether the peer has done anything that it should not.
    is_hostile: bool,
}

impl Card {
    /// As new, with a window of zeroes.
    fn reset(&mut self, peer: PeerWindow, units: u32) {
        self.window.write(0, &[0; window_len(UNITS[1])][..window_len(units)]);
        self.announced.clear();
        self.under_way.clear();
        (self.peer, self.is_hostile) = (peer, false);
        (self.last, self.to_notify, self.notified) = (0, 0, 0);
        (self.written, self.taken) = (0, 0);
        (self.units, self.told) = (units, 0);
    }

    /// Takes note of the reports in a write.
    fn hear(&mut self, write: &Write) {
        let word = |at| {
            let mut word = [0; 4];
            self.staging.read(at, &mut word);
            u32::from_le_bytes(word)
        };
        let head = if write.at == HEAD_AT {
            word(HEAD_AT)
        } else if write.at < RING_AT {
            return;
        } else {
            let (mut at, mut head) = (write.at, 0);
            while at < write.at + write.len {
                let len = word(at);
                head = word(at + 4);
                at =
                    if len == UNUSED { break } else { at + units_of(len as usize) as usize * UNIT };
            }
            head
        };
        self.told += u64::from(head.wrapping_sub(self.told as u32));
    }

    /// All writes end.
    fn end(&mut self) {
        for (write, bytes) in self.under_way.drain(..) {
            let mut now = vec![0; bytes.len()];
            self.staging.read(write.at, &mut now);
            // A newer word may take the place of an older one.
            assert!(now == bytes || write.at < RING_AT, "{write:?} changed under way");
        }
        self.notified = self.to_notify;
    }
}

impl QueuePair for &mut Card {
    fn window(&self) -> &Region {
        &self.window
    }

    fn staging(&self) -> &Region {
        &self.staging
    }

    fn peer(&self) -> Option<PeerWindow> {
        Some(self.peer)
    }

    fn post(&mut self, write: &Write) -> io::Result<()> {
        assert!(write.at + write.len <= window_len(self.peer.units), "{write:?}");
        assert_eq!(write.number, self.last + 1);
        self.last = write.number;
        if write.notifies {
            self.to_notify = write.number;
        }
        if write.at >= RING_AT {
            self.written += (write.len / UNIT) as u64;
        }
        let is_full = self.written - self.taken > u64::from(self.peer.units);
        assert!(self.is_hostile || !is_full, "{write:?} is on what was not taken out");
        self.hear(write);
        let mut bytes = vec![0; write.len];
        self.staging.read(write.at, &mut bytes);
        self.under_way.push((*write, bytes));
        assert!((self.last - self.notified) as usize <= WRITES_MAX, "the table is full");
        Ok(())
    }

    fn notified(&mut self) -> io::Result<u64> {
        Ok(self.notified)
    }

    fn arrived(&mut self) -> io::Result<Option<u32>> {
        Ok(self.announced.pop_front())
    }

    fn arm(&self) -> bool {
        !self.announced.is_empty()
    }

    fn interrupts(&self) -> u64 {
        0
    }

    fn serve(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection, and what its peer has done as it should.
struct World<'a> {
    connection: RdmaConnection<&'a mut Card>,
    batch: &'a mut RxBatch,
    vectors: &'a mut TxVectors,
    /// The longest frame to send.
    frame: &'a [u8],
    /// Units of our ring that the peer has written.
    tail: u64,
    /// Its announcements, that it has heard no head of.
    announcements: VecDeque<u64>,
    /// Frames in there.
    frames: VecDeque<Vec<u8>>,
    outcome: Outcome,
}

impl World<'_> {
    /// Does the next thing; `None` if there is none.
    fn step(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        match bytes.u8()? % 8 {
            0 => {
                let (place, len) = (bytes.u16()?, bytes.u8()?);
                let written = bytes.take(len.into())?;
                let card = self.connection.pair_mut();
                card.is_hostile = true;
                let place = usize::from(place) % (window_len(card.units) - written.len());
                card.window.write(place, written);
            }
            1 => {
                let tail = u32::from_be_bytes(bytes.array()?);
                let card = self.connection.pair_mut();
                card.is_hostile = true;
                card.announced.push_back(tail);
            }
            2 => self.report(bytes.u16()?.into()),
            3 => drop(self.record(HEAD + usize::from(bytes.u16()?) % (LEN_MAX - HEAD + 1))),
            4 => self.receive(),
            5 => self.send(HEAD + usize::from(bytes.u16()?) % FRAME_LEN_MAX),
            6 => self.connection.pair_mut().end(),
            _ => {
                self.connection.may_sleep();
                assert!(self.connection.ready().is_ok());
            }
        }
        Some(())
    }

    /// The peer takes out of its ring what was written there, so many units at most.
    fn report(&mut self, units: u64) {
        let card = self.connection.pair_mut();
        card.taken += units.min(card.written.saturating_sub(card.taken));
        card.window.word(HEAD_AT).store((card.taken as u32).to_le(), Ordering::Release);
    }

    /// The peer writes a frame of that length into our ring, and announces it; false if it has no
    /// room.
    fn record(&mut self, len: usize) -> bool {
        let card = self.connection.pair_mut();
        let (units, ring) = (units_of(len), u64::from(card.units));
        let at = self.tail % ring;
        let unused = if at + units > ring { ring - at } else { 0 };
        let heard = self.announcements.iter().take_while(|end| **end <= card.told).count();
        self.announcements.drain(..heard);
        let is_full = self.tail + unused + units > card.told + ring;
        if is_full || self.announcements.len() == INTERRUPTS_MAX {
            return false;
        }
        let place = |unit: u64| RING_AT + unit as usize * UNIT;
        let head = |len: u32| [len, card.taken as u32].map(u32::to_le_bytes);
        if unused > 0 {
            card.window.write(place(at), head(UNUSED).as_flattened());
        }
        let at = (self.tail + unused) % ring;
        let mut frame: Vec<u8> = (0..len).map(|n| (n as u64 + self.tail) as u8).collect();
        card.window.write(place(at), head(len as u32).as_flattened());
        card.window.write(place(at) + RECORD_HEAD, &frame);
        frame[6..12].copy_from_slice(&PEER);
        self.tail += unused + units;
        self.frames.push_back(frame);
        self.announcements.push_back(self.tail);
        card.announced.push_back(self.tail as u32);
        true
    }

    fn receive(&mut self) {
        self.batch.clear();
        let received = self.connection.receive(self.batch);
        let is_hostile = self.connection.pair_mut().is_hostile;
        for frame in self.batch.iter() {
            assert_eq!(frame.head[6..12], PEER);
            assert!(frame.head.len() + frame.payload.len() <= LEN_MAX);
            if !is_hostile {
                let sent = self.frames.pop_front().expect("it was sent");
                assert!([frame.head, frame.payload].concat() == sent);
            }
        }
        self.outcome.received += self.batch.len();
        self.settle(received);
    }

    fn send(&mut self, len: usize) {
        let mut batch = self.vectors.batch();
        batch.push_whole(&self.frame[..len], HEAD);
        match self.connection.send(batch.frames()) {
            Ok(taken) => {
                self.outcome.sent += taken;
                self.outcome.waited += 1 - taken;
            }
            Err(error) => self.settle(Err(error.into())),
        }
    }

    /// A connection ends only because of what no peer does.
    fn settle(&mut self, result: Result<(), Broken>) {
        let Err(broken) = result else { return };
        assert!(self.connection.pair_mut().is_hostile, "{broken:?}");
        assert!(matches!(broken, Broken::Malformed), "{broken:?}");
        self.outcome.is_broken = true;
    }

    /// All that was sent comes, and more can be sent, both ways, if the peer has done nothing else.
    fn end(&mut self) {
        self.connection.pair_mut().end();
        if self.connection.pair_mut().is_hostile {
            return;
        }
        while !self.frames.is_empty() {
            let before = self.frames.len();
            self.receive();
            assert!(self.frames.len() < before, "{before} frames do not come");
        }
        self.connection.pair_mut().end();
        self.receive();
        assert!(self.record(HEAD), "the peer can send nothing");
        self.connection.pair_mut().end();
        self.report(u64::MAX);
        let waited = self.outcome.waited;
        self.send(HEAD);
        assert_eq!(self.outcome.waited, waited, "nothing can be sent");
    }
}

/// Has a connection endure the input. Panics where something is wrong.
pub(crate) fn check(input: &[u8]) -> Outcome {
    let mut bytes = Bytes(input);
    let told = bytes.take(INVITATION).and_then(PeerWindow::decode);
    if let Some(told) = told {
        assert_eq!(PeerWindow::decode(&told.encode()), Some(told));
    }
    let peer = told.unwrap_or(THEIRS);
    let choice = bytes.u8().unwrap_or_default();
    let kind = if choice & 1 == 0 { QueueKind::Eliminate } else { QueueKind::Base };
    let units = UNITS[usize::from(choice >> 1 & 1)];
    STAGE.with_borrow_mut(|Stage { card, batch, vectors, frame }| {
        card.reset(peer, units);
        let mut world = World {
            connection: RdmaConnection::new(card, (units, kind), PEER),
            batch,
            vectors,
            frame,
            tail: 0,
            announcements: VecDeque::new(),
            frames: VecDeque::new(),
            outcome: Outcome { is_invited: told.is_some(), ..Outcome::default() },
        };
        while !world.outcome.is_broken && world.step(&mut bytes).is_some() {}
        world.end();
        world.outcome
    })
}
