//! The stakes of initiators: writes that are done, and in the cache of a disk.
//!
//! A store counts its losses. Each initiator that had writes in the cache then has a flush fail,
//! once, and nobody else has: see [`Losses`]. That is known of an initiator by its name, on
//! whichever interface it is logged in, and when it has logged out.
//!
//! A target that was started again knows nothing of the writes of its former life, which may be in
//! the cache still. So each initiator has one at stake in a disk whose generation continues, until
//! its first flush: if that is done, all is well; if it fails, it is told. An initiator that has
//! written nothing knows that.
//!
//! A machine that has gone back to an earlier state knows nothing of what was written since, nor of
//! initiators that have logged in since. So each has writes at stake then, whenever it comes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tyche_engine::Exported;
use tyche_fc::wire::Wwn;

use crate::losses::{Flushed, Losses, Since};

/// The most initiators that are remembered.
const ALL_MAX: usize = 1024;
/// How often an initiator is told of a loss whose confirmation does not come.
const TELLINGS_MAX: u16 = 256;

/// The stakes of one initiator.
pub(super) struct Stakes {
    /// By logical unit, in the order of the target's, also whether it continues.
    units: Box<[(OnceLock<Stake>, bool)]>,
    /// Whether it confirms that it was told of a loss.
    confirms: AtomicBool,
}

/// The stake of an initiator in one logical unit, from its first write or flush on.
struct Stake {
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

impl Stake {
    fn new(known: KnownLosses, continues: bool) -> Self {
        let (losses, tellings) = (Losses::of_initiator(), AtomicU16::new(0));
        // Losses until now are told by the generation.
        losses.notice(known.losses);
        if continues {
            losses.write_unknown();
        }
        Self { losses, distrusts: AtomicU64::new(0), tellings }
    }
}

/// The stakes of all initiators.
#[derive(Default)]
pub(super) struct AllStakes(Mutex<BTreeMap<Wwn, Arc<Stakes>>>);

impl AllStakes {
    /// Those of an initiator that logs in. Of those that are away, as many are remembered as there
    /// are places for initiators.
    /// `units`: by logical unit, whether it continues.
    pub(super) fn of(&self, wwpn: Wwn, units: impl Iterator<Item = bool>) -> Arc<Stakes> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ALL_MAX && !all.contains_key(&wwpn) {
            all.retain(|_, stakes| Arc::strong_count(stakes) > 1);
        }
        Arc::clone(all.entry(wwpn).or_insert_with(|| Arc::new(Stakes::new(units))))
    }
}

impl Stakes {
    fn new(units: impl Iterator<Item = bool>) -> Self {
        let units = units.map(|continues| (OnceLock::new(), continues)).collect();
        Self { units, confirms: AtomicBool::new(false) }
    }

    /// Sets whether the initiator confirms that it was told of a loss.
    pub(super) fn expect_confirmation(&self, confirms: bool) {
        self.confirms.store(confirms, Ordering::Relaxed);
    }

    /// A write is begun.
    pub(super) fn begin_write(&self, unit: usize, known: KnownLosses) -> Since {
        self.stake(unit, known).losses.begin_write()
    }

    /// It is done.
    pub(super) fn written(&self, unit: usize, known: KnownLosses, since: Since) {
        self.stake(unit, known).losses.written(0, since);
    }

    /// A flush is begun.
    pub(super) fn begin_flush(&self, unit: usize, known: KnownLosses) -> Since {
        let mut since = self.stake(unit, known).losses.begin_flush();
        since.distrusts = known.distrusts;
        since
    }

    /// A flush has ended. Without a write there is nothing that it could have failed to do.
    pub(super) fn flushed(
        &self,
        unit: usize,
        known: KnownLosses,
        (since, is_done): (&Since, bool),
    ) -> Flushed {
        let flushed = self.stake(unit, known).losses.flushed(since, is_done);
        if known.distrusts == since.distrusts { flushed } else { Flushed::Lost }
    }

    /// The stake in a unit, with all losses of its disk until now.
    fn stake(&self, unit: usize, known: KnownLosses) -> &Stake {
        let (stake, continues) = &self.units[unit];
        let stake = stake.get_or_init(|| Stake::new(known, *continues));
        if stake.distrusts.load(Ordering::Acquire) < known.distrusts {
            // Twice, if another thread does the same: then it is told twice.
            stake.losses.lose_unknown();
            stake.distrusts.fetch_max(known.distrusts, Ordering::AcqRel);
        }
        stake.losses.notice(known.losses);
        stake
    }

    /// The initiator is told that a flush has failed. If it confirms that, it is told again until
    /// it has.
    pub(super) fn tell(&self, unit: usize, since: &Since) {
        let count = |stake: &Stake| stake.tellings.fetch_add(1, Ordering::Relaxed) + 1;
        let tellings = self.units[unit].0.get().map_or(0, count);
        if !self.confirms.load(Ordering::Relaxed) || tellings >= TELLINGS_MAX {
            self.confirm(unit, since);
        }
    }

    /// The initiator knows that a flush has failed.
    pub(super) fn confirm(&self, unit: usize, since: &Since) {
        if let Some(Stake { losses, tellings, .. }) = self.units[unit].0.get() {
            losses.tell(since);
            tellings.store(0, Ordering::Relaxed);
        }
    }
}
