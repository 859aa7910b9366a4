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
//!  8  note        number u8, pages u8            the peer says where to place data
//!  9  place       number u8, page u8             we send data that have a place
//!  10 placed      region u16, bytes u32          the peer says that it has placed a frame's data
//!  11 expose      number u8; 0: retract          we say where to place data
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tyche_block::{Arena, PAGE};
use tyche_link::connections::{Broken, Connection};
use tyche_link::rdma::placed::DATA_LEN;
use tyche_link::rdma::window::{
    HEAD_AT, INTERRUPTS_MAX, INVITATION, NOTE, PLACED, PLACED_HEAD, PeerRegion, PeerWindow,
    RECORD_HEAD, REGION, RING_AT, UNIT, UNUSED, units_of, window_len,
};
use tyche_link::rdma::{
    Exposures, FRAME_LEN_MAX, QueueKind, QueuePair, REGIONS_MAX, RdmaConnection, Region, Write,
};
use tyche_link::{HEAD, Mac, Placement, RxBatch, TxVectors};
use tyche_testkit::corpus::Bytes;

/// Units of our ring: the fewest, or so many that announcements are what runs out.
const UNITS: [u32; 2] = [64, 2048];
/// The longest frame to us.
const LEN_MAX: usize = 64 * UNIT / 4 - RECORD_HEAD;
/// Units of the peer's ring, unless its invitation is good.
const THEIRS: PeerWindow = PeerWindow { key: 1, address: 1 << 40, units: 64, takes_notes: true };
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
    /// Writes into regions of the peer, and frames received whose data the peer has placed.
    pub(crate) placed: [usize; 2],
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
    /// What we expose.
    memory: Arena,
}

impl Stage {
    fn new() -> Self {
        Self {
            card: Card {
                window: Region::anonymous(window_len(UNITS[1])).unwrap(),
                staging: Region::anonymous(window_len(PeerWindow::UNITS_MAX)).unwrap(),
                data: Region::anonymous(DATA_LEN).unwrap(),
                regions: Vec::new(),
                placed: 0,
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
            vectors: TxVectors::new(1, 2),
            memory: Arena::new(1),
            frame: (0..FRAME_LEN_MAX + HEAD).map(|n| n as u8).collect(),
        }
    }
}

/// Our card.
struct Card {
    window: Region,
    staging: Region,
    data: Region,
    /// The regions that the peer has told of, and writes into them.
    regions: Vec<PeerRegion>,
    placed: usize,
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
        self.regions.clear();
        self.placed = 0;
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
                let len = match word(at) {
                    UNUSED => 0,
                    NOTE => REGION,
                    len if len & PLACED != 0 => PLACED_HEAD + (len & !PLACED) as usize,
                    len => len as usize,
                };
                head = word(at + 4);
                at = if len == 0 { break } else { at + units_of(len) as usize * UNIT };
            }
            head
        };
        self.told += u64::from(head.wrapping_sub(self.told as u32));
    }

    /// The memory that a write is made from.
    fn source(&self, write: &Write) -> &Region {
        if write.region.is_some() { &self.data } else { &self.staging }
    }

    /// All writes end.
    fn end(&mut self) {
        for (write, bytes) in std::mem::take(&mut self.under_way) {
            let mut now = vec![0; bytes.len()];
            self.source(&write).read(write.from, &mut now);
            // A newer word may take the place of an older one.
            let is_word = write.region.is_none() && write.at < RING_AT;
            assert!(now == bytes || is_word, "{write:?} changed under way");
        }
        self.notified = self.to_notify;
    }
}

impl QueuePair for &mut Card {
    type Registration = ();

    fn stage_data(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn data(&self) -> &Region {
        &self.data
    }

    fn register(&mut self, _: &Arena, _: Option<&OwnedFd>) -> io::Result<((), u32, u64)> {
        Ok(((), 7, 1 << 30))
    }

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
        match &write.region {
            Some(region) => {
                assert!(self.is_hostile || self.regions.contains(region), "{write:?}");
                assert!((write.at + write.len) as u64 <= region.len, "{write:?}");
                assert_eq!(write.immediate, None);
                self.placed += 1;
            }
            None => {
                assert!(write.at + write.len <= window_len(self.peer.units), "{write:?}");
                assert_eq!(write.at, write.from);
            }
        }
        assert_eq!(write.number, self.last + 1);
        self.last = write.number;
        if write.notifies {
            self.to_notify = write.number;
        }
        if write.region.is_none() && write.at >= RING_AT {
            self.written += (write.len / UNIT) as u64;
        }
        let is_full = self.written - self.taken > u64::from(self.peer.units);
        assert!(self.is_hostile || !is_full, "{write:?} is on what was not taken out");
        if write.region.is_none() {
            self.hear(write);
        }
        let mut bytes = vec![0; write.len];
        self.source(write).read(write.from, &mut bytes);
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
    exposures: Arc<Exposures<()>>,
    /// What we expose.
    memory: &'a Arena,
    batch: &'a mut RxBatch,
    vectors: &'a mut TxVectors,
    /// The longest frame to send.
    frame: &'a [u8],
    /// Units of our ring that the peer has written.
    tail: u64,
    /// Its announcements, that it has heard no head of.
    announcements: VecDeque<u64>,
    /// Frames in there, with the bytes of their data if these are placed.
    frames: VecDeque<(Vec<u8>, Option<usize>)>,
    outcome: Outcome,
}

impl World<'_> {
    /// Does the next thing; `None` if there is none.
    fn step(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        match bytes.u8()? % 12 {
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
            3 => drop(self.record(HEAD + usize::from(bytes.u16()?) % (LEN_MAX - HEAD + 1), None)),
            4 => self.receive(),
            5 => self.send(HEAD + usize::from(bytes.u16()?) % FRAME_LEN_MAX),
            6 => self.connection.pair_mut().end(),
            7 => {
                self.connection.may_sleep();
                assert!(self.connection.ready().is_ok());
            }
            8 => {
                let (number, pages) = (bytes.u8()?, bytes.u8()?);
                self.note(number.into(), pages.into());
            }
            9 => {
                let (number, page) = (bytes.u8()?, bytes.u8()?);
                self.place(number.into(), page.into());
            }
            10 => {
                let (region, placed) = (bytes.u16()?, u32::from_be_bytes(bytes.array()?));
                self.record(HEAD, Some((region, placed)));
            }
            _ => match bytes.u8()?.into() {
                0 => (0..=u8::MAX).for_each(|number| self.exposures.retract(PEER, number.into())),
                number => drop(self.exposures.expose(PEER, number, self.memory.clone())),
            },
        }
        Some(())
    }

    /// The peer takes out of its ring what was written there, so many units at most.
    fn report(&mut self, units: u64) {
        let card = self.connection.pair_mut();
        card.taken += units.min(card.written.saturating_sub(card.taken));
        card.window.word(HEAD_AT).store((card.taken as u32).to_le(), Ordering::Release);
    }

    /// The peer tells us of a region.
    fn note(&mut self, number: u16, pages: usize) {
        let len = (pages * PAGE) as u64;
        let region = PeerRegion { number, key: pages as u32, address: 1 << 20, len };
        self.connection.pair_mut().regions.push(region);
        self.write_record(NOTE, &region.encode());
    }

    /// We send data that belong at a page of a region of the peer.
    fn place(&mut self, number: u16, page: u32) {
        let mut batch = self.vectors.batch();
        let data = [&self.frame[..PAGE], &self.frame[1..=PAGE]];
        batch.push(&self.frame[..HEAD], data, &self.frame[..24]);
        batch.place(number, [page, page + 1].map(|page| page * PAGE as u32).into_iter());
        let sent = self.connection.send(batch.frames());
        self.note_sent(sent);
    }

    /// The peer writes a frame of that length into our ring, and announces it; false if it has no
    /// room. `placed`: it has placed so many bytes of its data in a region of ours.
    fn record(&mut self, len: usize, placed: Option<(u16, u32)>) -> bool {
        let mut frame: Vec<u8> = (0..len).map(|n| (n as u64 + self.tail) as u8).collect();
        let is_written = match placed {
            None => self.write_record(len as u32, &frame),
            Some((region, bytes)) => {
                let head = [bytes, region.into()].map(u32::to_le_bytes);
                let record = [head.as_flattened(), &frame].concat();
                self.write_record(PLACED | len as u32, &record)
            }
        };
        if is_written {
            frame[6..12].copy_from_slice(&PEER);
            self.frames.push_back((frame, placed.map(|it| it.1 as usize)));
        }
        is_written
    }

    /// The peer writes a record; false if it has no room.
    fn write_record(&mut self, word: u32, record: &[u8]) -> bool {
        let card = self.connection.pair_mut();
        let (units, ring) = (units_of(record.len()), u64::from(card.units));
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
        card.window.write(place(at), head(word).as_flattened());
        card.window.write(place(at) + RECORD_HEAD, record);
        self.tail += unused + units;
        self.announcements.push_back(self.tail);
        card.announced.push_back(self.tail as u32);
        true
    }

    fn receive(&mut self) {
        self.batch.clear();
        let received = self.connection.receive(self.batch);
        let is_hostile = self.connection.pair_mut().is_hostile;
        for (index, frame) in self.batch.iter().enumerate() {
            assert_eq!(frame.head[6..12], PEER);
            assert!(frame.head.len() + frame.payload.len() <= LEN_MAX);
            let placed = self.batch.placed(index);
            self.outcome.placed[1] += usize::from(placed > 0);
            if !is_hostile {
                let came = ([frame.head, frame.payload].concat(), placed);
                let is_it = |sent: &(Vec<u8>, Option<usize>)| {
                    (&sent.0, sent.1.unwrap_or(0)) == (&came.0, came.1)
                };
                // Those whose data were placed where we have no region are dropped.
                let dropped = self.frames.iter().take_while(|it| it.1.is_some() && !is_it(it));
                let dropped = dropped.count();
                self.frames.drain(..dropped);
                assert!(self.frames.pop_front().is_some_and(|sent| is_it(&sent)));
            }
        }
        self.outcome.received += self.batch.len();
        self.settle(received);
    }

    fn send(&mut self, len: usize) {
        let mut batch = self.vectors.batch();
        batch.push_whole(&self.frame[..len], HEAD);
        let sent = self.connection.send(batch.frames());
        self.note_sent(sent);
    }

    fn note_sent(&mut self, sent: io::Result<usize>) {
        match sent {
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
        let is_done = |it: &mut Self| {
            !it.connection.has_backlog() && it.connection.pair_mut().announced.is_empty()
        };
        while !is_done(self) {
            self.receive();
            self.connection.pair_mut().end();
        }
        assert!(self.frames.iter().all(|it| it.1.is_some()), "{} do not come", self.frames.len());
        self.connection.pair_mut().end();
        self.receive();
        assert!(self.record(HEAD, None), "the peer can send nothing");
        // Notes of our regions go first, and may fill the peer's ring again and again.
        let mut waited = 1;
        for _ in 0..REGIONS_MAX {
            self.connection.pair_mut().end();
            self.report(u64::MAX);
            waited = self.outcome.waited;
            self.send(HEAD);
            waited = self.outcome.waited - waited;
            if waited == 0 {
                break;
            }
        }
        assert_eq!(waited, 0, "nothing can be sent");
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
    STAGE.with_borrow_mut(|Stage { card, batch, vectors, frame, memory }| {
        card.reset(peer, units);
        let exposures = Arc::new(Exposures::new(false));
        let mut world = World {
            connection: RdmaConnection::new(card, (units, kind), PEER, Arc::clone(&exposures)),
            exposures,
            memory,
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
        world.outcome.placed[0] = world.connection.pair_mut().placed;
        world.outcome
    })
}
