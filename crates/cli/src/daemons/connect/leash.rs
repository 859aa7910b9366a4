//! The tie between a daemon and the `tyche connect` that waits for it.
//!
//! Nobody knows of a daemon's device before it was reported. If the command that waits for the
//! report ends, by Ctrl-C, a time limit or a kill, the daemon has to end as well: it would connect
//! the export some time later, unseen. So the daemon's standard input is a pipe that the command
//! holds open and never writes to; its end ends the daemon, until it has reported.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

use crate::shared::error::{Code, Context, Result};

/// Bytes of the thread's stack. With the process's memory, all of it is locked.
const STACK: usize = 256 << 10;

/// A watch on the `tyche connect` that has started this daemon. It ends the daemon by SIGTERM when
/// the command ends, until [`let_go`](Self::let_go) is called.
pub(super) struct Leash {
    is_loose: Arc<AtomicBool>,
}

impl Leash {
    /// Has the end of the command that waits end this daemon, by SIGTERM. Signals must be caught
    /// already.
    ///
    /// # Errors
    /// There is no thread to spare.
    pub(super) fn take_up() -> Result<Self> {
        let is_loose = Arc::new(AtomicBool::new(false));
        let common = Arc::clone(&is_loose);
        let wait = move || {
            // Nothing is ever sent. After an error nobody can be waited for, either.
            let _ = std::io::stdin().read(&mut [0]);
            if !common.load(Ordering::SeqCst) {
                tracing::warn!("`tyche connect` has ended before its daemon was connected");
                let _ = raise(SIGTERM);
            }
        };
        let thread = std::thread::Builder::new().name("leash".into()).stack_size(STACK);
        thread.spawn(wait).context(Code::Other, "a thread to watch `tyche connect`")?;
        Ok(Self { is_loose })
    }

    /// Lets go of the command, just before the report. If the command has ended meanwhile, the
    /// report can't be written.
    pub(super) fn let_go(&self) {
        self.is_loose.store(true, Ordering::SeqCst);
    }
}

impl Drop for Leash {
    /// Of a daemon that could not start, and ends by itself: its error is the report.
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Leaves the terminal of the caller. Returns what watches it; nobody waits for a daemon that has
/// begun anew.
pub(super) fn detach(reloaded: bool) -> Result<Option<Leash>> {
    // Fails only for a group leader; a child is none.
    let _ = rustix::process::setsid();
    if reloaded { Ok(None) } else { Leash::take_up().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_fails_to_start_does_not_complain_about_the_command_that_ends() {
        let is_loose = Arc::new(AtomicBool::new(false));
        drop(Leash { is_loose: Arc::clone(&is_loose) });
        assert!(is_loose.load(Ordering::SeqCst));
    }
}
