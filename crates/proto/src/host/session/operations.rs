//! The operation table: operations in progress, their pieces that are to be issued next, and the
//! effect of a piece's end on its operation.

use std::collections::VecDeque;

use tyche_wire::{REQUEST_LEN_MAX, Status};

use crate::channel::stages::StageSample;
use crate::host::initiator::Piece;
use crate::host::operation::Operation;
use crate::time::Instant;

/// Bytes of a write up to which it is not divided when its channel was lost. Lower: more requests
/// after a loss. Higher: a link that lives for short times only has to carry more in one of them.
const HALVED_MIN: u32 = 64 << 10;

/// The operation table of a queue.
pub(super) struct Operations {
    table: Box<[Option<Op>]>,
    /// Operations in progress: those whose end was not heard are neither among them nor free.
    len: usize,
    /// By operation, if configured: the stage times of its piece that ended last.
    stage_samples: Option<Box<[Option<StageSample>]>>,
    /// Last in, first out: what was used last is still in the cache.
    free: Vec<u32>,
    /// Operations with pieces to be issued (round robin).
    pending: VecDeque<u32>,
    /// Pieces of lost channels, to be issued before all others.
    reissued: VecDeque<Piece>,
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
struct Op {
    operation: Operation,
    /// The NUMA node of its memory, if that matters.
    node: Option<u16>,
    /// Bytes handed to pieces. A flush counts as one byte.
    issued: u32,
    /// Pieces that have not ended.
    pieces: u32,
    status: Status,
    /// When it was submitted, or when its last piece ended.
    since: Instant,
    /// A part of it may be in the target's volatile cache.
    volatile: bool,
    /// A part of it was lost with that cache: all of it has to be repeated.
    redo: bool,
}

/// State of an operation after the end of a piece.
enum Progress {
    /// Other pieces have not ended.
    Pending,
    /// It has to be issued again from the beginning.
    Redo,
    /// It has ended at the target.
    Done(Status),
}

impl Op {
    fn is_issued(&self) -> bool {
        self.issued >= self.operation.len.max(1)
    }

    /// A piece has ended.
    fn done(&mut self, status: Status) -> Progress {
        self.pieces -= 1;
        self.volatile |= self.operation.is_volatile() && status == Status::Success;
        if self.status == Status::Success {
            self.status = status;
        }
        if self.status != Status::Success {
            self.issued = self.operation.len.max(1);
        }
        if self.pieces > 0 || !self.is_issued() {
            return Progress::Pending;
        }
        if self.redo && self.status == Status::Success {
            (self.redo, self.issued) = (false, 0);
            return Progress::Redo;
        }
        Progress::Done(self.status)
    }
}

impl Operations {
    /// A table of `len` operations. `stage_samples`: whether stage times are kept.
    pub(super) fn new(len: u32, stage_samples: bool) -> Self {
        Self {
            table: vec![None; len as usize].into(),
            len: 0,
            stage_samples: stage_samples.then(|| vec![None; len as usize].into()),
            free: (0..len).rev().collect(),
            pending: VecDeque::with_capacity(len as usize),
            reissued: VecDeque::new(),
        }
    }

    /// Takes an operation, whose memory is on `node`; `None` if there is no room.
    #[inline]
    pub(super) fn begin(
        &mut self,
        now: Instant,
        operation: Operation,
        node: Option<u16>,
    ) -> Option<u32> {
        let index = self.free.pop()?;
        self.len += 1;
        self.table[index as usize] = Some(Op {
            operation,
            node,
            issued: 0,
            pieces: 0,
            status: Status::Success,
            since: now,
            volatile: false,
            redo: false,
        });
        self.pending.push_back(index);
        if let Some(stage_samples) = &mut self.stage_samples {
            stage_samples[index as usize] = None;
        }
        Some(index)
    }

    fn op(&self, index: u32) -> &Op {
        self.table[index as usize].as_ref().expect("an operation outlives its pieces")
    }

    fn op_mut(&mut self, index: u32) -> &mut Op {
        self.table[index as usize].as_mut().expect("an operation outlives its pieces")
    }

    /// The next piece to be issued, or the first part of it. `share` returns the length of a piece
    /// for the bytes left of its operation; it is asked if no other operation waits.
    pub(super) fn next(&self, share: impl FnOnce(u32) -> u32) -> Option<Piece> {
        if let Some(&piece) = self.reissued.front() {
            return Some(piece);
        }
        let &index = self.pending.front()?;
        let op = self.op(index);
        let Operation { opcode, flags, offset, len } = op.operation;
        let (base, rest) = (op.issued, len - op.issued);
        let most = || if self.pending.len() > 1 { REQUEST_LEN_MAX } else { share(rest) };
        let len = if opcode.has_data() { rest.min(most()) } else { rest };
        Some(Piece { op: index, base, opcode, flags, offset: offset + u64::from(base), len })
    }

    /// Whether the [next](Self::next) piece was lost with its channel.
    pub(super) fn is_next_lost(&self) -> bool {
        !self.reissued.is_empty()
    }

    /// Notes that the [next](Self::next) piece was issued, or the first part of it.
    #[inline]
    pub(super) fn issued(&mut self, piece: &Piece) {
        if !self.reissued.is_empty() {
            return self.issued_again(piece);
        }
        let op = self.op_mut(piece.op);
        op.issued += piece.len.max(1);
        op.pieces += 1;
        if op.is_issued() {
            self.pending.pop_front();
        } else {
            self.pending.rotate_left(1);
        }
    }

    /// Notes that a piece, or a part of it, was issued that was lost with its channel.
    #[cold]
    fn issued_again(&mut self, piece: &Piece) {
        let Some(lost) = self.reissued.pop_front() else { return };
        if piece.len < lost.len {
            self.reissued.push_front(lost.part(piece.len..lost.len));
            self.op_mut(piece.op).pieces += 1;
        }
    }

    /// Queues what is left of a piece of the operation `op`, whose channel was lost: one piece at
    /// least.
    pub(super) fn reissue(&mut self, op: u32, rest: impl IntoIterator<Item = Piece>) {
        let before = self.reissued.len();
        self.reissued.extend(rest);
        let added = self.reissued.len() - before;
        assert!(added > 0, "a piece ends at the target only");
        self.op_mut(op).pieces += added as u32 - 1;
    }

    /// Queues a modification whose channel was lost and that was not executed. The data that the
    /// target had of a write are gone with the channel. So a long one goes on in halves, down to
    /// [`HALVED_MIN`]: it ends even if no channel lives for as long as the whole takes.
    pub(super) fn reissue_smaller(&mut self, piece: Piece) {
        let half = (piece.data_len() / 2).next_multiple_of(HALVED_MIN);
        if half >= piece.data_len() {
            return self.reissue(piece.op, [piece]);
        }
        self.reissue(piece.op, [piece.part(0..half), piece.part(half..piece.len)]);
    }

    /// Takes the end of a piece. If it was the last of its operation, returns the operation and its
    /// status at the target. Its index is used again only when it is [released](Self::release).
    pub(super) fn end(
        &mut self,
        now: Instant,
        piece: &Piece,
        status: Status,
        stage_sample: Option<StageSample>,
    ) -> Option<(Operation, Status)> {
        if let Some(stage_samples) = &mut self.stage_samples {
            stage_samples[piece.op as usize] = stage_sample;
        }
        let op = self.op_mut(piece.op);
        op.since = now;
        let (operation, progress) = (op.operation, op.done(status));
        if status != Status::Success {
            // After a failure, no more pieces of the operation are issued.
            self.pending.retain(|&index| index != piece.op);
        }
        match progress {
            Progress::Pending => None,
            Progress::Redo => {
                self.pending.push_back(piece.op);
                None
            }
            Progress::Done(status) => {
                self.table[piece.op as usize] = None;
                self.len -= 1;
                Some((operation, status))
            }
        }
    }

    /// Lets the index of an operation that has ended be used again.
    pub(super) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Ends all operations with an error; returns them, to be [released](Self::release).
    pub(super) fn fail(&mut self) -> Vec<u32> {
        self.pending.clear();
        self.reissued.clear();
        self.len = 0;
        let table = (0..).zip(&mut self.table);
        table.filter_map(|(index, op)| op.take().map(|_| index)).collect()
    }

    /// The target has lost its cache: marks the operations that may have been in it to be repeated.
    pub(super) fn lose_cache(&mut self) {
        for op in self.table.iter_mut().flatten() {
            op.redo |= std::mem::take(&mut op.volatile);
        }
    }

    /// The stage times of the piece of an operation that ended last, if kept and known.
    pub(super) fn stage_sample(&self, index: u32) -> Option<StageSample> {
        self.stage_samples.as_ref()?[index as usize]
    }

    /// The NUMA node of a piece's memory, if that matters.
    pub(super) fn node(&self, piece: &Piece) -> Option<u16> {
        self.op(piece.op).node
    }

    /// Since when a piece's operation has made no progress.
    pub(super) fn since(&self, piece: &Piece) -> Instant {
        self.op(piece.op).since
    }

    /// The earliest time since when an operation has made no progress.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.table.iter().flatten().map(|op| op.since).min()
    }

    /// Number of operations in progress.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::{CommandFlags, Opcode};

    use super::*;

    const MIB: u32 = 1 << 20;

    fn write(len: u32) -> Operation {
        Operation { opcode: Opcode::Write, flags: CommandFlags::NONE, offset: 4096, len }
    }

    /// Issues the next piece, and returns it.
    fn issue(operations: &mut Operations) -> Piece {
        let piece = operations.next(|_| REQUEST_LEN_MAX).expect("there is one");
        operations.issued(&piece);
        piece
    }

    fn end(operations: &mut Operations, piece: &Piece, status: Status) -> Option<Status> {
        operations.end(Instant(9), piece, status, None).map(|(_, status)| status)
    }

    #[test]
    fn long_operations_take_turns_with_others() {
        let mut operations = Operations::new(2, false);
        let long = operations.begin(Instant(1), write(2 * MIB), None).unwrap();
        let short = operations.begin(Instant(2), write(512), None).unwrap();
        assert_eq!(operations.begin(Instant(3), write(512), None), None, "there is no room");
        let pieces = [(); 3].map(|()| issue(&mut operations));
        let seen = pieces.map(|piece| (piece.op, piece.base, piece.offset, piece.len));
        let rest = 4096 + u64::from(MIB);
        assert_eq!(seen, [(long, 0, 4096, MIB), (short, 0, 4096, 512), (long, MIB, rest, MIB)]);
        assert!(operations.next(|_| panic!("nothing is left")).is_none());
        assert_eq!(operations.oldest(), Some(Instant(1)));
        assert_eq!(end(&mut operations, &pieces[0], Status::Success), None, "half is done");
        assert_eq!(operations.oldest(), Some(Instant(2)), "that is progress");
        assert_eq!(end(&mut operations, &pieces[2], Status::Success), Some(Status::Success));
        assert_eq!(operations.len(), 1);
    }

    #[test]
    fn one_alone_is_shared_out() {
        let mut operations = Operations::new(2, false);
        operations.begin(Instant(1), write(MIB), None).unwrap();
        let quarter = |rest: u32| {
            assert_eq!(rest, MIB);
            rest / 4
        };
        assert_eq!(operations.next(quarter).unwrap().len, MIB / 4);
        operations.begin(Instant(1), write(512), None).unwrap();
        assert_eq!(operations.next(quarter).unwrap().len, MIB, "another waits");
    }

    #[test]
    fn pieces_of_lost_channels_go_first_and_count_once() {
        let mut operations = Operations::new(2, false);
        operations.begin(Instant(1), write(512), None).unwrap();
        let lost = issue(&mut operations);
        operations.begin(Instant(1), write(512), None).unwrap();
        operations.reissue(lost.op, [lost]);
        assert_eq!(issue(&mut operations), lost);
        assert_ne!(issue(&mut operations).op, lost.op);
        assert_eq!(end(&mut operations, &lost, Status::Success), Some(Status::Success));
    }

    #[test]
    fn a_lost_piece_goes_on_in_parts_that_the_channels_have_room_for() {
        let mut operations = Operations::new(1, false);
        operations.begin(Instant(1), write(MIB), None).unwrap();
        let whole = issue(&mut operations);
        operations.reissue(whole.op, [whole]);
        let parts = [(); 2].map(|()| {
            let piece = operations.next(|_| MIB).expect("there is one");
            let part = piece.part(0..MIB / 2);
            operations.issued(&part);
            part
        });
        assert_eq!(parts, [whole.part(0..MIB / 2), whole.part(MIB / 2..MIB)]);
        assert_eq!(end(&mut operations, &parts[1], Status::Success), None);
        assert_eq!(end(&mut operations, &parts[0], Status::Success), Some(Status::Success));
    }

    #[test]
    fn a_lost_write_goes_on_in_halves_and_ends_once() {
        let mut operations = Operations::new(1, false);
        operations.begin(Instant(1), write(MIB), None).unwrap();
        let whole = issue(&mut operations);
        operations.reissue_smaller(whole);
        let halves = [(); 2].map(|()| issue(&mut operations));
        let seen = halves.map(|piece| (piece.base, piece.offset, piece.len));
        assert_eq!(seen, [(0, 4096, MIB / 2), (MIB / 2, 4096 + u64::from(MIB / 2), MIB / 2)]);
        operations.reissue_smaller(Piece { len: HALVED_MIN, ..halves[1] });
        let smallest = issue(&mut operations);
        assert_eq!(smallest.len, HALVED_MIN, "and no smaller");
        assert_eq!(end(&mut operations, &halves[0], Status::Success), None);
        assert_eq!(end(&mut operations, &smallest, Status::Success), Some(Status::Success));
    }

    #[test]
    fn what_fails_in_one_piece_is_not_issued_any_further() {
        let mut operations = Operations::new(1, false);
        operations.begin(Instant(1), write(3 * MIB), None).unwrap();
        let pieces = [(); 2].map(|()| issue(&mut operations));
        assert_eq!(end(&mut operations, &pieces[0], Status::NoSpace), None, "one is on its way");
        assert!(operations.next(|_| MIB).is_none());
        let ended = end(&mut operations, &pieces[1], Status::Success);
        assert_eq!(ended, Some(Status::NoSpace), "the first failure counts");
    }

    #[test]
    fn what_a_lost_cache_held_of_an_operation_is_done_again() {
        let mut operations = Operations::new(1, false);
        operations.begin(Instant(1), write(2 * MIB), None).unwrap();
        let pieces = [(); 2].map(|()| issue(&mut operations));
        end(&mut operations, &pieces[0], Status::Success);
        operations.lose_cache();
        assert_eq!(end(&mut operations, &pieces[1], Status::Success), None, "not yet");
        let again = [(); 2].map(|()| issue(&mut operations));
        assert_eq!(again, pieces);
        end(&mut operations, &again[0], Status::Success);
        assert_eq!(end(&mut operations, &again[1], Status::Success), Some(Status::Success));
    }

    #[test]
    fn all_end_when_the_session_does() {
        let mut operations = Operations::new(2, false);
        operations.begin(Instant(1), write(2 * MIB), None).unwrap();
        let lost = issue(&mut operations);
        operations.reissue(lost.op, [lost]);
        assert_eq!(operations.fail(), [0]);
        assert_eq!((operations.len(), operations.oldest()), (0, None));
        assert!(operations.next(|_| MIB).is_none());
    }

    #[test]
    fn an_index_is_used_again_once_its_end_was_heard() {
        let mut operations = Operations::new(1, false);
        operations.begin(Instant(1), write(512), None).unwrap();
        let piece = issue(&mut operations);
        assert_eq!(end(&mut operations, &piece, Status::Success), Some(Status::Success));
        assert_eq!(operations.begin(Instant(2), write(512), None), None, "nobody knows of it");
        operations.release(piece.op);
        assert_eq!(operations.begin(Instant(2), write(512), None), Some(piece.op));
    }
}
