//! The state that the lanes of a session share.
//!
//! The first lane has the port: it logs in, asks for the properties of the disk, and decides when
//! the session is ready, is over or ends. The other lanes have commands only.
//!
//! ```text
//!              state: address, login, disk, end
//! first lane ──────────────────────────────────► further lanes
//!            ◄──────────────────────────────────
//!              number of the state taken; reports
//! ```
//!
//! The first lane always publishes the whole state. So a lane that sleeps through several changes
//! misses nothing, and there is no queue that could be full. The state has a number, which is an
//! atomic that is written only when the state changes. Each lane compares it between frames, so no
//! request takes the lock.
//!
//! Lost writes are not part of the state: a lane has to know of a loss before a command of another
//! lane ends, and the state would come too late. So all lanes share the counters of [`Losses`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_fc::port::Login;
use tyche_fc::wire::{Mac, PortId};
use tyche_scsi::initiator::Disk;

use super::generations::Generations;
use crate::losses::Losses;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// The state of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// The address of the port, once it has one.
    pub(super) own: Option<(PortId, Mac)>,
    /// The login with the target, if there is one.
    pub(super) login: Option<Login>,
    /// Logins that have ended.
    pub(super) logouts: u64,
    /// The disk, once it is known.
    pub(super) disk: Option<Disk>,
    /// Whether requests are executed.
    pub(super) is_ready: bool,
    /// Whether requests fail until the disk is ready again.
    pub(super) fails_fast: bool,
    /// Whether all requests fail, for good.
    pub(super) is_over: bool,
    /// Whether the threads end when no request is in progress.
    pub(super) is_stopped: bool,
}

/// The number that a lane has taken which is not there, or no longer: it waits for none.
const ABSENT: u64 = u64::MAX;

/// News of a lane for the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneNews {
    /// It can't go on with this login, by the number of those before it.
    pub(super) restart: Option<u64>,
    /// The login with which frames are lost, by the same number.
    pub(super) is_lossy: Option<u64>,
    /// The disk says that it has another size, or another generation.
    pub(super) is_changed: bool,
    /// Writes that were done may be lost: the next flush fails.
    pub(super) is_cache_lost: bool,
    /// It has ended with requests in progress: all others fail, too.
    pub(super) is_aborted: bool,
}

/// The state that the lanes of a session share. The first lane writes it and the others confirm
/// that they have taken it; requests read atomics only.
pub struct SessionShared {
    wake: Box<dyn Fn(usize) + Send + Sync>,
    inner: Mutex<Inner>,
    /// The number of the state. Changes with it, under the lock.
    version: AtomicU64,
    /// Whether lanes have told something that the first has not taken yet. Changes under the lock.
    is_told: AtomicBool,
    losses: Losses,
    generations: Generations,
}

struct Inner {
    state: State,
    /// By lane: the number of the state that it has taken in.
    taken: Box<[u64]>,
    told: LaneNews,
}

/// The place of a lane in its session.
#[derive(Clone)]
pub struct LaneHandle {
    shared: Arc<SessionShared>,
    lane: usize,
}

impl SessionShared {
    /// For a session with that many lanes. `wake` wakes the thread of a lane, for which there is
    /// something new.
    ///
    /// # Panics
    /// Without a lane.
    pub fn new(lanes: usize, wake: impl Fn(usize) + Send + Sync + 'static) -> Arc<Self> {
        assert!(lanes > 0, "a session has a lane");
        let inner = Inner {
            state: State::default(),
            taken: vec![0; lanes].into(),
            told: LaneNews::default(),
        };
        Arc::new(Self {
            wake: Box::new(wake),
            inner: Mutex::new(inner),
            version: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
            losses: Losses::new(lanes),
            generations: Generations::default(),
        })
    }

    /// The place of a lane.
    ///
    /// # Panics
    /// If the session does not have that lane.
    pub fn handle(self: &Arc<Self>, lane: usize) -> LaneHandle {
        assert!(lane < self.lanes(), "no lane {lane}");
        LaneHandle { shared: Arc::clone(self), lane }
    }

    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.lock().taken.len()
    }

    /// The session follows another, which may have left writes in the cache of the disk.
    pub(super) fn inherit(&self) {
        self.losses.written(0, self.losses.begin_write());
    }

    /// Ends the session without its first lane, if that has ended already or never began.
    pub(super) fn end(self: &Arc<Self>) {
        let State { logouts, .. } = self.lock().state;
        let ended =
            State { logouts: logouts + 1, is_over: true, is_stopped: true, ..State::default() };
        self.handle(0).publish(&ended);
    }

    /// Whether no further lane is there, or all have left.
    pub(super) fn is_first_alone(&self) -> bool {
        self.lock().taken[1..].iter().all(|taken| *taken == ABSENT)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaneHandle {
    /// Number of the lane.
    pub(super) fn lane(&self) -> usize {
        self.lane
    }

    /// Number of lanes.
    pub(super) fn lanes(&self) -> usize {
        self.shared.lanes()
    }

    /// The losses of the disk that are known by its generation.
    pub(super) fn generations(&self) -> &Generations {
        &self.shared.generations
    }

    /// Writes that may be lost.
    pub(super) fn losses(&self) -> &Losses {
        &self.shared.losses
    }

    /// Publishes the state, as the first lane; returns its number.
    pub(super) fn publish(&self, state: &State) -> u64 {
        let (lanes, version) = {
            let mut inner = self.shared.lock();
            inner.state = *state;
            let version = self.shared.version.load(Ordering::Relaxed) + 1;
            inner.taken[self.lane] = version;
            self.shared.version.store(version, Ordering::Release);
            (inner.taken.len(), version)
        };
        (1..lanes).for_each(|lane| (self.shared.wake)(lane));
        version
    }

    /// The state with its number, if that is not the one that is known.
    pub(super) fn state(&self, known: u64) -> Option<(u64, State)> {
        if self.shared.version.load(Ordering::Acquire) == known {
            return None;
        }
        let inner = self.shared.lock();
        Some((self.shared.version.load(Ordering::Relaxed), inner.state))
    }

    /// The lane has taken in the state with that number: nothing of an earlier one is at work.
    pub(super) fn confirm(&self, version: u64) {
        self.with_told(|inner| inner.taken[self.lane] = version);
    }

    /// The lane is there, of which nothing is at work: it takes in what changes from now on.
    pub(super) fn enter(&self) {
        let mut inner = self.shared.lock();
        inner.taken[self.lane] = self.shared.version.load(Ordering::Relaxed);
    }

    /// The lane is not there, or no longer: nothing of it is at work, and nobody waits for it.
    pub(super) fn leave(&self) {
        self.with_told(|inner| inner.taken[self.lane] = ABSENT);
    }

    /// The lane ends with requests in progress: so the session does.
    pub(super) fn abort(&self) {
        self.tell(LaneNews { is_aborted: true, ..LaneNews::default() });
    }

    /// Whether all lanes have taken in the state with that number.
    pub(super) fn is_everywhere(&self, version: u64) -> bool {
        self.shared.lock().taken.iter().all(|taken| *taken >= version)
    }

    /// Tells the first lane.
    pub(super) fn tell(&self, told: LaneNews) {
        self.with_told(|inner| {
            let all = &mut inner.told;
            all.restart = all.restart.max(told.restart);
            all.is_lossy = all.is_lossy.max(told.is_lossy);
            all.is_changed |= told.is_changed;
            all.is_cache_lost |= told.is_cache_lost;
            all.is_aborted |= told.is_aborted;
        });
    }

    fn with_told(&self, change: impl FnOnce(&mut Inner)) {
        {
            let mut inner = self.shared.lock();
            change(&mut inner);
            self.shared.is_told.store(true, Ordering::Release);
        }
        (self.shared.wake)(0);
    }

    /// Takes what lanes have told, as the first; `None` if there is nothing new of them.
    pub(super) fn take_told(&self) -> Option<LaneNews> {
        if !self.shared.is_told.load(Ordering::Acquire) {
            return None;
        }
        let mut inner = self.shared.lock();
        self.shared.is_told.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut inner.told))
    }
}
