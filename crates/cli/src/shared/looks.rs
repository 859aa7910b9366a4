//! Looks that many ask for: one at a time, shared by those who came before it began, and seldom
//! enough that whoever asks again and again takes little of the process.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks, as a multiple of the time that the former took: looks take a tenth
/// of a thread at most, and of the threads that they disturb.
const PAUSE: u32 = 9;
/// The longest pause. It is also the longest that a look is delayed by those who ask without end.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Looks<T>(Mutex<Option<Last<T>>>);

#[derive(Debug)]
struct Last<T> {
    begun: Instant,
    ended: Instant,
    seen: Arc<T>,
}

impl<T> Last<T> {
    /// The moment from which the next look may begin.
    fn next(&self) -> Instant {
        self.ended + ((self.ended - self.begun) * PAUSE).min(PAUSE_MAX)
    }
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Looks<T> {
    /// The state that is to be seen now, or was since the caller came.
    pub(crate) fn look(&self, take: impl FnOnce() -> T) -> Arc<T> {
        self.look_since(Instant::now(), take)
    }

    fn look_since(&self, come: Instant, take: impl FnOnce() -> T) -> Arc<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last {
            if last.begun >= come {
                return Arc::clone(&last.seen);
            }
            thread::sleep(last.next().saturating_duration_since(Instant::now()));
        }
        let begun = Instant::now();
        let seen = Arc::new(take());
        *last = Some(Last { begun, ended: Instant::now(), seen: Arc::clone(&seen) });
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_come_before_it_begins_share_a_look() {
        let looks = Looks::default();
        let come = Instant::now();
        assert_eq!(*looks.look_since(come, || 1), 1);
        assert_eq!(*looks.look_since(come, || 2), 1, "it waited for its turn meanwhile");
        assert_eq!(*looks.look(|| 3), 3, "who comes later sees what is by then");
    }

    #[test]
    fn looks_take_a_tenth_of_the_time_at_most() {
        let begun = Instant::now();
        let last = |took: Duration| Last { begun, ended: begun + took, seen: Arc::new(()) };
        let ms = Duration::from_millis;
        assert_eq!(last(ms(10)).next(), begun + ms(100));
        assert_eq!(last(ms(100)).next(), begun + ms(100) + PAUSE_MAX);
        let looks = Looks::default();
        let begun = Instant::now();
        (0..5).for_each(|_| drop(looks.look(|| thread::sleep(ms(2)))));
        assert!(begun.elapsed() >= ms(2) * (4 * (PAUSE + 1) + 1), "{:?}", begun.elapsed());
    }
}
