//! Data on their way to where they belong in memory of the peer, instead of into its ring.
//!
//! Independent of network cards, as the rings are. Pieces are staged one behind the
//! other in memory of their own, which is used round and round; pieces that follow each other there
//! and at the peer are one write.

use std::collections::VecDeque;

use super::window::{LAG, PLACED_MIN, PeerRegion};
use crate::TxFrame;

/// Bytes of the memory that data are written from.
pub const DATA_LEN: usize = 1 << 20;

/// A piece whose write has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedWrite {
    pub(super) region: PeerRegion,
    /// The first byte in the region.
    pub(super) at: usize,
    /// The first byte in the memory for data.
    pub(super) from: usize,
    /// Bytes.
    pub(super) len: usize,
    /// Bytes staged so far, to its end.
    end: u64,
}

/// The pieces that are staged.
#[derive(Default)]
pub(super) struct Placed {
    waiting: VecDeque<PlacedWrite>,
    /// Bytes that are staged, the unused ones before the end of the memory included.
    next: u64,
    /// Those of them whose writes have begun, up to the last notified one, and have ended.
    posted: u64,
    notified_at: u64,
    ended: u64,
}

impl Placed {
    /// Whether a frame's data may be placed in that region: all of them are there, and each piece
    /// is long enough to be worth a write.
    pub(super) fn fits(frame: &TxFrame<'_>, region: &PeerRegion) -> bool {
        !frame.places().is_empty()
            && frame.data().zip(frame.places()).all(|(piece, &place)| {
                piece.len() >= PLACED_MIN && u64::from(place) + piece.len() as u64 <= region.len
            })
    }

    /// Whether there is room for a frame's data, wherever the memory ends.
    pub(super) fn has_room(&self, frame: &TxFrame<'_>) -> bool {
        let (sum, longest) = frame
            .data()
            .fold((0, 0), |(sum, longest), piece| (sum + piece.len(), piece.len().max(longest)));
        (sum + longest) as u64 <= DATA_LEN as u64 - (self.next - self.ended)
    }

    /// Takes room for a piece that goes to that place. Returns the first byte in the memory for
    /// data, where the caller puts it.
    pub(super) fn push(&mut self, region: PeerRegion, at: u32, len: usize) -> usize {
        let rest = DATA_LEN - self.next as usize % DATA_LEN;
        if rest < len {
            self.next += rest as u64;
        }
        let from = self.next as usize % DATA_LEN;
        self.next += len as u64;
        let (at, end) = (at as usize, self.next);
        match self.waiting.back_mut() {
            Some(it) if it.region == region && (it.at + it.len, it.from + it.len) == (at, from) => {
                (it.len, it.end) = (it.len + len, end);
            }
            _ => self.waiting.push_back(PlacedWrite { region, at, from, len, end }),
        }
        from
    }

    /// Writes that have not begun.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes whose write has not begun.
    pub(super) fn staged(&self) -> usize {
        (self.next - self.posted) as usize
    }

    /// The next write.
    pub(super) fn write(&mut self) -> Option<PlacedWrite> {
        let write = self.waiting.pop_front()?;
        self.posted = write.end;
        Some(write)
    }

    /// Whether so much was written that somebody has to hear of its end.
    pub(super) fn is_notice_due(&self) -> bool {
        self.posted - self.notified_at >= DATA_LEN as u64 / LAG
    }

    /// Notes that the end of what is written so far will be notified. Returns what
    /// [`ended`](Self::ended) takes then.
    pub(super) fn notifies(&mut self) -> u64 {
        self.notified_at = self.posted;
        self.posted
    }

    /// Notes that the writes up to there have ended.
    pub(super) fn ended(&mut self, posted: u64) {
        self.ended = posted;
    }
}
