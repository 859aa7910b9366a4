//! One connection, of either end: frames out of and into the rings of a queue pair.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tyche_counters::counters;

use super::exposures::{Exposures, REGIONS_MAX, Told};
use super::pair::QueuePair;
use super::placed::Placed;
use super::ring::{Incoming, Outgoing, Pushed, QueueKind};
use super::window::{HEAD_AT, INTERRUPTS_MAX, PeerRegion};
use crate::connections::{Broken, Connection, Readiness};
use crate::{Mac, RxBatch, TxFrame};

/// Bytes that are staged when they are written and announced, although there are more: the card
/// sends them, and the peer takes them out, while we stage the others.
const STAGED_MAX: usize = 16 << 10;

/// The calls between two looks at the descriptors of a connection whose user does not sleep.
const CALLS_MAX: u32 = 256;

counters! {
    /// Counters of a connection over RDMA.
    pub struct RdmaCounts as "rdma_" {
        /// Writes into the windows of peers.
        writes: Counter in Events,
        /// Writes that told a peer how far its ring is filled, and interrupted it if it slept.
        announcements: Counter in Events,
        /// Announcements of peers that interrupted this end: it slept, or was about to.
        interrupts: Counter in Events,
        /// Frames whose data were placed where they belong in memory of the peer.
        placed: Counter in Frames,
        /// Frames that found no room: the peer had taken too few out, or too few writes were known
        /// to have ended.
        waited: Counter in Frames,
    }
}

/// A connection over a queue pair.
///
/// The peer has the key to the window, and may write anything there, and announce anything, at any
/// time.
pub struct RdmaConnection<P: QueuePair> {
    /// Our regions that the peer was told of. Their permissions end before the pair does.
    told: Told<P::Registration>,
    pair: P,
    /// The source address given to the peer's frames.
    mac: Mac,
    kind: QueueKind,
    incoming: Incoming,
    /// `None` before the peer's window is known.
    outgoing: Option<Outgoing>,
    /// Changes to our regions that the peer has to be told of.
    notes: VecDeque<PeerRegion>,
    /// The peer's regions, by their numbers.
    regions: BTreeMap<u16, PeerRegion>,
    /// Whether its user has slept, or was about to, since its descriptors were served.
    has_slept: Cell<bool>,
    /// Calls since then.
    calls: u32,
    /// Frames whose data were placed, and frames that found no room.
    placed: u64,
    waited: u64,
}

impl<P: QueuePair> RdmaConnection<P> {
    /// The connection of a queue pair whose window has a ring of so many units. `exposures`: what
    /// the connections of the link have their peers write to.
    pub fn new(
        pair: P,
        (units, kind): (u32, QueueKind),
        mac: Mac,
        exposures: Arc<Exposures<P::Registration>>,
    ) -> Self {
        Self {
            told: Told::new(exposures, mac),
            pair,
            mac,
            kind,
            incoming: Incoming::new(units, kind),
            outgoing: None,
            notes: VecDeque::new(),
            regions: BTreeMap::new(),
            has_slept: Cell::new(true),
            calls: 0,
            placed: 0,
            waited: 0,
        }
    }

    /// The queue pair.
    pub fn pair_mut(&mut self) -> &mut P {
        &mut self.pair
    }

    /// The rings and the pair, once the peer's window is known.
    fn parts(&mut self) -> Option<(&mut Outgoing, &mut Incoming, &mut P)> {
        if self.outgoing.is_none() {
            self.outgoing = self.pair.peer().map(|peer| Outgoing::new(peer.units, self.kind));
        }
        Some((self.outgoing.as_mut()?, &mut self.incoming, &mut self.pair))
    }

    /// The region of the peer in which a frame's data may be placed.
    fn region(&self, frame: &TxFrame<'_>) -> Option<PeerRegion> {
        let region = self.regions.get(&frame.region()?)?;
        Placed::fits(frame, region).then_some(*region)
    }

    /// Stages a frame. If there is no room, it looks what the peer has reported, and which writes
    /// have ended.
    fn push(&mut self, frame: &TxFrame<'_>) -> io::Result<Pushed> {
        let region = if self.regions.is_empty() { None } else { self.region(frame) };
        let pieces = region.map_or(0, |_| frame.places().len());
        let Some((outgoing, incoming, pair)) = self.parts() else { return Ok(Pushed::Full) };
        for has_looked in [false, true] {
            if has_looked {
                outgoing
                    .reported(u32::from_le(pair.window().word(HEAD_AT).load(Ordering::Acquire)));
                outgoing.ended(pair.notified()?);
            }
            if outgoing.may_write(pieces) {
                let (staging, head) = (pair.staging(), incoming.head());
                let pushed = match region {
                    None => outgoing.push(staging, frame, head),
                    Some(region) => {
                        outgoing.push_placed((staging, pair.data()), frame, region, head)
                    }
                };
                match pushed {
                    Pushed::Full => {}
                    Pushed::TooLong => return Ok(Pushed::TooLong),
                    Pushed::Staged => {
                        incoming.told();
                        self.placed += u64::from(region.is_some());
                        return Ok(Pushed::Staged);
                    }
                }
            }
        }
        self.waited += 1;
        Ok(Pushed::Full)
    }

    /// Begins to write what is staged, and announces it.
    fn write(&mut self) -> io::Result<()> {
        let Some((outgoing, _, pair)) = self.parts() else { return Ok(()) };
        while let Some(write) = outgoing.write() {
            pair.post(&write)?;
        }
        Ok(())
    }

    /// Tells the peer of our regions, if it understands that: before the frames of their channels.
    fn tell(&mut self) -> io::Result<()> {
        let Self { told, pair, notes, .. } = self;
        if !pair.peer().is_some_and(|it| it.takes_notes) {
            return Ok(());
        }
        told.update(pair, |note| {
            // The last word counts.
            notes.retain(|it| it.number != note.number);
            notes.push_back(note);
        });
        if self.notes.is_empty() {
            return Ok(());
        }
        while let Some(note) = self.notes.front().copied() {
            let Some((outgoing, incoming, pair)) = self.parts() else { break };
            if !outgoing.push_note(pair.staging(), &note, incoming.head()) {
                outgoing.ended(pair.notified()?);
                break;
            }
            incoming.told();
            self.notes.pop_front();
        }
        // What is staged says how far frames were taken out: later reports must not overtake it.
        self.write()
    }

    /// Takes note of a region of the peer. Without memory to write from, nothing is placed there.
    fn hear(&mut self, note: PeerRegion) {
        self.regions.remove(&note.number);
        let has_room = note.len > 0 && self.regions.len() < REGIONS_MAX;
        if has_room && self.pair.stage_data().is_ok() {
            self.regions.insert(note.number, note);
        }
    }

    /// Tells the peer how far frames were taken out, if no frame has told it for long.
    fn report(&mut self) -> io::Result<()> {
        if !self.incoming.is_report_due() {
            return Ok(());
        }
        let Some((outgoing, incoming, pair)) = self.parts() else { return Ok(()) };
        if !outgoing.may_report() {
            outgoing.ended(pair.notified()?);
        }
        if outgoing.may_report() {
            pair.staging().write(HEAD_AT, &incoming.report().to_le_bytes());
            pair.post(&outgoing.write_head())?;
        }
        Ok(())
    }
}

impl<P: QueuePair> Connection for RdmaConnection<P> {
    type Counts = RdmaCounts;

    fn counts(&self) -> RdmaCounts {
        let (writes, announcements) = self.outgoing.as_ref().map_or((0, 0), Outgoing::counts);
        let (interrupts, placed, waited) = (self.pair.interrupts(), self.placed, self.waited);
        RdmaCounts { writes, announcements, interrupts, placed, waited }
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    /// While its user does not sleep, its descriptors say nothing of frames: they are served now
    /// and then, to see the end of the connection.
    fn ready(&mut self) -> io::Result<()> {
        self.calls += 1;
        if self.has_slept.take() || self.calls == CALLS_MAX {
            self.calls = 0;
            self.pair.serve()?;
        }
        Ok(())
    }

    /// Its descriptors are watched for the same as long as it lives.
    fn watch(&mut self, _: &Readiness, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn has_backlog(&self) -> bool {
        !self.incoming.is_empty()
    }

    fn may_sleep(&self) -> bool {
        self.has_slept.set(true);
        // Nobody else would tell the peer, which may wait for that.
        !self.pair.arm() && !self.incoming.is_report_due()
    }

    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Broken> {
        // A peer that announces without end does not keep others waiting.
        for _ in 0..2 * INTERRUPTS_MAX {
            let Some(tail) = self.pair.arrived()? else { break };
            self.incoming.arrived(tail)?;
        }
        self.tell()?;
        while batch.len() < batch.capacity() {
            let Self { incoming, pair, told, mac, .. } = self;
            let from = (*mac, |region| told.has(region));
            let Some(record) = incoming.pop(pair.window(), batch, from)? else { break };
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.reported(record.head);
            }
            if let Some(note) = record.note {
                self.hear(note);
            }
            self.report()?;
        }
        Ok(self.report()?)
    }

    fn send<'a>(&mut self, frames: impl Iterator<Item = TxFrame<'a>>) -> io::Result<usize> {
        self.tell()?;
        let mut taken = 0;
        for frame in frames {
            match self.push(&frame)? {
                Pushed::Staged => {}
                // It is lost, as in a network that does not take it.
                Pushed::TooLong => {}
                Pushed::Full => break,
            }
            taken += 1;
            let staged = self.outgoing.as_ref().map_or(0, Outgoing::staged);
            if self.kind == QueueKind::Base || staged >= STAGED_MAX {
                self.write()?;
            }
        }
        self.write()?;
        Ok(taken)
    }
}
