//! The thread that allocates memory for a session's requests as they need more, and gives it back.
//!
//! No request waits for it: the kernel may keep it waiting until something was written to this very
//! disk. See [`Reserve`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Thread, current, park, park_timeout};
use std::time::Instant;

use tyche_block::{Reserve, avoid_reclaim_io};

/// Bytes of its stack, which is never deep: if memory is locked, all of it may be.
const STACK: usize = 64 << 10;

/// The thread. It ends soon after this is dropped, when the kernel no longer keeps it waiting.
pub(crate) struct MemoryThread {
    is_over: Arc<AtomicBool>,
    thread: Thread,
}

impl MemoryThread {
    /// Starts it.
    ///
    /// # Errors
    /// The system's error when the thread cannot be created.
    pub(crate) fn start(mut reserves: Vec<Reserve>) -> io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let common = Arc::clone(&is_over);
        let run = move || {
            // So it is no thread that memory reclaim makes wait for a disk, this one or another.
            if let Err(error) = avoid_reclaim_io() {
                tracing::debug!(%error, "memory without protection from its reclaim");
            }
            reserves.iter().for_each(|reserve| reserve.wake(current()));
            while !common.load(Ordering::Acquire) {
                let now = Instant::now();
                match reserves.iter_mut().filter_map(|reserve| reserve.attend(now)).min() {
                    Some(next) => park_timeout(next.saturating_duration_since(now)),
                    None => park(),
                }
            }
        };
        let thread = Builder::new().name("tyche-memory".into()).stack_size(STACK).spawn(run)?;
        Ok(Self { is_over, thread: thread.thread().clone() })
    }
}

impl Drop for MemoryThread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
