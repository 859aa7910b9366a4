//! Fences of lost channels. The target may still have such a channel open, and its modifications
//! may still take effect: they are reissued only after the target has confirmed that the channel is
//! closed (*fence before reissue*). One without modifications is fenced as well, so that the target
//! closes it and has its memory back. PROTOCOL.md, "Fences".

use std::time::Duration;

use tyche_wire::{ChannelId, CommandFlags, Cookie, Fate, Fence, Fenced, Status, TAGS_MAX, Tag};

use super::repeat::spread;
use crate::host::initiator::Piece;
use crate::time::Instant;

/// Time until a fence is repeated; it doubles up to the maximum. The target answers only when the
/// disk has completed the last request of the channel.
const INTERVAL: Duration = Duration::from_millis(20);
const INTERVAL_MAX: Duration = Duration::from_millis(640);

#[derive(Debug)]
struct Lost {
    cookie: Cookie,
    channel: ChannelId,
    /// Modifications that wait for the confirmation; without their pieces, those that have failed
    /// meanwhile.
    pieces: Vec<(Tag, Option<Piece>)>,
    /// When to send the fence next.
    next: Instant,
    /// Time until it is repeated after that.
    pause: Duration,
    /// A random number.
    lot: u64,
    /// The path that the fence was last sent on.
    asked: Option<usize>,
    /// The target's cache was lost since then: executed writes may be gone.
    outdated: bool,
}

/// The lost channels of one queue whose end the target has not confirmed, with the modifications
/// that wait for it. Each has a fence, which is repeated until it is answered.
#[derive(Debug, Default)]
pub(super) struct Fences(Vec<Lost>);

impl Fences {
    /// A channel is lost, with `pieces` in flight, which may be none. `lot`: a random number.
    pub(super) fn add(
        &mut self,
        now: Instant,
        (cookie, channel): (Cookie, ChannelId),
        pieces: Vec<(Tag, Piece)>,
        lot: u64,
    ) {
        let pieces = pieces.into_iter().map(|(tag, piece)| (tag, Some(piece))).collect();
        let (pause, asked, outdated) = (INTERVAL, None, false);
        self.0.push(Lost { cookie, channel, pieces, next: now, pause, lot, asked, outdated });
    }

    /// The target has lost its cache, and with it executed writes of these channels without FUA.
    pub(super) fn lose_cache(&mut self) {
        self.0.iter_mut().for_each(|lost| lost.outdated = true);
    }

    /// All operations have failed: their modifications are not to be issued again, nor to be
    /// answered, but the channels have to be closed before anything else is done.
    pub(super) fn forget_operations(&mut self) {
        let pieces = self.0.iter_mut().flat_map(|lost| &mut lost.pieces);
        pieces.for_each(|(_, piece)| *piece = None);
    }

    /// Whether a modification waits for the end of a channel.
    pub(super) fn has_pieces(&self) -> bool {
        self.0.iter().any(|lost| !lost.pieces.is_empty())
    }

    /// Whether one of the modifications that have failed may still be executed.
    pub(super) fn has_forgotten(&self) -> bool {
        self.0.iter().flat_map(|lost| &lost.pieces).any(|(_, piece)| piece.is_none())
    }

    /// Takes a confirmation; returns the modifications that waited for it, with their fates.
    /// Repeated confirmations are ignored.
    pub(super) fn confirmed(&mut self, now: Instant, fenced: &Fenced) -> Vec<(Piece, Fate)> {
        let named = |lost: &Lost| (fenced.cookie, fenced.channel) == (lost.cookie, lost.channel);
        let Some(index) = self.0.iter().position(named) else { return Vec::new() };
        let lost = &mut self.0[index];
        let mut confirmed = Vec::new();
        for outcome in &fenced.outcomes {
            if let Some(at) = lost.pieces.iter().position(|(tag, _)| *tag == outcome.tag) {
                let (_, Some(piece)) = lost.pieces.remove(at) else { continue };
                let may_be_gone = lost.outdated && !piece.flags.contains(CommandFlags::FUA);
                let fate = match outcome.fate {
                    Fate::Executed(Status::Success) if may_be_gone => Fate::Unknown,
                    fate => fate,
                };
                confirmed.push((piece, fate));
            }
        }
        // The rest did not fit into one fence.
        (lost.next, lost.pause) = (now, INTERVAL);
        if lost.pieces.is_empty() {
            self.0.remove(index);
        }
        confirmed
    }

    /// The next fence that is due, with the path of `paths`, which are live, to send it on. A fence
    /// changes paths with each repetition unless the session has `only` one, because a path may be
    /// dead without having been noticed.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        paths: &(impl Iterator<Item = usize> + Clone),
        only: bool,
    ) -> Option<(usize, Fence)> {
        self.0.iter_mut().filter(|lost| lost.next <= now).find_map(|lost| {
            let path = paths.clone().find(|&path| only || lost.asked != Some(path))?;
            (lost.asked, lost.next) = (Some(path), now + spread(lost.pause, lost.lot));
            lost.lot = lost.lot.rotate_right(u8::BITS);
            lost.pause = (lost.pause * 2).min(INTERVAL_MAX);
            let tags = lost.pieces.iter().take(TAGS_MAX).map(|(tag, _)| *tag).collect();
            Some((path, Fence { cookie: lost.cookie, channel: lost.channel, tags }))
        })
    }

    /// When the next fence is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().map(|lost| lost.next).min()
    }

    /// Whether a channel is lost and not confirmed to be closed.
    pub(super) fn await_end_of(&self, identity: (Cookie, ChannelId)) -> bool {
        self.0.iter().any(|lost| (lost.cookie, lost.channel) == identity)
    }

    /// Lost channels that are not confirmed to be closed.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use tyche_wire::{CommandFlags, Opcode, Outcome, Status};

    use super::*;

    /// Makes no pause longer or shorter.
    const LOT: u64 = 0x8080_8080_8080_8080;

    fn piece(op: u32) -> Piece {
        let (opcode, flags) = (Opcode::Write, CommandFlags::NONE);
        Piece { op, base: 0, opcode, flags, offset: 0, len: 512 }
    }

    fn tag(slot: u16) -> Tag {
        Tag { slot, generation: 1 }
    }

    fn fenced(fence: &Fence, fate: Fate) -> Fenced {
        let outcomes = fence.tags.iter().map(|&tag| Outcome { tag, fate }).collect();
        Fenced { cookie: fence.cookie, channel: fence.channel, outcomes }
    }

    #[test]
    fn more_requests_than_a_fence_has_room_for_take_several() {
        let mut fences = Fences::default();
        let pieces = (0..200).map(|n| (tag(n), piece(n.into()))).collect();
        fences.add(Instant(0), (Cookie(7), ChannelId(3)), pieces, LOT);
        let (path, first) = fences.poll(Instant(0), &(4..5), true).expect("it is due");
        assert_eq!((path, first.tags.len()), (4, TAGS_MAX));
        assert!(fences.poll(Instant(0), &(4..5), true).is_none(), "it was asked");
        let executed = Fate::Executed(Status::Success);
        let confirmed = fences.confirmed(Instant(5), &fenced(&first, executed));
        assert_eq!(confirmed.len(), TAGS_MAX);
        let (_, second) = fences.poll(Instant(5), &(4..5), true).expect("the rest is due");
        assert_eq!(second.tags.len(), 200 - TAGS_MAX);
        assert!(fences.confirmed(Instant(6), &fenced(&first, executed)).is_empty(), "again");
        let confirmed = fences.confirmed(Instant(6), &fenced(&second, Fate::Unknown));
        assert_eq!(confirmed[0], (piece(TAGS_MAX as u32), Fate::Unknown));
        assert!(fences.is_empty());
    }

    #[test]
    fn what_was_executed_before_a_lost_cache_is_not_known_to_be_there() {
        let executed = Fate::Executed(Status::Success);
        let failed = Fate::Executed(Status::Io);
        let durable = Piece { flags: CommandFlags::FUA, ..piece(2) };
        for (piece, fate, after) in [
            (piece(1), executed, Fate::Unknown),
            (piece(1), failed, failed),
            (durable, executed, executed),
        ] {
            for (lost, wanted) in [(false, fate), (true, after)] {
                let mut fences = Fences::default();
                fences.add(Instant(0), (Cookie(7), ChannelId(3)), vec![(tag(1), piece)], LOT);
                if lost {
                    fences.lose_cache();
                }
                let (_, fence) = fences.poll(Instant(0), &(4..5), true).expect("it is due");
                let confirmed = fences.confirmed(Instant(5), &fenced(&fence, fate));
                assert_eq!(confirmed, [(piece, wanted)]);
            }
        }
    }

    #[test]
    fn what_has_failed_is_asked_for_and_never_returned() {
        let mut fences = Fences::default();
        let pieces = vec![(tag(1), piece(1)), (tag(2), piece(2))];
        fences.add(Instant(0), (Cookie(7), ChannelId(3)), pieces, LOT);
        assert!(!fences.has_forgotten());
        fences.forget_operations();
        fences.add(Instant(0), (Cookie(8), ChannelId(4)), vec![(tag(3), piece(1))], LOT);
        let executed = Fate::Executed(Status::Success);
        let (_, fence) = fences.poll(Instant(0), &(4..5), true).expect("it is due");
        assert_eq!(fence.tags.as_slice(), [tag(1), tag(2)]);
        assert!(fences.has_forgotten());
        assert!(fences.confirmed(Instant(5), &fenced(&fence, executed)).is_empty());
        assert!(!fences.has_forgotten() && !fences.is_empty());
        let (_, fence) = fences.poll(Instant(5), &(4..5), true).expect("it is due");
        let confirmed = fences.confirmed(Instant(6), &fenced(&fence, executed));
        assert_eq!(confirmed, [(piece(1), executed)], "the new one of that number");
    }

    #[test]
    fn living_paths_take_turns() {
        let mut fences = Fences::default();
        fences.add(Instant(0), (Cookie(7), ChannelId(3)), vec![(tag(1), piece(1))], LOT);
        let asked = |fences: &mut Fences, now: Instant, paths: std::ops::Range<usize>| {
            fences.poll(now, &paths, false).map(|(path, _)| path)
        };
        assert_eq!(asked(&mut fences, Instant(0), 0..2), Some(0));
        let later = Instant(0) + INTERVAL;
        assert_eq!(asked(&mut fences, later, 0..1), None, "through another path this time");
        assert_eq!(asked(&mut fences, later, 0..2), Some(1));
    }

    #[test]
    fn a_channel_without_requests_is_fenced_and_nothing_waits_for_that() {
        let mut fences = Fences::default();
        fences.add(Instant(0), (Cookie(7), ChannelId(3)), Vec::new(), LOT);
        assert!(!fences.has_pieces() && !fences.has_forgotten() && !fences.is_empty());
        let (_, fence) = fences.poll(Instant(0), &(4..5), true).expect("it is due");
        assert_eq!((fence.channel, fence.tags.len()), (ChannelId(3), 0));
        assert_eq!(fences.poll_timeout(), Some(Instant(0) + INTERVAL), "it is repeated");
        assert!(fences.confirmed(Instant(5), &fenced(&fence, Fate::Unknown)).is_empty());
        assert!(fences.is_empty());
    }
}
