//! Turns of tests that must not run beside others.

use std::env;
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

/// A lock for tests that look at their whole program. A test that failed has reported it, so a
/// poisoned lock is fine.
pub fn in_program() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock of that name for tests that load the machine or measure time, also across programs. It
/// ends with the file.
pub fn on_machine(name: &str) -> File {
    let file = File::create(env::temp_dir().join(format!("{name}.lock"))).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    file
}
