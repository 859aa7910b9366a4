//! The queue of numbers that an end interrupts its peer with, between two processes, and the
//! arming of the interrupt.
//!
//! ```text
//!  word 0   tail      numbers so far
//!  word 1   armed     whether the peer sleeps, or is about to
//!  word 2.. numbers, each with its tick: the time at which it arrives
//! ```

use std::sync::atomic::Ordering;

use super::window::INTERRUPTS_MAX;

/// Numbers in the queue: twice as many as a sender has outstanding.
const NUMBERS: u32 = 2 * INTERRUPTS_MAX as u32;
const TAIL: usize = 0;
const ARMED: usize = 1;
const FIRST: usize = 2;

/// Words of a queue.
pub(super) const WORDS: usize = FIRST + 2 * NUMBERS as usize;

/// Words of a number in the queue.
fn place(position: u32) -> usize {
    FIRST + 2 * (position % NUMBERS) as usize
}

/// Words that two processes share.
pub(super) trait Words {
    fn load(&self, index: usize, order: Ordering) -> u32;
    fn store(&self, index: usize, word: u32, order: Ordering);
    fn swap(&self, index: usize, word: u32) -> u32;
    /// A fence of the strongest order.
    fn fence();
}

/// Adds a number; true if the peer has to be interrupted.
pub(super) fn push<W: Words>(words: &W, number: u32, tick: u32) -> bool {
    let tail = words.load(TAIL, Ordering::Relaxed);
    words.store(place(tail), number, Ordering::Relaxed);
    words.store(place(tail) + 1, tick, Ordering::Relaxed);
    words.store(TAIL, tail.wrapping_add(1), Ordering::Release);
    // The peer arms and then looks at the tail; this looks the other way round, so that one of the
    // two sees the other.
    W::fence();
    words.load(ARMED, Ordering::Relaxed) == 1 && words.swap(ARMED, 0) == 1
}

/// The next number, of which `taken` were before, and its tick.
pub(super) fn next<W: Words>(words: &W, taken: u32) -> Option<(u32, u32)> {
    let is_there = words.load(TAIL, Ordering::Acquire) != taken;
    let word = |index| words.load(place(taken) + index, Ordering::Relaxed);
    is_there.then(|| (word(0), word(1)))
}

/// Asks for an interrupt at the next number. True if there is one already, that may have come
/// before: then there may be no interrupt.
pub(super) fn arm<W: Words>(words: &W, taken: u32) -> bool {
    words.store(ARMED, 1, Ordering::Relaxed);
    W::fence();
    words.load(TAIL, Ordering::Acquire) != taken
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU32, fence};
    use loom::sync::{Condvar, Mutex};

    use super::*;

    struct Shared {
        words: Vec<AtomicU32>,
        is_interrupted: Mutex<bool>,
        interrupted: Condvar,
    }

    impl Words for Shared {
        fn load(&self, index: usize, order: Ordering) -> u32 {
            self.words[index].load(order)
        }

        fn store(&self, index: usize, word: u32, order: Ordering) {
            self.words[index].store(word, order);
        }

        fn swap(&self, index: usize, word: u32) -> u32 {
            self.words[index].swap(word, Ordering::AcqRel)
        }

        fn fence() {
            fence(Ordering::SeqCst);
        }
    }

    /// A receiver that sleeps whenever there is nothing gets all numbers, in order. If an interrupt
    /// is lost, it sleeps for ever, which loom reports.
    fn model(looks_once_more: bool) {
        loom::model(move || {
            let shared = Arc::new(Shared {
                // As many as two numbers need.
                words: (0..FIRST + 4).map(|_| AtomicU32::new(0)).collect(),
                is_interrupted: Mutex::new(false),
                interrupted: Condvar::new(),
            });
            let sender = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    for number in [7, 8] {
                        if push(&*shared, number, 0) {
                            *shared.is_interrupted.lock().unwrap() = true;
                            shared.interrupted.notify_all();
                        }
                    }
                })
            };
            let (mut taken, mut came) = (0, Vec::new());
            while came.len() < 2 {
                if let Some((number, _)) = next(&*shared, taken) {
                    taken += 1;
                    came.push(number);
                } else if !(arm(&*shared, taken) && looks_once_more) {
                    let mut is_interrupted = shared.is_interrupted.lock().unwrap();
                    while !*is_interrupted {
                        is_interrupted = shared.interrupted.wait(is_interrupted).unwrap();
                    }
                    *is_interrupted = false;
                }
            }
            assert_eq!(came, [7, 8]);
            sender.join().unwrap();
        });
    }

    #[test]
    fn a_number_that_comes_while_the_receiver_falls_asleep_wakes_it() {
        model(true);
    }

    /// The model finds what the second look is for.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn without_a_second_look_a_number_is_slept_through() {
        model(false);
    }
}
