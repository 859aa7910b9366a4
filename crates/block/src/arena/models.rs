//! Arenas in all orders of threads.

use loom::cell::UnsafeCell;
use loom::thread;

use super::*;

/// Longer than a model runs; within one, waits never time out.
const HOUR: Duration = Duration::from_secs(3600);

/// Threads that each wait for `len` bytes of an arena, use their pages and return them. Two
/// owners of a page are reported by its cell, and a waiter that nobody wakes as a deadlock.
fn each_gets_pages_of_its_own(pages: usize, lens: &'static [usize]) {
    loom::model(move || {
        let cells: Vec<_> = (0..pages).map(|_| UnsafeCell::new(())).collect();
        let shared = Arc::new((Arena::new(pages), cells));
        let use_pages = |shared: &(Arena, Vec<UnsafeCell<()>>), len| {
            let (arena, cells) = shared;
            let extent = arena.alloc_timeout(len, HOUR).unwrap();
            let first = extent.first_page();
            let owned: Vec<_> =
                cells[first..first + len / PAGE].iter().map(UnsafeCell::get_mut).collect();
            thread::yield_now();
            drop(owned);
            drop(extent);
        };
        let threads: Vec<_> = lens[1..]
            .iter()
            .map(|&len| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || use_pages(&shared, len))
            })
            .collect();
        use_pages(&shared, lens[0]);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(shared.0.claim(0, pages * PAGE).is_some(), "all are back");
    });
}

#[test]
fn three_threads_share_one_page() {
    each_gets_pages_of_its_own(1, &[PAGE; 3]);
}

#[test]
fn a_waiter_for_two_pages_gets_them_when_the_second_is_returned() {
    each_gets_pages_of_its_own(2, &[2 * PAGE, PAGE, PAGE]);
}

#[test]
fn a_waiter_for_more_does_not_keep_others_waiting() {
    loom::model(|| {
        let arena = Arena::new(2);
        let mut held: Vec<_> = (0..2).map(|_| arena.alloc(PAGE)).collect();
        let wait = |pages: usize| {
            let arena = arena.clone();
            thread::spawn(move || drop(arena.alloc_timeout(pages * PAGE, HOUR).unwrap()))
        };
        let (both, one) = (wait(2), wait(1));
        held.pop();
        one.join().unwrap();
        held.pop();
        both.join().unwrap();
    });
}

#[test]
fn a_waiter_wakes_the_helper_and_gets_the_pages_that_it_adds() {
    loom::model(|| {
        let arena = Arena::elastic(ArenaSize { all: 2, kept: 1 }).unwrap();
        let helper = thread::spawn({
            let arena = arena.clone();
            move || {
                arena.lent().lack().wake(thread::current());
                while !arena.lent().lack().take() {
                    thread::park();
                }
                arena.growth().grow(1);
            }
        });
        let first = arena.alloc_timeout(PAGE, HOUR).unwrap();
        let second = arena.alloc_timeout(PAGE, HOUR).unwrap();
        assert!(first.first_page() != second.first_page());
        helper.join().unwrap();
    });
}

#[test]
fn a_page_that_is_held_back_is_not_allocated_as_well() {
    loom::model(|| {
        let arena = Arena::elastic(ArenaSize { all: 2, kept: 1 }).unwrap();
        arena.growth().grow(1);
        let taken = arena.alloc(PAGE).unwrap();
        let other = thread::spawn({
            let arena = arena.clone();
            move || arena.alloc(PAGE)
        });
        let is_held = arena.growth().shrink(1);
        assert!(other.join().unwrap().is_some() != is_held);
        drop(taken);
    });
}

#[test]
fn a_claimed_page_is_not_allocated_as_well() {
    loom::model(|| {
        let arena = Arena::new(1);
        let claim = thread::spawn({
            let arena = arena.clone();
            move || arena.claim(0, PAGE)
        });
        let allocated = arena.alloc(PAGE);
        let claimed = claim.join().unwrap();
        assert!(allocated.is_some() != claimed.is_some());
    });
}
