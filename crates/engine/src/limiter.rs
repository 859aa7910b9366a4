//! Limits of requests and of bytes, shared by threads without a lock, and the lines of requests
//! that wait at them.
//!
//! A limiter is a token bucket for requests and another for bytes. A bucket is one number: the time
//! when all that was taken from it is earned (the virtual scheduling algorithm of ITU-T I.371). To
//! take an amount moves that time by what the amount costs, and returns when it may be used:
//!
//! ```text
//!                     now        earned_at   earned_at + price
//! ──────────────────────┼────────────┼───────────┼──────────> time
//!          ├──── BURST ─┼────────────┤
//!        usable: earned_at - BURST is over, so it may be used now
//! ```
//!
//! So whoever waits has a turn already. A [`Line`] takes for the first of its requests only, and
//! for [`PART`] bytes at a time. Hence lines of several threads that wait at one limiter take
//! turns, whichever thread wakes first, and however many requests wait in each.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

use tyche_time::Instant;

use crate::sync::{AtomicU64, Ordering};

/// The time for which a bucket saves up. Shorter: bursts of hosts wait though they stay within the
/// limit on average. Longer: others feel them.
const BURST: Duration = Duration::from_millis(100);
/// Bytes that are taken at once for a large request. Less: more wake-ups for each. More: a host
/// with small requests waits longer beside one with large ones.
const PART: u32 = 16 << 10;
/// Ticks of a bucket in a nanosecond: the price of a request is exact enough at millions of them.
const TICKS: u64 = 16;
const TICKS_PER_SECOND: u128 = 1_000_000_000 * TICKS as u128;

/// The most requests and bytes in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests of any kind; `None`: any number.
    pub iops: Option<NonZeroU64>,
    /// Bytes read and written, together; `None`: any number.
    pub bytes_per_second: Option<NonZeroU64>,
}

impl RateLimit {
    /// The lower one of each.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        let min = |a: Option<NonZeroU64>, b| a.into_iter().chain(b).min();
        Self {
            iops: min(self.iops, other.iops),
            bytes_per_second: min(self.bytes_per_second, other.bytes_per_second),
        }
    }
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    /// The amount that is earned in a second; 0: no limit.
    rate: AtomicU64,
    /// When all that was taken is earned, in ticks.
    earned_at: AtomicU64,
}

impl Bucket {
    fn new() -> Self {
        Self { rate: AtomicU64::new(0), earned_at: AtomicU64::new(0) }
    }

    /// Returns whether the rate is another one.
    fn set(&self, rate: Option<NonZeroU64>) -> bool {
        let rate = rate.map_or(0, NonZeroU64::get);
        let differs = self.rate.swap(rate, Ordering::Relaxed) != rate;
        if differs {
            // What was taken at another price is forgotten. Who takes after it sees the new rate.
            self.update(|_| 0);
        }
        differs
    }

    /// Takes an amount; returns since when it may be used, which is later the later it is taken.
    fn take(&self, now: Instant, amount: u64) -> Instant {
        let ticks = now.0.saturating_mul(TICKS);
        loop {
            let rate = self.rate.load(Ordering::Relaxed);
            if rate == 0 || amount == 0 {
                return Instant(0);
            }
            let price = u128::from(amount) * TICKS_PER_SECOND / u128::from(rate);
            let price = u64::try_from(price).unwrap_or(u64::MAX);
            let before =
                self.update(|earned_at| earned_at.max(ticks).saturating_add(price)).max(ticks);
            if self.rate.load(Ordering::Relaxed) == rate {
                return Instant(0) + Duration::from_nanos(before / TICKS).saturating_sub(BURST);
            }
            // It may be at the price of a former rate.
            self.update(|earned_at| earned_at.saturating_sub(price));
        }
    }

    /// Changes the time when all is earned; returns the time before.
    fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
        let change = |earned_at| Some(change(earned_at));
        let update = self.earned_at.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        let (Ok(before) | Err(before)) = update;
        before
    }
}

/// A limit of requests and bytes. Any number of threads take from it.
#[derive(Debug)]
pub struct Limiter {
    requests: Bucket,
    bytes: Bucket,
    /// How often the limit has changed.
    changes: AtomicU64,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { requests: Bucket::new(), bytes: Bucket::new(), changes: AtomicU64::new(0) }
    }
}

impl Limiter {
    /// Changes the limit. What waits at it waits for the new one, when its thread looks again.
    pub fn set(&self, limit: RateLimit) {
        let of_requests = self.requests.set(limit.iops);
        if self.bytes.set(limit.bytes_per_second) || of_requests {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The limit.
    pub fn limit(&self) -> RateLimit {
        let rate = |bucket: &Bucket| NonZeroU64::new(bucket.rate.load(Ordering::Relaxed));
        RateLimit { iops: rate(&self.requests), bytes_per_second: rate(&self.bytes) }
    }

    /// Whether there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        let rates = [&self.requests, &self.bytes].map(|it| it.rate.load(Ordering::Relaxed));
        rates != [0; 2]
    }

    fn take(&self, now: Instant, requests: u64, bytes: u64) -> Instant {
        self.requests.take(now, requests).max(self.bytes.take(now, bytes))
    }
}

/// The progress of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Nothing is to be done before [`Line::next_at`].
    Waits,
    /// A part is taken, and more is to be taken now; other lines are to have their turns before.
    Pays,
    /// The request is to be executed. With the time that it has waited.
    Passes(T, Duration),
}

/// Requests of one host that wait at limiters, in order.
#[derive(Debug)]
pub struct Line<T> {
    /// Each with its bytes, and since when it waits.
    waiting: VecDeque<(T, u32, Instant)>,
    /// Bytes that were taken for the first; `None`: not even the request.
    taken: Option<u32>,
    /// Since when what was taken last may be used.
    usable_at: Instant,
    /// Changes of the limiters that this accounts for.
    changes: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        let waiting = VecDeque::new();
        Self { waiting, taken: None, usable_at: Instant(0), changes: 0 }
    }
}

impl<T> Line<T> {
    /// Number of requests that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a request that moves `len` bytes.
    pub fn push(&mut self, now: Instant, request: T, len: u32) {
        self.waiting.push_back((request, len, now));
    }

    /// Has the line go on at once if one of its limits has changed.
    pub fn look<'l>(&mut self, now: Instant, limiters: impl Iterator<Item = &'l Limiter>) {
        let changes = limiters.map(|it| it.changes.load(Ordering::Relaxed)).sum();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.usable_at = now;
        }
    }

    /// Goes on with the first request: takes a part of what it costs, and removes it when all of
    /// that is taken and its turn has come.
    pub fn step<'l>(
        &mut self,
        now: Instant,
        limiters: impl Iterator<Item = &'l Limiter> + Clone,
    ) -> Step<T> {
        let Some(&(_, len, since)) = self.waiting.front() else { return Step::Waits };
        self.look(now, limiters.clone());
        if self.usable_at <= now && self.taken != Some(len) {
            let (requests, taken) = self.taken.map_or((1, 0), |taken| (0, taken));
            let part = (len - taken).min(PART);
            let usable = limiters.map(|it| it.take(now, requests, part.into()));
            self.usable_at = usable.max().unwrap_or(now);
            self.taken = Some(taken + part);
        }
        if self.usable_at > now {
            return Step::Waits;
        }
        if self.taken != Some(len) {
            return Step::Pays;
        }
        self.taken = None;
        let first = self.waiting.pop_front();
        first.map_or(Step::Waits, |(request, ..)| Step::Passes(request, now.since(since)))
    }

    /// The bytes that the first request moves.
    pub fn first_len(&self) -> Option<u32> {
        self.waiting.front().map(|(_, len, _)| *len)
    }

    /// When [`step`](Self::step) can go on; `None` if no request waits. Of several lines, the
    /// earliest has its turn.
    pub fn next_at(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.usable_at)
    }

    /// Keeps the requests of which `stays` says so, and removes the others. It is asked once about
    /// each, in order.
    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        let (taken, mut is_first) = (&mut self.taken, true);
        self.waiting.retain(|(request, ..)| {
            let stays = stays(request);
            if std::mem::take(&mut is_first) && !stays {
                *taken = None;
            }
            stays
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
