//! Locks for tests that must run alone, or beside few others.

use std::env;
use std::fs::File;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

/// A lock for tests that inspect their whole process. A poisoned lock is fine: the test that failed
/// has reported its failure.
pub fn in_program() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock of that name for tests that load the machine or measure time, also across programs.
/// Dropping the file releases it.
pub fn on_machine(name: &str) -> File {
    let file = File::create(env::temp_dir().join(format!("{name}.lock"))).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}

/// A semaphore for the tests of a program, in order of arrival. While any of its places is taken,
/// other programs with places of the same name wait.
#[derive(Debug)]
pub struct Places {
    name: &'static str,
    count: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Number of tests that have arrived, and of those that were admitted.
    arrived: usize,
    admitted: usize,
    taken: usize,
    /// The lock that keeps other programs out.
    machine: Option<File>,
}

/// The places that a test holds, of [`Places`]; dropping releases them.
#[derive(Debug)]
pub struct HeldPlace<'a> {
    places: &'a Places,
    taken: usize,
}

impl Places {
    /// A semaphore with `count` places.
    pub const fn new(name: &'static str, count: usize) -> Self {
        let state = State { arrived: 0, admitted: 0, taken: 0, machine: None };
        Self { name, count, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits for one of the places.
    pub fn one(&self) -> HeldPlace<'_> {
        self.take(1)
    }

    /// Waits for all of the places: the test runs alone.
    pub fn all(&self) -> HeldPlace<'_> {
        self.take(self.count)
    }

    fn take(&self, wanted: usize) -> HeldPlace<'_> {
        let mut state = self.state();
        let turn = state.arrived;
        state.arrived += 1;
        let waits = |state: &mut State| state.admitted != turn || state.taken + wanted > self.count;
        let mut state =
            self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.admitted += 1;
        state.taken += wanted;
        state.machine.get_or_insert_with(|| on_machine(self.name));
        drop(state);
        self.changed.notify_all();
        HeldPlace { places: self, taken: wanted }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.taken -= self.taken;
        if state.taken == 0 {
            state.machine = None;
        }
        drop(state);
        self.places.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::wait::wait_until;

    #[test]
    fn who_wants_all_places_is_not_passed_by() {
        static PLACES: Places = Places::new("tyche-testkit", 2);
        let (first, second) = (PLACES.one(), PLACES.one());
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for (number, places) in [(2, 2), (3, 1)] {
                let order = &order;
                scope.spawn(move || {
                    let _place = PLACES.take(places);
                    order.lock().unwrap().push((number, PLACES.state().taken));
                });
                wait_until("it waits", || PLACES.state().arrived == number + 1);
            }
            drop(first);
            assert_eq!(PLACES.state().admitted, 2, "one place is free, but the next wants both");
            drop(second);
        });
        assert_eq!(order.into_inner().unwrap(), [(2, 2), (3, 1)]);
        let state = PLACES.state();
        assert!(state.taken == 0 && state.machine.is_none(), "{state:?}");
    }
}
