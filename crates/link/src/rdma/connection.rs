//! One connection, of either end: frames out of and into the rings of a queue pair.

use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering;

use tyche_counters::counters;

use super::pair::QueuePair;
use super::ring::{Incoming, Outgoing, Pushed, QueueKind};
use super::window::{HEAD_AT, INTERRUPTS_MAX};
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
        /// Frames that found no room: the peer had taken too few out, or too few writes were known
        /// to have ended.
        waited: Counter in Frames,
    }
}

/// A connection over a queue pair.
///
/// The peer has the key to the window, and may write anything there, and announce anything, at any
/// time.
pub struct RdmaConnection<P> {
    pair: P,
    /// The source address given to the peer's frames.
    mac: Mac,
    kind: QueueKind,
    incoming: Incoming,
    /// `None` before the peer's window is known.
    outgoing: Option<Outgoing>,
    /// Whether its user has slept, or was about to, since its descriptors were served.
    has_slept: Cell<bool>,
    /// Calls since then.
    calls: u32,
    /// Frames that found no room.
    waited: u64,
}

impl<P: QueuePair> RdmaConnection<P> {
    /// The connection of a queue pair whose window has a ring of so many units.
    pub fn new(pair: P, (units, kind): (u32, QueueKind), mac: Mac) -> Self {
        Self {
            pair,
            mac,
            kind,
            incoming: Incoming::new(units, kind),
            outgoing: None,
            has_slept: Cell::new(true),
            calls: 0,
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

    /// Stages a frame. If there is no room, it looks what the peer has reported, and which writes
    /// have ended.
    fn push(&mut self, frame: &TxFrame<'_>) -> io::Result<Pushed> {
        let Some((outgoing, incoming, pair)) = self.parts() else { return Ok(Pushed::Full) };
        for has_looked in [false, true] {
            if has_looked {
                outgoing
                    .reported(u32::from_le(pair.window().word(HEAD_AT).load(Ordering::Acquire)));
                outgoing.ended(pair.notified()?);
            }
            if outgoing.may_write() {
                match outgoing.push(pair.staging(), frame, incoming.head()) {
                    Pushed::Full => {}
                    Pushed::TooLong => return Ok(Pushed::TooLong),
                    Pushed::Staged => {
                        incoming.told();
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
        let (interrupts, waited) = (self.pair.interrupts(), self.waited);
        RdmaCounts { writes, announcements, interrupts, waited }
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
        while batch.len() < batch.capacity() {
            let Some(head) = self.incoming.pop(self.pair.window(), batch, self.mac)? else { break };
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.reported(head);
            }
            self.report()?;
        }
        Ok(self.report()?)
    }

    fn send<'a>(&mut self, frames: impl Iterator<Item = TxFrame<'a>>) -> io::Result<usize> {
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
