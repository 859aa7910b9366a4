//! The end of a process whose thread panics.
//!
//! A process that serves disks consists of threads that need each other. If one is gone, others
//! wait for it, and the process looks alive to its supervisor. So it ends as a whole, as by a
//! signal: a session's device waits for the next daemon, hosts reconnect to the next target, and a
//! supervisor starts it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::sync::Once;

use crate::shared::log;

/// Ends the process on a panic in any thread from now on. The panic goes to the log, which nobody
/// waits for longer than a second.
pub(crate) fn end_the_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name").to_owned();
            let backtrace = Backtrace::capture();
            let backtrace = match backtrace.status() {
                BacktraceStatus::Captured => format!("\n{backtrace}"),
                _ => String::new(),
            };
            log::last_words(&format!("thread {name} {panic}{backtrace}"));
            std::process::abort();
        }));
    });
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use rustix::process::Signal;
    use tyche_testkit::process::finish;

    use super::*;

    /// Set in the process that panics.
    const VARIABLE: &str = "TYCHE_TEST_PANICS";

    fn fail() {
        panic!("of a thread");
    }

    #[test]
    fn a_panic_in_a_thread_ends_the_process() {
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = &format!("{module}::a_panic_in_a_thread_ends_the_process");
        if env::var_os(VARIABLE).is_some() {
            log::start().unwrap();
            end_the_process();
            let _ = std::thread::spawn(fail).join();
            std::thread::sleep(Duration::MAX);
        }
        let mut again = Command::new(env::current_exe().unwrap());
        again.args([name, "--exact", "--nocapture"]).env(VARIABLE, "1");
        let done = finish(&mut again, tyche_testkit::wait::PATIENCE);
        assert_eq!(done.status.signal(), Some(Signal::ABORT.as_raw()), "{done:?}");
        assert!(done.stderr.contains("of a thread"), "{done:?}");
    }
}
