//! The standard library's locks and atomics; in the models (`cargo xtask loom`), loom's.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(all(test, loom))]
pub(crate) use loom::thread::Thread;
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::thread::Thread;

/// Stands between sequentially consistent accesses to different places whose order matters. Loom
/// knows such an order of fences only.
pub(crate) fn order_in_models() {
    #[cfg(all(test, loom))]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
