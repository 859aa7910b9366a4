//! The atomics and locks of the frame table; in the models (`cargo xtask loom`), loom's.

#[cfg(not(all(test, loom)))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};
#[cfg(all(test, loom))]
pub(super) use {
    loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    stand_in::Counters,
};

/// Counters that start at zero. The kernel allocates their memory at the first use.
#[cfg(not(all(test, loom)))]
pub(super) type Counters = super::mapping::Mapping<AtomicU32>;

#[cfg(all(test, loom))]
mod stand_in {
    use std::io;
    use std::ops::Deref;

    use super::AtomicU32;

    pub(in crate::memory) struct Counters(Box<[AtomicU32]>);

    impl Counters {
        pub(in crate::memory) fn new(count: usize) -> io::Result<Self> {
            Ok(Self((0..count).map(|_| AtomicU32::new(0)).collect()))
        }
    }

    impl Deref for Counters {
        type Target = [AtomicU32];

        fn deref(&self) -> &[AtomicU32] {
            &self.0
        }
    }
}
