//! A wrapper that drops, duplicates, reorders, corrupts and delays frames.
//!
//! The faults of a frame are its *fate*. The fate of the n-th frame in a direction is a pure
//! function of the seed, n, and the [`FaultPlan`] at that moment: the same seed and the same frames
//! give the same faults, whatever the batches and the clock. The clock only decides when frames
//! leave that are delayed, or that wait in vain to be overtaken. The plan is shared and can be
//! changed while traffic flows, e.g. to heal the link and check that transfers finish.
//!
//! ```text
//!  send ──► fate ──► [ lane, in order of departure ] ──► inner link
//!  receive ◄──────── [ lane, in order of departure ] ◄── fate ◄── inner link
//! ```
//!
//! A lane holds copies of frames until they are due. Frames that leave by time, not by a call, need
//! a caller: [`wait_fd`](Link::wait_fd) covers the inner link *and* a timer, and
//! [`receive`](Link::receive) moves both lanes. While the plan has no faults, frames are neither
//! copied nor held. An error of a send may concern frames taken earlier; the one that the inner
//! link refused is lost.

mod lane;
mod plan;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use tyche_counters::{CounterGroup, Reading};

use crate::{HEAD, Link, RxBatch, TxBatch, TxVectors};
use lane::Lane;
pub use plan::{FaultCounts, FaultPlan};

/// The most frames held in one direction. Beyond it, a send takes no more, and a receive leaves
/// frames in the inner link.
pub const HELD_MAX: usize = 4096;

/// The pause before a held frame that the inner link refused is tried again.
const RETRY: Duration = Duration::from_micros(100);

/// The most frames that leave a lane at once.
const FLUSH: usize = 64;

/// The direction of the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Frames that are sent.
    Send,
    /// Frames that are received.
    Receive,
    /// Both, each with random numbers of its own.
    Both,
}

/// A link with faults.
pub struct FaultLink<L> {
    inner: L,
    plan: FaultPlan,
    side: Side,
    outgoing: Lane,
    incoming: Lane,
    vectors: TxVectors,
    timer: Timer,
    /// Covers the inner link and the timer.
    both: OwnedFd,
}

impl<L: Link> FaultLink<L> {
    /// Wraps `inner` with the faults of `plan`, which may change at any time.
    ///
    /// # Errors
    /// Those of `timerfd_create(2)` and `epoll_ctl(2)`.
    pub fn new(inner: L, seed: u64, side: Side, plan: FaultPlan) -> io::Result<Self> {
        let timer = Timer::new()?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&both, timer.fd.as_fd())?;
        watch(&both, inner.wait_fd())?;
        Ok(Self {
            inner,
            plan,
            side,
            outgoing: Lane::new(seed),
            // Any other constant would do; the directions must not share their fates.
            incoming: Lane::new(!seed),
            vectors: TxVectors::new(FLUSH, 1),
            timer,
            both,
        })
    }

    /// The plan, to change it or to read its counts.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Sends held frames that are due.
    fn flush(&mut self, now: Instant) -> io::Result<()> {
        loop {
            let mut batch = self.vectors.batch();
            for frame in self.outgoing.due(now).take(FLUSH) {
                batch.push_whole(frame, HEAD);
            }
            if batch.is_empty() {
                return Ok(());
            }
            let ready = batch.len();
            let result = self.inner.send(&batch);
            match result {
                Ok(sent) => {
                    self.outgoing.release(sent);
                    if sent < ready {
                        return Ok(());
                    }
                }
                // The first frame was refused. Nobody asks for it again, so it is lost as on a
                // wire; otherwise it would block all others for ever.
                Err(error) => {
                    self.outgoing.release(1);
                    return Err(error);
                }
            }
        }
    }

    /// Sets the timer to the time at which the next held frame is due.
    fn arm(&mut self, now: Instant) -> io::Result<()> {
        // A frame that is due waits for room in the inner link or in the caller's batch.
        let retry = |due: Instant| if due <= now { now + RETRY } else { due };
        let outgoing = self.outgoing.next_due().map(retry);
        let incoming = self.incoming.next_due();
        self.timer.set(outgoing.into_iter().chain(incoming).min(), now)
    }
}

impl<L: Link> crate::Wrapper for FaultLink<L> {
    type Inner = L;

    fn inner(&self) -> &L {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut L {
        &mut self.inner
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        if self.outgoing.is_empty() && self.incoming.is_empty() {
            let quiet = self.side == Side::Send || self.plan.is_quiet();
            if quiet {
                let received = self.inner.receive(batch)?;
                self.incoming.pass(received);
                self.timer.clear()?;
                return Ok(received);
            }
        }
        let now = Instant::now();
        let flushed = self.flush(now);
        batch.clear();
        let received = if self.incoming.room() >= 2 * batch.capacity() {
            self.inner.receive(batch)
        } else {
            Ok(0)
        };
        let plan = (self.side != Side::Send).then_some(&self.plan);
        for frame in batch.iter() {
            self.incoming.take([frame.head, frame.payload].into_iter(), plan, now);
        }
        batch.clear();
        let mut taken = 0;
        for frame in self.incoming.due(now).take(batch.capacity()) {
            // The frame fitted an earlier batch of the caller. A smaller one loses it.
            let _ = batch.push([frame]);
            taken += 1;
        }
        self.incoming.release(taken);
        self.arm(now)?;
        if batch.is_empty() {
            received?;
            flushed?;
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let suffers = self.side != Side::Receive;
        if self.outgoing.is_empty() && (!suffers || self.plan.is_quiet()) {
            let sent = self.inner.send(batch)?;
            self.outgoing.pass(sent);
            return Ok(sent);
        }
        let now = Instant::now();
        let plan = suffers.then_some(&self.plan);
        let mut taken = 0;
        for frame in batch.frames() {
            if self.outgoing.room() < 2 {
                break;
            }
            self.outgoing.take(frame.parts(), plan, now);
            taken += 1;
        }
        let flushed = self.flush(now);
        self.arm(now)?;
        flushed.map(|()| taken)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        // The inner link may have opened another socket, and closed this one.
        watch(&self.both, self.inner.wait_fd()).expect("an epoll takes another socket");
        self.both.as_fd()
    }

    fn counters(&self) -> Vec<Reading> {
        let mut counters = self.inner.counters();
        counters.extend(self.plan.counts().iter());
        counters
    }
}

impl<L: Link> std::fmt::Debug for FaultLink<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultLink({}, {:?})", self.inner.name(), self.plan)
    }
}

/// Has an epoll cover a descriptor, which it may cover already.
fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    match epoll::add(epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
        Err(Errno::EXIST) => Ok(()),
        result => Ok(result?),
    }
}

/// A timer that makes a descriptor readable.
struct Timer {
    fd: OwnedFd,
    armed: Option<Instant>,
}

impl Timer {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: timerfd_create(TimerfdClockId::Monotonic, flags)?, armed: None })
    }

    /// Arms the timer for `at`. This also clears an earlier expiry.
    fn set(&mut self, at: Option<Instant>, now: Instant) -> io::Result<()> {
        let Some(at) = at else { return self.clear() };
        if self.armed == Some(at) && at > now {
            return Ok(());
        }
        // Zero would disarm it.
        let wait = at.saturating_duration_since(now).max(Duration::from_nanos(1));
        self.program(Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        })?;
        self.armed = Some(at);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        if self.armed.take().is_some() {
            self.program(Timespec { tv_sec: 0, tv_nsec: 0 })?;
        }
        Ok(())
    }

    fn program(&self, it_value: Timespec) -> io::Result<()> {
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }
}
