//! Privileges and limits of this process: those of daemons that are started in the same way.

use crate::shared::error::Code;
use crate::shared::report::Finding;

use super::machine::Machine;

/// Capabilities: number, name, whether nothing works without, and what for.
const CAPABILITIES: [(u32, &str, bool, &str); 5] = [
    (13, "CAP_NET_RAW", true, "frames on Ethernet"),
    (21, "CAP_SYS_ADMIN", false, "block devices and mounts"),
    (12, "CAP_NET_ADMIN", false, "send buffers beyond net.core.wmem_max"),
    (14, "CAP_IPC_LOCK", false, "locked memory of the daemon"),
    (24, "CAP_SYS_RESOURCE", false, "PR_SET_IO_FLUSHER, against waits for itself"),
];
/// Bytes that a daemon locks, at least.
const LOCKED_MIN: u64 = 64 << 20;
/// Open files that a target with some hosts needs.
const FILES_MIN: u64 = 4096;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let status = machine.read("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let mut findings: Vec<_> = effective.map(capabilities).unwrap_or_default();
    let may_lock = effective.is_none_or(|bits| bits & 1 << 14 != 0);
    if let Some(why) = &machine.unasked {
        let what = format!("the daemons of this machine can't be asked: {why}");
        let found = Finding::error("daemons-unasked", Code::Permission, what);
        findings.push(found.remedy("run as root"));
    }
    let limits = machine.read("/proc/self/limits").unwrap_or_default();
    if let Some(bytes) = hard_limit(&limits, "Max locked memory")
        && bytes < LOCKED_MIN
        && !may_lock
    {
        let what = format!("a process may lock {} KiB of memory: daemons lock theirs", bytes >> 10);
        let found = Finding::warning("memlock-small", what);
        findings.push(found.remedy("LimitMEMLOCK=infinity of the unit, or `ulimit -l unlimited`"));
    }
    if let Some(files) = hard_limit(&limits, "Max open files")
        && files < FILES_MIN
    {
        let what = format!("a process may have {files} files open: many hosts or links need more");
        let found = Finding::warning("open-files-few", what);
        findings.push(found.remedy("raise LimitNOFILE= of the unit, or `ulimit -Hn`"));
    }
    findings
}

fn capabilities(effective: u64) -> Vec<Finding> {
    let missing = CAPABILITIES.iter().filter(|it| effective & (1 << it.0) == 0);
    let findings = missing.map(|(_, name, is_needed, purpose)| {
        let what = format!("{name} is missing, which is for {purpose}");
        let found = match is_needed {
            true => Finding::error("capability-missing", Code::Permission, what),
            false => Finding::warning("capability-missing", what),
        };
        found.remedy("run as root, or give the service or container that capability")
    });
    findings.collect()
}

/// The hard limit of that name; none if there is none, or no limit.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
