//! What the queues of one session share at the host.
//!
//! A session may have several queues: each is a [`Session`](crate::Session) of its own for one
//! thread, with its own channels, requests and fences. They share the export, whether the session
//! is over, and what is known of the target's volatile cache: a flush on one queue promises that
//! the writes completed before it on *all* queues will last.
//!
//! On the data path a queue writes only to its own line, and reads those of the others only for a
//! flush. No request takes the lock: it is for handshakes, timers and rare events (a resize, a
//! loss, a failure).
//!
//! ```text
//! line of queue 0:  written ordinal, count   lost ordinal, count   flushed by it of 0, of 1, ..
//! line of queue 1:  written ordinal, count   lost ordinal, count   flushed by it of 0, of 1, ..
//! line of a former session, if this one takes its device over: what that has left
//! ```
//!
//! `written` counts the volatile modifications that the queue has completed. Its *ordinal* is the
//! number of the generation that its channels were opened in. A flush notes all `written` as it
//! begins. When it succeeds, they are on stable storage if their ordinal is the flush's own.
//! Otherwise the target's cache was lost in between, and the flush fails. `lost` counts those that
//! were lost: each flush fails that has to cover some of them, until one has reported that.
//! PROTOCOL.md, "Lost writes"; docs/protocol-annexes.md, "Queues".

mod agreed;
mod written;

use std::sync::{Arc, PoisonError};

use tyche_crypto::PublicKey;

use agreed::{Agreed, LOST};
pub(crate) use written::Written;

use super::event::{ExportState, Failure, NextKey};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};

/// Queues that a session has at most.
pub const QUEUES_MAX: usize = 64;

/// The state that one queue writes. Aligned, so that no two queues write to the same cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Line {
    written: AtomicU64,
    /// How many of these are lost at least, with the ordinal of the oldest that no flush has
    /// reported.
    lost: AtomicU64,
    /// By queue: how many of that queue's modifications the flushes of this queue have covered, or
    /// reported as lost.
    flushed: Box<[AtomicU64]>,
    /// Whether the target takes no BlockStatus on some of its channels.
    lacks_status: AtomicBool,
}

/// The state that the queues of a session share: the export, the end of the session, and the writes
/// in the target's cache. Requests read and write atomics only; the lock is for rare events.
#[derive(Debug)]
pub struct SessionShared {
    /// Of the queues, and behind them of the former session.
    lines: Box<[Line]>,
    known: Mutex<Agreed>,
    /// Bytes of the export. Changes with `known.export`, under the lock.
    size: AtomicU64,
    /// Whether a queue was ever connected.
    is_connected: AtomicBool,
    /// Whether a queue has failed or ended the session: from then on no operation succeeds.
    is_over: AtomicBool,
    /// Number of queues whose operations fail at once: meanwhile no queue takes new ones.
    fails_fast: AtomicUsize,
}

/// A queue's place in its session.
#[derive(Clone, Debug)]
pub struct QueueHandle {
    shared: Arc<SessionShared>,
    queue: usize,
}

impl SessionShared {
    /// The shared state of a session with `queues` queues. `former`: what the former session of the
    /// device knew of the export, if this session takes the device over. The former session is
    /// taken to have left writes in the target's cache.
    ///
    /// # Panics
    /// Unless there are 1 to [`QUEUES_MAX`] queues.
    pub fn new(queues: usize, former: Option<ExportState>) -> Arc<Self> {
        Self::with(queues, former, true)
    }

    pub(crate) fn with(queues: usize, former: Option<ExportState>, inherits: bool) -> Arc<Self> {
        assert!((1..=QUEUES_MAX).contains(&queues), "a session of {queues} queues");
        let zeroes = || (0..=queues).map(|_| AtomicU64::new(0)).collect();
        let zero = || AtomicU64::new(0);
        let line = |_| Line {
            written: zero(),
            lost: zero(),
            flushed: zeroes(),
            lacks_status: AtomicBool::new(false),
        };
        let generations = former.iter().map(|export| export.generation).collect();
        let lines: Box<[Line]> = (0..=queues).map(line).collect();
        if former.is_some() {
            let left = Written::new(1, u64::from(inherits));
            lines[queues].written.store(left.0, Ordering::Relaxed);
        }
        let known = Agreed { export: former, generations, first: 1, ..Agreed::default() };
        Arc::new(Self {
            lines,
            known: Mutex::new(known),
            size: AtomicU64::new(former.map_or(0, |export| export.geometry.size)),
            is_connected: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            fails_fast: AtomicUsize::new(0),
        })
    }

    /// The place of a queue.
    ///
    /// # Panics
    /// If the session does not have that queue.
    pub fn handle(self: &Arc<Self>, queue: usize) -> QueueHandle {
        assert!(queue < self.queues(), "no queue {queue}");
        QueueHandle { shared: Arc::clone(self), queue }
    }

    /// Number of queues.
    pub fn queues(&self) -> usize {
        self.lines.len() - 1
    }

    /// Bytes of the export, once it is known.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Number of those whose writes a flush covers: the queues and the former session.
    pub(super) fn writers(&self) -> usize {
        self.lines.len()
    }

    /// The number of the former session among them.
    fn former(&self) -> usize {
        self.queues()
    }

    /// Has all queues know the target by its next key; false if they know it by a third
    /// one. Those that wait for a timer learn it then.
    pub fn know_by(&self, said: &NextKey) -> bool {
        let mut known = self.known();
        let is_known = known.target_key.is_none_or(|key| key == said.former);
        if is_known {
            known.target_key = Some(said.next);
        }
        is_known
    }

    fn known(&self) -> MutexGuard<'_, Agreed> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many modifications of a writer are covered by flushes or reported as lost.
    fn covered(&self, writer: usize) -> u64 {
        let covered = self.lines.iter().map(|line| line.flushed[writer].load(Ordering::Acquire));
        covered.max().unwrap_or(0)
    }

    fn written(&self, writer: usize) -> Written {
        Written(self.lines[writer].written.load(Ordering::Acquire))
    }

    /// The modifications of a writer that are lost.
    fn lost(&self, writer: usize) -> Written {
        Written(self.lines[writer].lost.load(Ordering::Acquire))
    }

    /// The same, if no flush has reported all of them.
    fn unreported(&self, writer: usize) -> Option<Written> {
        Some(self.lost(writer)).filter(|lost| lost.count() > self.covered(writer))
    }

    /// The oldest ordinal that a queue is still in, the former session's writes are, or lost writes
    /// were of which the device has not been told.
    fn oldest(&self, known: &Agreed) -> Option<u16> {
        let (queues, former) = (0..self.queues(), self.former());
        let former = Some(former).filter(|&it| self.is_dirty(it));
        let written = queues.chain(former).map(|it| self.written(it));
        let lost = (0..self.writers()).filter_map(|it| self.unreported(it));
        let ordinals = written.chain(lost).map(Written::ordinal);
        // An answer is noted there, under the lock, before it settles what it reports.
        let ordinals = ordinals.chain(known.telling.iter().map(|it| it.1));
        ordinals.filter(|&ordinal| ordinal != 0).min_by_key(|&ordinal| known.age(ordinal))
    }

    /// Whether the target's cache may hold modifications of a writer.
    fn is_dirty(&self, writer: usize) -> bool {
        self.written(writer).count() > self.lost(writer).count().max(self.covered(writer))
    }
}

impl QueueHandle {
    /// What all queues share.
    pub fn shared(&self) -> &Arc<SessionShared> {
        &self.shared
    }

    /// Number of the queue.
    pub fn queue(&self) -> usize {
        self.queue
    }

    /// Queues of the session.
    pub(super) fn queues(&self) -> usize {
        self.shared.queues()
    }

    fn line(&self) -> &Line {
        &self.shared.lines[self.queue]
    }

    /// The export, once known, with its current size.
    pub(crate) fn export(&self) -> Option<ExportState> {
        self.shared.known().export
    }

    /// See [`SessionShared::size`].
    pub(crate) fn size(&self) -> u64 {
        self.shared.size()
    }

    /// Sets the size of the export; returns whether it has changed.
    pub(crate) fn resize(&self, size: u64) -> bool {
        let mut known = self.shared.known();
        if let Some(export) = &mut known.export {
            export.geometry.size = size;
        }
        self.shared.size.swap(size, Ordering::AcqRel) != size
    }

    /// The key that the target is known by, if it is another one than at first.
    pub(crate) fn target_key(&self) -> Option<PublicKey> {
        self.shared.known().target_key
    }

    /// Whether a queue of the session has been connected to its target.
    pub(crate) fn is_connected(&self) -> bool {
        self.shared.is_connected.load(Ordering::Acquire)
    }

    /// The queue is connected: from now on its channels belong to the generation of `export`.
    pub(crate) fn connect(&self, export: ExportState) {
        let ordinal = {
            let mut known = self.shared.known();
            known.export = Some(export);
            self.shared.size.store(export.geometry.size, Ordering::Release);
            known.ordinal(export.generation)
        };
        self.shared.is_connected.store(true, Ordering::Release);
        let count = self.shared.written(self.queue).count();
        self.line().written.store(Written::new(ordinal, count).0, Ordering::Release);
    }

    /// Ends the session, with the `failure` if there is one: from now on no operation succeeds on
    /// any queue.
    pub(crate) fn end(&self, failure: Option<Failure>) {
        if let Some(failure) = failure {
            self.shared.known().failure.get_or_insert(failure);
        }
        self.shared.is_over.store(true, Ordering::SeqCst);
    }

    /// Whether the session has failed or ended.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::SeqCst)
    }

    /// Why the session has failed, if it has.
    pub(crate) fn failure(&self) -> Option<Failure> {
        // Loaded first: the queues of a session that is not over share no lock.
        if self.is_over() { self.shared.known().failure } else { None }
    }

    /// The queue is about to fail its operations, some of which may still be executed.
    pub(crate) fn fail_fast(&self) {
        self.shared.fails_fast.fetch_add(1, Ordering::SeqCst);
    }

    /// No failed operation of the queue can be executed any more.
    pub(crate) fn resume(&self) {
        self.shared.fails_fast.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a queue of the session fails its operations at once.
    pub(crate) fn fails_fast(&self) -> bool {
        self.shared.fails_fast.load(Ordering::SeqCst) > 0
    }

    /// Notes whether the target takes no BlockStatus on some channel of this queue.
    pub(crate) fn note_status(&self, is_lacking: bool) {
        self.line().lacks_status.store(is_lacking, Ordering::Relaxed);
    }

    /// Whether the target takes no BlockStatus on some channel of the session.
    pub(crate) fn lacks_status(&self) -> bool {
        self.shared.lines.iter().any(|line| line.lacks_status.load(Ordering::Relaxed))
    }

    /// A volatile modification of this queue is completed.
    pub(crate) fn wrote(&self) {
        let Written(before) = self.shared.written(self.queue);
        self.line().written.store(before + 1, Ordering::Release);
    }

    /// Those whose loss this queue tells of: itself, and the former session, which has no other.
    fn own(&self) -> [usize; 2] {
        [self.queue, self.shared.former()]
    }

    /// Whether the target's cache may hold modifications of this queue, or of the former session.
    pub(crate) fn is_dirty(&self) -> bool {
        self.own().into_iter().any(|writer| self.shared.is_dirty(writer))
    }

    /// Notes in `covers`, by writer, what a flush that begins now has to cover. `all`: of all
    /// queues, not only of this one.
    pub(crate) fn cover(&self, covers: &mut [Written], all: bool) {
        for (writer, cover) in covers.iter_mut().enumerate() {
            // In this order: what was lost before the queue was connected again is found so.
            let written = self.shared.written(writer);
            let (covered, lost) = (self.shared.covered(writer), self.shared.lost(writer));
            let counts = all || self.own().contains(&writer);
            *cover = match written {
                _ if !counts || written.count() <= covered => Written::NOTHING,
                _ if lost.count() > covered => Written::new(LOST, written.count()),
                _ => written,
            };
        }
    }

    /// A flush that had to cover `covers` has failed at the target. It may be one of the former
    /// session, issued again, and older than writes that the former session has completed: they
    /// stay at stake, once more, unless a loss of all of them was noticed meanwhile.
    pub(crate) fn keep_former(&self, covers: &[Written]) {
        const AGAIN: u64 = 2;
        let former = self.shared.former();
        let cover = covers[former];
        let is_first = cover != Written::NOTHING && cover.count() < AGAIN;
        if is_first && self.shared.is_dirty(former) {
            let again = Written::new(cover.ordinal(), AGAIN);
            self.shared.lines[former].written.store(again.0, Ordering::Release);
        }
    }

    /// Whether all that a flush of this queue had to cover is in the generation of the queue: if
    /// the flush succeeds, it is on stable storage.
    pub(crate) fn is_safe(&self, covers: &[Written]) -> bool {
        let mine = self.shared.written(self.queue).ordinal();
        covers.iter().all(|cover| *cover == Written::NOTHING || cover.ordinal() == mine)
    }

    /// The answer to a flush of this queue settles `covers`, what it had to cover: that is on
    /// stable storage, or reported as lost, and not reported again.
    pub(crate) fn settle(&self, covers: &[Written]) {
        for (flushed, cover) in self.line().flushed.iter().zip(covers) {
            if flushed.load(Ordering::Relaxed) < cover.count() {
                flushed.store(cover.count(), Ordering::Release);
            }
        }
    }

    /// An answer of this queue is about to report a loss. The program may die before the device has
    /// it, so until [then](Self::told) the next session of the device has to know of the loss.
    pub(crate) fn tell(&self) {
        let mut known = self.shared.known();
        let is_new = known.telling.iter().all(|(queue, _)| *queue != self.queue);
        if let Some(oldest) = self.shared.oldest(&known).filter(|_| is_new) {
            known.telling.push((self.queue, oldest));
        }
    }

    /// The answers of this queue that report losses are with the device.
    pub(crate) fn told(&self) {
        self.shared.known().telling.retain(|(queue, _)| *queue != self.queue);
    }

    /// The target has lost its cache, with the modifications of this queue and of the former
    /// session in it. If `is_told`, the flushes that have to cover them fail. Returns whether there
    /// were any.
    pub(crate) fn lose_cache(&self, is_told: bool) -> bool {
        let is_dirty = self.is_dirty();
        for writer in self.own().into_iter().filter(|it| self.shared.is_dirty(*it)) {
            let written = self.shared.written(writer);
            let oldest = self.shared.unreported(writer).unwrap_or(written).ordinal();
            if is_told {
                let lost = Written::new(oldest, written.count());
                self.shared.lines[writer].lost.store(lost.0, Ordering::Release);
            } else {
                self.line().flushed[writer].store(written.count(), Ordering::Release);
            }
        }
        is_dirty
    }

    /// The export as the next session of the device has to know it.
    pub(crate) fn resumable(&self) -> Option<ExportState> {
        let known = self.shared.known();
        let export = known.export?;
        let oldest = self.shared.oldest(&known).map(|ordinal| known.age(ordinal));
        let oldest = oldest.and_then(|age| known.generations.get(age).copied());
        Some(ExportState { generation: oldest.unwrap_or(export.generation), ..export })
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
pub(super) mod tests {
    use tyche_wire::{Geometry, Uuid};

    use super::*;

    const SIZE: u64 = 4096;

    pub(crate) fn export(generation: u128) -> ExportState {
        ExportState {
            target: Uuid::nil(),
            uuid: Uuid::nil(),
            geometry: Geometry { write_cache: true, ..Geometry::new(SIZE, 512) },
            generation: Uuid::from_u128(generation),
        }
    }

    /// Queues that are connected in the generation 1.
    pub(super) fn queues<const N: usize>() -> [QueueHandle; N] {
        let shared = SessionShared::new(N, None);
        let handles = std::array::from_fn(|queue| shared.handle(queue));
        handles.iter().for_each(|handle: &QueueHandle| handle.connect(export(1)));
        handles
    }

    /// The generation changes for a queue: its writes are lost if it has any.
    pub(super) fn renew(handle: &QueueHandle, now: u128) -> bool {
        let lost = handle.lose_cache(true);
        handle.connect(export(now));
        lost
    }

    pub(super) fn begin(handle: &QueueHandle) -> Vec<Written> {
        let mut covers = vec![Written::NOTHING; handle.shared().writers()];
        handle.cover(&mut covers, true);
        covers
    }

    /// A flush begins, and ends at the target with success: whether the device says so, too.
    pub(super) fn flush(handle: &QueueHandle) -> bool {
        end(handle, &begin(handle))
    }

    pub(super) fn end(handle: &QueueHandle, covers: &[Written]) -> bool {
        (handle.is_safe(covers), handle.settle(covers)).0
    }

    #[test]
    fn a_flush_covers_what_all_queues_have_completed_before_it_began() {
        let [one, other] = queues();
        one.wrote();
        other.wrote();
        let covers = begin(&one);
        other.wrote();
        assert!(end(&one, &covers));
        assert!(!one.is_dirty() && other.is_dirty(), "one of the other's came later");
        assert!(flush(&other));
        assert!(!other.is_dirty());
    }

    #[test]
    fn a_loss_fails_one_flush_on_whichever_queue() {
        let [one, other] = queues();
        one.wrote();
        assert!(renew(&one, 2));
        assert!(!renew(&other, 2), "it had nothing there");
        assert!(!flush(&other));
        assert!(flush(&other) && flush(&one));
    }

    #[test]
    fn a_queue_that_does_not_know_of_the_loss_yet_is_not_covered() {
        let [one, other] = queues();
        other.wrote();
        assert!(!renew(&one, 2));
        assert!(!flush(&one), "the write of the other queue is lost");
        assert!(flush(&one), "it was reported");
        other.wrote();
        assert!(!flush(&one), "its answer was late: the write is one of the lost, too");
        assert!(!renew(&other, 2), "that was reported as well");
        other.wrote();
        assert!(flush(&one));
    }

    #[test]
    fn a_flush_that_is_under_way_at_a_loss_fails() {
        let [one, other] = queues();
        other.wrote();
        let covers = begin(&one);
        renew(&one, 2);
        renew(&other, 2);
        assert!(!flush(&other), "the loss is reported here");
        assert!(!end(&one, &covers), "and where it matters, too");
    }

    #[test]
    fn each_of_two_flushes_that_begin_before_a_loss_is_reported_fails() {
        let [one, other] = queues();
        one.wrote();
        renew(&one, 2);
        let both = [begin(&one), begin(&other)];
        assert!(!end(&one, &both[0]) && !end(&other, &both[1]), "both cover what is lost");
        assert!(flush(&one) && flush(&other));
    }

    #[test]
    fn a_flush_from_before_a_write_says_nothing_of_its_loss() {
        let [one, other] = queues();
        let early = begin(&other);
        one.wrote();
        renew(&one, 2);
        assert!(end(&other, &early), "it covers nothing");
        assert!(!flush(&other) && flush(&one));
    }

    #[test]
    fn what_a_former_session_has_left_is_unknown() {
        for inherits in [true, false] {
            let shared = SessionShared::with(2, Some(export(1)), inherits);
            let other = shared.handle(1);
            other.connect(export(2));
            assert_eq!(flush(&other), !inherits);
            assert!(flush(&other));
        }
    }

    #[test]
    fn a_successor_begins_with_what_is_not_reported_or_not_known_everywhere() {
        let [one, other] = queues();
        let generation = || one.resumable().expect("it is connected").generation.as_u128();
        one.wrote();
        renew(&one, 2);
        assert_eq!(generation(), 1);
        assert!(!flush(&one));
        assert_eq!(generation(), 1, "the other queue is still there");
        renew(&other, 2);
        assert_eq!(generation(), 2);
        assert_eq!(one.export().map(|export| export.generation), Some(Uuid::from_u128(2)));
    }

    #[test]
    fn epochs_differ_for_as_long_as_they_are_remembered() {
        let [one, other] = queues();
        other.wrote();
        for generation in 2..70_000 {
            assert!(!renew(&one, generation));
            one.wrote();
            assert!(flush(&one) || generation == 2);
        }
        renew(&other, 69_999);
        other.wrote();
        assert!(flush(&one));
    }

    #[test]
    fn a_new_size_is_news_once() {
        let [one, other] = queues();
        assert!(one.resize(SIZE * 2));
        assert!(!other.resize(SIZE * 2));
        let known = other.export().map(|export| export.geometry.size);
        assert_eq!((other.size(), known), (SIZE * 2, Some(SIZE * 2)));
    }
}
