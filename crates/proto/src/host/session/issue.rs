//! Cuts operations into pieces and hands these to channels.

use tyche_wire::{Opcode, REQUEST_LEN_MAX, Status};

use super::choice::Wanted;
use super::ending::Endings;
use super::path::Path;
use super::{Session, State};
use crate::host::initiator::Piece;
use crate::host::operation::{OpId, Operation};
use crate::rules::{Rule, Rules};
use crate::time::Instant;

/// Smallest piece, in bytes, that an operation is cut into to use idle channels.
const SHARE_MIN: u32 = 64 << 10;

/// Why an operation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// `operations_max` operations are in progress: submit again after a completion.
    Full,
    /// The session has failed, or is closing or closed.
    Over,
    /// The target was away for `fast_io_fail_tmo`: operations fail until it is back.
    Away,
}

impl<R: Rules> Session<R> {
    /// Begins an operation. It has ended already if the target does not know how to execute it:
    /// poll the events.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn submit(&mut self, now: Instant, operation: Operation) -> Result<OpId, SubmitError> {
        self.submit_near(now, operation, None)
    }

    /// Begins an operation whose memory is on the NUMA node `node`.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn submit_near(
        &mut self,
        now: Instant,
        operation: Operation,
        node: Option<u16>,
    ) -> Result<OpId, SubmitError> {
        self.now = now;
        if !matches!(self.state, State::New | State::Live | State::Lost(_)) {
            return Err(SubmitError::Over);
        }
        if self.refuses() {
            return Err(SubmitError::Away);
        }
        let begun = self.operations.begin(now, operation, node);
        let index = begun.ok_or(SubmitError::Full)?;
        self.cache.begin(index, &operation, R::keeps(Rule::CoverAllQueues));
        self.progress_timeout.submitted(now);
        self.issue();
        Ok(OpId(index))
    }

    /// Hands pieces to channels until there are no pieces, or no channel has room.
    pub(super) fn issue(&mut self) {
        while let Some(piece) = self.operations.next(|rest| share(self.paths.all(), rest)) {
            let (node, was_lost) = (self.operations.node(&piece), self.operations.is_next_lost());
            let wanted = Wanted { data_len: piece.data_len(), node, was_lost };
            let chosen = self.chooser.choose(self.now, self.paths.all(), wanted);
            let Some(path) = chosen else { return };
            let initiator = self.paths.live_mut(path).expect("only live channels are chosen");
            // Whichever channel it would take.
            if piece.opcode == Opcode::BlockStatus && self.handle.lacks_status() {
                self.refuse(&piece);
                continue;
            }
            let len_max = initiator.request_len_max();
            let piece = if piece.data_len() > len_max { piece.part(0..len_max) } else { piece };
            assert!(initiator.submit(self.now, piece), "only channels with room are chosen");
            self.operations.issued(&piece);
        }
    }

    /// Ends a piece that the target does not know how to execute.
    #[cold]
    fn refuse(&mut self, piece: &Piece) {
        self.operations.issued(piece);
        let Self { now, operations, cache, events, .. } = self;
        let mut endings = Endings { now: *now, operations, cache, events };
        endings.end::<R>(piece, Status::Unsupported, None);
    }
}

/// Bytes that the next piece takes of an operation with `rest` bytes left: an equal part for each
/// idle channel, the longest request at most.
fn share<R: Rules>(paths: &[Path<R>], rest: u32) -> u32 {
    if rest <= SHARE_MIN {
        return REQUEST_LEN_MAX;
    }
    let live = paths.iter().filter_map(Path::live);
    let idle = live.filter(|initiator| initiator.outstanding() == 0).count() as u32;
    rest.div_ceil(idle.max(1)).next_multiple_of(SHARE_MIN).min(REQUEST_LEN_MAX)
}
