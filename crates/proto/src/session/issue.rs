//! From operations to the pieces that channels carry.

use tyche_wire::REQUEST_LEN_MAX;

use super::path::Path;
use super::{Session, State};
use crate::initiator::Piece;
use crate::operation::{Op, OpId, Operation};
use crate::rules::Rules;
use crate::time::Instant;

/// What an operation is cut into, at least, when there are channels with nothing to do.
const SHARE_MIN: u32 = 64 << 10;

/// Why an operation is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// `operations_max` are in progress: come back after a completion.
    Full,
    /// The session has failed or is closed: it takes nothing any more.
    Over,
}

impl<R: Rules> Session<R> {
    /// Begins an operation.
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
        let index = self.free.pop_front().ok_or(SubmitError::Full)?;
        self.cache.begin(index, &operation, R::COVER_ALL_QUEUES);
        self.ops[index as usize] = Op { operation, node, active: true, since: now, ..Op::IDLE };
        self.watch.submitted(now);
        self.pending.push_back(index);
        if let Some(exchanges) = &mut self.exchanges {
            exchanges[index as usize] = None;
        }
        self.issue();
        Ok(OpId(index))
    }

    /// Hands pieces to channels while there are both.
    pub(super) fn issue(&mut self) {
        while let Some(&piece) = self.reissued.front() {
            if !self.issue_piece(piece) {
                return;
            }
            self.reissued.pop_front();
        }
        while let Some(&index) = self.pending.front() {
            let op = &self.ops[index as usize];
            let Operation { opcode, flags, offset, len } = op.operation;
            let (base, rest) = (op.issued, len - op.issued);
            let len = if opcode.has_data() { rest.min(self.share(rest)) } else { rest };
            let offset = offset + u64::from(base);
            let piece = Piece { op: index, base, opcode, flags, offset, len };
            if !self.issue_piece(piece) {
                return;
            }
            let op = &mut self.ops[index as usize];
            op.issued += len.max(1);
            op.pieces += 1;
            self.pending.pop_front();
            if !op.is_issued() {
                self.pending.push_back(index);
            }
        }
    }

    /// How much of an operation with `rest` bytes left a piece takes: all that a request may move,
    /// or a part for each channel that has nothing else to do.
    fn share(&self, rest: u32) -> u32 {
        if rest <= SHARE_MIN || self.pending.len() > 1 {
            return REQUEST_LEN_MAX;
        }
        let live = self.paths.iter().filter_map(Path::live);
        let idle = live.filter(|initiator| initiator.outstanding() == 0).count() as u32;
        rest.div_ceil(idle.max(1)).next_multiple_of(SHARE_MIN).min(REQUEST_LEN_MAX)
    }

    /// Hands a piece to the channel of choice; false if it has to wait.
    fn issue_piece(&mut self, piece: Piece) -> bool {
        let node = self.ops[piece.op as usize].node;
        let chosen = self.chooser.choose(self.now, &self.paths, piece.data_len(), node);
        let Some(path) = chosen else { return false };
        let initiator = self.paths[path].live_mut().expect("only live channels are chosen");
        assert!(initiator.submit(self.now, piece), "only channels with room are chosen");
        true
    }
}
