//! A thread of another process that is stopped, for tests that the others go on without it.

use std::{io, ptr};

/// A thread that a debugger has stopped (ptrace(2)). It goes on when this is dropped, which only
/// the thread that has stopped it may do.
pub struct StoppedThread {
    id: libc::pid_t,
    /// The kernel knows the debugger by its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl StoppedThread {
    /// Stops the only thread of that name, as root.
    pub fn of(process: u32, name: &str) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let mut named = tasks.map(|task| task.unwrap().path()).filter(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|it| it.trim() == name)
        });
        let task = named.next().unwrap_or_else(|| panic!("there is no thread `{name}`"));
        assert!(named.next().is_none(), "several threads `{name}`");
        let id = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
        trace(libc::PTRACE_SEIZE, id);
        let this = Self { id, _not_send: std::marker::PhantomData };
        trace(libc::PTRACE_INTERRUPT, id);
        let mut status = 0;
        // SAFETY: the status is written to a place of its own.
        let waited = unsafe { libc::waitpid(id, &raw mut status, libc::__WALL) };
        assert_eq!(waited, id, "{}", io::Error::last_os_error());
        assert!(libc::WIFSTOPPED(status), "{status}");
        this
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // SAFETY: as in `trace`. The thread may have ended, by a signal to its process.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.id, ptr::null_mut::<u8>(), 0) };
    }
}

fn trace(request: libc::c_uint, id: libc::pid_t) {
    // SAFETY: these requests touch no memory of this process.
    let result = unsafe { libc::ptrace(request, id, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) };
    assert_eq!(result, 0, "ptrace: {}", io::Error::last_os_error());
}
