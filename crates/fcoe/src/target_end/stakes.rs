//! The stakes of initiators: writes that are done, and in the cache of a disk.
//!
//! A store counts its losses. Each initiator that had writes in the cache then has a flush fail,
//! once, and nobody else has: see [`Losses`]. That is known of an initiator by its name, on
//! whichever interface it is logged in, and when it has logged out.
//!
//! A target that was started again knows nothing of the writes of its former life, which may be in
//! the cache still, nor of those to a unit that was removed and added again. So each initiator has
//! one at stake in a disk whose generation continues, from when the unit was added until its first
//! flush: if there was no loss, all is well; otherwise it is told. An initiator that has written
//! nothing knows that.
//!
//! A machine that has gone back to an earlier state knows nothing of what was written since, nor of
//! initiators that have logged in since. So each has writes at stake then, whenever it comes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tyche_engine::Exported;
use tyche_fc::wire::Wwn;

use crate::losses::{Flushed, Losses, Since};

/// The most initiators that are remembered.
const ALL_MAX: usize = 1024;
/// How often an initiator is told of a loss whose confirmation does not come.
const TELLINGS_MAX: u16 = 256;

/// The stake of an initiator in one logical unit, from its first write or flush on.
pub(super) struct Stake {
    losses: Losses,
    /// How often its disk was distrusted: each time writes count that are not known.
    distrusts: AtomicU64,
    /// Failed flushes since the last one that was confirmed.
    tellings: AtomicU16,
}

/// The known losses of a disk.
#[derive(Clone, Copy)]
pub(super) struct KnownLosses {
    /// How often it may have lost writes.
    losses: u64,
    /// How often because of a [distrust](Exported::distrust).
    distrusts: u64,
}

impl KnownLosses {
    /// All until now. To be called when a write or a flush is begun, and when it has ended.
    pub(super) fn of(disk: &Exported) -> Self {
        // In this order: what is distrusted is lost.
        let distrusts = disk.distrusts();
        Self { losses: disk.losses(), distrusts }
    }
}

/// The stakes of all initiators in one logical unit, which end with it.
pub(super) struct UnitStakes {
    all: Mutex<BTreeMap<Wwn, Arc<Stake>>>,
    /// The losses when the unit was added, if its generation is one of before.
    former: Option<KnownLosses>,
}

impl UnitStakes {
    /// Those in a unit that is added. See [`TargetUnit::continues`](super::TargetUnit::continues).
    pub(super) fn new(disk: &Exported, continues: bool) -> Self {
        Self { all: Mutex::default(), former: continues.then(|| KnownLosses::of(disk)) }
    }

    /// The stake of an initiator that writes or flushes. Of those that are away, as many are
    /// remembered as there are places for initiators.
    pub(super) fn of(&self, wwpn: Wwn, known: KnownLosses) -> Arc<Stake> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ALL_MAX && !all.contains_key(&wwpn) {
            all.retain(|_, stake| Arc::strong_count(stake) > 1);
        }
        let stake = || Arc::new(self.first_stake(known));
        Arc::clone(all.entry(wwpn).or_insert_with(stake))
    }

    /// The stake of an initiator that has neither written nor flushed yet.
    fn first_stake(&self, known: KnownLosses) -> Stake {
        let stake = Stake::new();
        // Losses of before are told by the generation.
        stake.losses.notice(self.former.unwrap_or(known).losses);
        if self.former.is_some() {
            stake.losses.write_unknown();
        }
        stake
    }
}

impl Stake {
    fn new() -> Self {
        let (losses, tellings) = (Losses::of_initiator(), AtomicU16::new(0));
        Self { losses, distrusts: AtomicU64::new(0), tellings }
    }

    /// The losses that it knows of, with all of its disk until now.
    fn noticed(&self, known: KnownLosses) -> &Losses {
        if self.distrusts.load(Ordering::Acquire) < known.distrusts {
            // Twice, if another thread does the same: then it is told twice.
            self.losses.lose_unknown();
            self.distrusts.fetch_max(known.distrusts, Ordering::AcqRel);
        }
        self.losses.notice(known.losses);
        &self.losses
    }

    /// A write is begun.
    pub(super) fn begin_write(&self, known: KnownLosses) -> Since {
        self.noticed(known).begin_write()
    }

    /// It is done, on that thread of the port.
    pub(super) fn written(&self, thread: usize, known: KnownLosses, since: Since) {
        self.noticed(known).written(thread, since);
    }

    /// A flush is begun.
    pub(super) fn begin_flush(&self, known: KnownLosses) -> Since {
        let mut since = self.noticed(known).begin_flush();
        since.distrusts = known.distrusts;
        since
    }

    /// A flush has ended. Without a write there is nothing that it could have failed to do.
    pub(super) fn flushed(&self, known: KnownLosses, (since, is_done): (&Since, bool)) -> Flushed {
        let flushed = self.noticed(known).flushed(since, is_done);
        if known.distrusts == since.distrusts { flushed } else { Flushed::Lost }
    }

    /// The initiator is told that a flush has failed. If it `confirms` that, it is told again until
    /// it has.
    pub(super) fn tell(&self, since: &Since, confirms: bool) {
        let tellings = self.tellings.fetch_add(1, Ordering::Relaxed) + 1;
        if !confirms || tellings >= TELLINGS_MAX {
            self.confirm(since);
        }
    }

    /// The initiator knows that a flush has failed.
    pub(super) fn confirm(&self, since: &Since) {
        self.losses.tell(since);
        self.tellings.store(0, Ordering::Relaxed);
    }
}
