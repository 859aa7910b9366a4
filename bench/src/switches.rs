//! Voluntary context switches: how often threads went to sleep.

use std::fs;
use std::mem::MaybeUninit;

/// Those of all threads of a process that live; 0 if it has ended.
pub(crate) fn of_process(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    texts.map(|text| in_status(&text)).sum()
}

/// The number in a `/proc/PID/status`.
fn in_status(text: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

/// Those of all processes that this one has started and that have ended.
pub(crate) fn of_ended() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes a `rusage` there; zeroes are one as well, should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_counts() {
        let text = "Name:\ta\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!((in_status(text), in_status("Name:\ta")), (42, 0));
        assert!(of_process(std::process::id()) > 0);
        std::process::Command::new("sleep").arg("0.01").status().unwrap();
        assert!(of_ended() > 0);
    }
}
