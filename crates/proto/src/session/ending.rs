//! The ends of pieces: what they mean to their operations, and what the owner is told.

use std::collections::VecDeque;

use tyche_wire::Status;

use super::SessionEvent;
use super::cache::Cache;
use crate::initiator::Piece;
use crate::operation::{Op, OpId, Progress};
use crate::stages::Exchange;
use crate::time::Instant;

/// The parts of a session that the end of a piece has to do with.
pub(super) struct Endings<'a> {
    pub(super) now: Instant,
    pub(super) ops: &'a mut [Op],
    pub(super) cache: &'a mut Cache,
    pub(super) exchanges: Option<&'a mut [Option<Exchange>]>,
    pub(super) pending: &'a mut VecDeque<u32>,
    pub(super) free: &'a mut VecDeque<u32>,
    pub(super) events: &'a mut VecDeque<SessionEvent>,
}

impl Endings<'_> {
    /// A piece has ended.
    pub(super) fn end(&mut self, piece: Piece, status: Status, exchange: Option<Exchange>) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges[piece.op as usize] = exchange;
        }
        let op = &mut self.ops[piece.op as usize];
        op.since = self.now;
        match op.done(status) {
            Progress::Pending => {}
            Progress::Redo => self.pending.push_back(piece.op),
            Progress::Done(status) => {
                let status = match status {
                    Status::Success => self.cache.finish(piece.op, &op.operation),
                    failed => failed,
                };
                self.free.push_back(piece.op);
                self.events.push_back(SessionEvent::Completed { op: OpId(piece.op), status });
            }
        }
        if status != Status::Success {
            // What has failed in one piece is not issued any further.
            self.pending.retain(|&index| !self.ops[index as usize].is_issued());
        }
    }
}
