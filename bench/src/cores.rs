//! How far the cores of the two sides are from each other.
//!
//! All that one side sends is in the cache of its core, and the other side's core has to get it
//! from there. Between cores that share a cache, a line takes a few tens of nanoseconds; between
//! others, several times as long, and then large requests have half the throughput. The host of a
//! virtual machine moves its cores about, every few seconds or minutes. So a figure counts only if
//! the cores were near before and after it was measured.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::process::{Doing, Result, Stop};
use crate::result::Spread;

/// Cores are near up to so many times the least distance seen.
const NEAR: f64 = 3.0;
/// How often a figure is measured, before it is taken as it is.
const ATTEMPTS: u32 = 4;
/// Time between two looks while the cores are far.
const LOOK: Duration = Duration::from_millis(500);
/// Round trips of a look: bursts, of which the middle one counts, and round trips in each.
const BURSTS: usize = 15;
const TRIPS: u32 = 2000;

/// The distance of the cores in the course of a run.
pub(crate) struct Cores {
    /// A core of each side: the first.
    pair: [usize; 2],
    /// The least distance seen, in nanoseconds.
    least_ns: f64,
    /// How much longer the run may take, so that cores are near.
    patience: Duration,
}

impl Cores {
    /// `pair` is a core of each side; `patience` bounds the time that waiting and measuring again
    /// may take in the whole run.
    pub(crate) fn new(pair: [usize; 2], patience: Duration) -> Self {
        Self { pair, least_ns: f64::INFINITY, patience }
    }

    /// Measures something while the cores are near; returns their distance as well, in nanoseconds,
    /// which is longer if they did not come near in time.
    pub(crate) fn near<T>(
        &mut self,
        stop: &Stop,
        mut measure: impl FnMut() -> Result<T>,
    ) -> Result<(T, f64)> {
        let mut attempt = 1;
        loop {
            let before = self.approach(stop)?;
            let start = Instant::now();
            let measured = measure()?;
            let distance = before.max(self.look()?);
            if self.is_near(distance) || self.patience.is_zero() || attempt == ATTEMPTS {
                return Ok((measured, distance));
            }
            self.patience = self.patience.saturating_sub(start.elapsed());
            attempt += 1;
        }
    }

    /// Waits until the cores are near, as long as patience lasts; returns their distance.
    fn approach(&mut self, stop: &Stop) -> Result<f64> {
        let mut distance = self.look()?;
        while !self.is_near(distance) && !self.patience.is_zero() {
            let start = Instant::now();
            stop.pause(LOOK)?;
            distance = self.look()?;
            self.patience = self.patience.saturating_sub(start.elapsed());
        }
        Ok(distance)
    }

    /// The distance now.
    fn look(&mut self) -> Result<f64> {
        let distance = distance_ns(self.pair)?;
        self.least_ns = self.least_ns.min(distance);
        Ok(distance)
    }

    fn is_near(&self, distance_ns: f64) -> bool {
        is_near(distance_ns, self.least_ns)
    }
}

fn is_near(distance_ns: f64, least_ns: f64) -> bool {
    distance_ns <= least_ns * NEAR
}

/// The distances during the figures of a run, in words; those that are not known are 0.
pub(crate) fn in_words(distances: impl Iterator<Item = f64>) -> Option<String> {
    let known: Vec<_> = distances.filter(|distance| *distance > 0.0).collect();
    let Spread { median, min, max } = Spread::of(known.iter().copied())?;
    let far = known.iter().filter(|distance| !is_near(**distance, min)).count();
    Some(format!(
        "a cache line goes there and back in {median:.0} ns ({min:.0}–{max:.0}); {far} of {} \
         figures with more than {NEAR} times the least",
        known.len()
    ))
}

/// The time in which a cache line goes from one core to the other and back, in nanoseconds.
fn distance_ns(cores: [usize; 2]) -> Result<f64> {
    // Counts the passes: even while it is with the first core, odd with the second.
    let passes = AtomicU32::new(0);
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let pinned = pin(cores[1]);
            ready.wait();
            for trip in 0..BURSTS as u32 * TRIPS {
                await_pass(&passes, 2 * trip + 1);
                passes.store(2 * trip + 2, Ordering::Release);
            }
            pinned
        });
        let first = scope.spawn(|| {
            let pinned = pin(cores[0]);
            ready.wait();
            let mut bursts: Vec<_> = (0..BURSTS as u32).map(|it| burst(&passes, it)).collect();
            bursts.sort();
            pinned.map(|()| bursts[BURSTS / 2])
        });
        let burst = first.join().expect("it does not panic")?;
        second.join().expect("it does not panic")?;
        Ok(burst.as_nanos() as f64 / f64::from(TRIPS))
    })
}

/// The time of a burst of round trips, on the side that begins.
fn burst(passes: &AtomicU32, number: u32) -> Duration {
    let start = Instant::now();
    for trip in number * TRIPS..(number + 1) * TRIPS {
        passes.store(2 * trip + 1, Ordering::Release);
        await_pass(passes, 2 * trip + 2);
    }
    start.elapsed()
}

/// Waits for the other thread, which runs as long as this one does: both make the same number of
/// trips, and nothing else ends them.
fn await_pass(passes: &AtomicU32, number: u32) {
    while passes.load(Ordering::Acquire) != number {
        std::hint::spin_loop();
    }
}

fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).doing(format!("run on core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_figures_are_counted() {
        let words = in_words([60.0, 0.0, 350.0, 62.0].into_iter()).unwrap();
        assert!(words.contains("62 ns (60–350); 1 of 3 figures"), "{words}");
        assert_eq!(in_words([0.0].into_iter()), None);
    }

    #[test]
    fn figures_of_far_cores_are_measured_again_while_patience_lasts() {
        let stop = Stop::new().unwrap();
        // Nothing is as near as this: so all cores are far.
        let patience = Duration::from_millis(600);
        let mut cores = Cores { least_ns: 0.0, ..Cores::new([0, 1], patience) };
        let mut count = 0;
        let (number, distance) = cores
            .near(&stop, || {
                count += 1;
                Ok(count)
            })
            .unwrap();
        assert_eq!(number, 1, "waiting for near cores took all patience");
        assert!(distance > 0.0 && cores.patience.is_zero());

        let mut cores = Cores::new([0, 1], Duration::MAX);
        let (_, distance) = cores.near(&stop, || Ok(())).unwrap();
        assert!(cores.is_near(cores.least_ns) && distance >= cores.least_ns);
    }
}
