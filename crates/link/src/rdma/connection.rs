//! One connection, of either end: frames out of and into the rings of a queue pair.

use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering;

use super::pair::QueuePair;
use super::region::Region;
use super::ring::{Incoming, Outgoing, Pushed};
use super::window::{HEAD_AT, INTERRUPTS_MAX};
use crate::connections::{Broken, Connection, Readiness};
use crate::{Mac, RxBatch, TxFrame};

/// The most bytes that are staged before their write begins: the card sends them while we stage
/// more.
const STAGED_MAX: usize = 64 << 10;

/// The calls between two looks at the descriptors of a connection whose user does not sleep.
const CALLS_MAX: u32 = 256;

/// A connection over a queue pair.
pub struct RdmaConnection<P> {
    pair: P,
    /// The source address given to the peer's frames.
    mac: Mac,
    incoming: Incoming,
    /// `None` before the peer's window is known.
    outgoing: Option<Outgoing>,
    /// Whether its user has slept, or was about to, since its descriptors were served.
    has_slept: Cell<bool>,
    /// Calls since then.
    calls: u32,
}

impl<P: QueuePair> RdmaConnection<P> {
    /// The connection of a queue pair whose window has a ring of so many units.
    pub(super) fn new(pair: P, units: u32, mac: Mac) -> Self {
        let (incoming, has_slept) = (Incoming::new(units), Cell::new(true));
        Self { pair, mac, incoming, outgoing: None, has_slept, calls: 0 }
    }

    /// The rings and the pair, once the peer's window is known.
    fn parts(&mut self) -> Option<(&mut Outgoing, &mut Incoming, &mut P)> {
        if self.outgoing.is_none() {
            self.outgoing = self.pair.peer().map(|peer| Outgoing::new(peer.units));
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
                    pushed => {
                        incoming.report();
                        return Ok(pushed);
                    }
                }
            }
        }
        Ok(Pushed::Full)
    }

    /// Begins to write what is staged; at the end of a batch the peer is interrupted.
    fn write(&mut self, is_end: bool) -> io::Result<()> {
        let Some((outgoing, incoming, pair)) = self.parts() else { return Ok(()) };
        while let Some(write) = outgoing.write(is_end) {
            if write.at == HEAD_AT {
                stage_head(pair.staging(), incoming.report());
            }
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
        if !outgoing.may_write() {
            outgoing.ended(pair.notified()?);
        }
        if outgoing.may_write() {
            stage_head(pair.staging(), incoming.report());
            pair.post(&outgoing.write_head())?;
        }
        Ok(())
    }
}

impl<P: QueuePair> Connection for RdmaConnection<P> {
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
        !self.pair.arm()
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
            if self.outgoing.as_ref().is_some_and(|it| it.staged() >= STAGED_MAX) {
                self.write(false)?;
            }
        }
        self.write(true)?;
        Ok(taken)
    }
}

/// Stages the report how far frames were taken out.
fn stage_head(staging: &Region, head: u32) {
    staging.write(HEAD_AT, &head.to_le_bytes());
}
