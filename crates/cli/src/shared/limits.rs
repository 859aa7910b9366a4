//! Limits of the process (setrlimit(2)): reaching one is an error of what reached it, and of
//! nothing else.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

/// Has limits fail calls instead of ending the process, and takes as many descriptors as this
/// process may have: the usual soft limit, 1024, is for programs that call select(2).
///
/// A closed pipe is an error as well: Rust's runtime ignores SIGPIPE.
///
/// # Errors
/// The system refuses a handler.
pub(crate) fn apply() -> io::Result<()> {
    // A write beyond the limit of file sizes (`ulimit -f`) raises it, and ends the process unless
    // there is a handler. The write fails with EFBIG in any case.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // A sandbox may refuse it: then the soft limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    Ok(())
}
