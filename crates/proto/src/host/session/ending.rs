//! Ends of pieces: they complete operations, and become events for the owner.

use std::collections::VecDeque;

use tyche_wire::Status;

use super::cache::Cache;
use super::operations::Operations;
use super::{Session, SessionEvent};
use crate::channel::stages::StageSample;
use crate::host::initiator::Piece;
use crate::host::operation::OpId;
use crate::rules::Rules;
use crate::time::Instant;

/// The parts of a session that the end of a piece changes.
pub(super) struct Endings<'a> {
    pub(super) now: Instant,
    pub(super) operations: &'a mut Operations,
    pub(super) cache: &'a mut Cache,
    pub(super) events: &'a mut VecDeque<SessionEvent>,
}

impl Endings<'_> {
    /// A piece has ended.
    pub(super) fn end<R: Rules>(
        &mut self,
        piece: &Piece,
        status: Status,
        stage_sample: Option<StageSample>,
    ) {
        if let Some((operation, status)) =
            self.operations.end(self.now, piece, status, stage_sample)
        {
            let status = self.cache.finish::<R>(piece.op, &operation, status);
            self.events.push_back(SessionEvent::Completed { op: OpId(piece.op), status });
        }
    }
}

impl<R: Rules> Session<R> {
    /// The owner has handed over the answers of all operations whose ends it has taken, to their
    /// device. A loss that one of them reports is not reported again.
    pub fn answered(&mut self) {
        if self.cache.answered() {
            self.note_resume_state();
        }
    }
}
