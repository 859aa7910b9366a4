//! The standard library's locks; in the models (`cargo xtask loom`), loom's.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
