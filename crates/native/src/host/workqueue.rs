//! The completion work queue: a thread that delivers answers instead of the session's own.
//!
//! This is how the first Tyche completed at the host (MSST 2014, Fig. 7). It costs a hand-over, and
//! is kept to measure that cost: [`HostOptions::hand_over`](super::HostOptions).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tyche_engine::Done;
use tyche_wake::{Inbox, Spin, now_ns, sleep};

/// The most answers that wait. Beyond it the session's thread, which never waits, delivers them.
const QUEUE_LEN: usize = 1024;
/// The longest sleep of the thread.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The running thread. Dropping it delivers all answers that still wait.
pub(super) struct WorkQueue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inbox: Inbox<Done>,
    closed: AtomicBool,
}

impl WorkQueue {
    /// Starts the thread, which spins for up to `spin` before it sleeps.
    pub(super) fn start(spin: Duration) -> io::Result<Self> {
        let inbox = Inbox::new(QUEUE_LEN)?;
        let shared = Arc::new(Shared { inbox, closed: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("tyche-complete".into())
            .spawn(move || theirs.run(Spin::new(spin)))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands answers to the thread.
    pub(super) fn answer(&self, all: impl Iterator<Item = Done>) {
        let mut handed = false;
        for done in all {
            match self.shared.inbox.push(done) {
                Ok(()) => handed = true,
                Err(done) => done.answer(),
            }
        }
        if handed {
            self.shared.inbox.ring();
        }
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.inbox.ring();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the completion thread panicked");
        }
    }
}

impl Shared {
    fn run(&self, mut spin: Spin) {
        // The session's thread logs the same.
        if let Err(error) = tyche_block::avoid_reclaim_io() {
            tracing::debug!(%error, "completions without protection from memory reclaim");
        }
        loop {
            // Loaded first: answers handed over before the end are delivered.
            let closed = self.closed.load(Ordering::SeqCst);
            let mut worked = false;
            while let Some(done) = self.inbox.pop() {
                done.answer();
                worked = true;
            }
            if worked {
                spin.worked();
            } else if closed {
                return;
            } else if spin.again(now_ns()) {
                // The session's thread may need the core.
                thread::yield_now();
            } else {
                spin.sleeps();
                let fd = self.inbox.wait_fd();
                if !self.closed.load(Ordering::SeqCst) {
                    sleep([fd], Some(SLEEP_MAX));
                }
                self.inbox.awake();
            }
        }
    }
}
