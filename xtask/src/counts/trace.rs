//! The trace of valgrind's lackey: every instruction and access to memory, one a line, with system
//! calls and changes of the running thread in between. Valgrind runs one thread at a time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::code::Code;
use crate::Result;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// Counts of the threads' events. A thread with windows of its own is counted only within them,
/// another (the library's) while any window is open.
#[derive(Default)]
pub(super) struct Trace {
    /// Atomic instructions, by their address.
    pub(super) atomics: BTreeMap<u64, u64>,
    /// Writes to a line that another thread has written last, by the address of the instruction.
    pub(super) lines: BTreeMap<u64, u64>,
    /// Calls that wake a thread: futex(2), and writes to an eventfd.
    pub(super) wakes: u64,
    /// The running thread, and the address of its current instruction.
    thread: u32,
    at: u64,
    /// Threads with windows of their own, and those of them that are within one.
    with_windows: HashSet<u32>,
    within: HashSet<u32>,
    /// Whether events of the running thread are counted.
    counts: bool,
    /// The last writer of each line.
    writers: HashMap<u64, u32>,
}

impl Trace {
    /// Reads a trace of this code.
    pub(super) fn read(path: &Path, code: &Code) -> Result<Self> {
        let failed = |error| format!("{}: {error}", path.display());
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        let (mut trace, mut line) = (Self::default(), Vec::new());
        while file.read_until(b'\n', &mut line).map_err(failed)? > 0 {
            trace.add(std::str::from_utf8(&line).unwrap_or_default(), code);
            line.clear();
        }
        Ok(trace)
    }

    fn add(&mut self, line: &str, code: &Code) {
        let (kind, rest) = line.split_at_checked(3).unwrap_or_default();
        match kind {
            "I  " => self.step(access(rest).0, code),
            " S " | " M " if self.counts => self.write(access(rest)),
            "SYS" if self.counts && is_wake(line) => self.wakes += 1,
            _ => {
                if let Some((_, rest)) = line.split_once("SCHED[")
                    && let Some((thread, what)) = rest.split_once("]:")
                    && what.trim_start().starts_with("acquired lock")
                {
                    self.thread = thread.parse().unwrap_or_default();
                    self.decide();
                }
            }
        }
    }

    fn step(&mut self, at: u64, code: &Code) {
        self.at = at;
        if at == code.opened || at == code.closed {
            self.with_windows.insert(self.thread);
            match at == code.opened {
                true => self.within.insert(self.thread),
                false => self.within.remove(&self.thread),
            };
            self.decide();
        }
        if self.counts && code.atomics.contains(&at) {
            *self.atomics.entry(at).or_default() += 1;
        }
    }

    fn write(&mut self, (address, len): (u64, u64)) {
        for line in address / LINE..=(address + len - 1) / LINE {
            let last = self.writers.insert(line, self.thread);
            if last.is_some_and(|last| last != self.thread) {
                *self.lines.entry(self.at).or_default() += 1;
            }
        }
    }

    fn decide(&mut self) {
        let others = || !self.within.is_empty() && !self.with_windows.contains(&self.thread);
        self.counts = self.within.contains(&self.thread) || others();
    }
}

/// Address and length of an access, such as `1ffeffed18,8`.
fn access(text: &str) -> (u64, u64) {
    let (address, len) = text.trim().split_once(',').unwrap_or_default();
    (u64::from_str_radix(address, 16).unwrap_or_default(), len.parse().unwrap_or(1))
}

/// Whether a line is about a system call that wakes a thread.
fn is_wake(line: &str) -> bool {
    let Some((_, call)) = line.split_once(") ") else { return false };
    let Some((name, rest)) = call.split_once('(') else { return false };
    let Some((args, _)) = rest.split_once(')') else { return false };
    let args: Vec<_> = args.split(',').map(str::trim).collect();
    match (name.trim(), &args[..]) {
        // FUTEX_WAKE and FUTEX_WAKE_BITSET, without the flags.
        ("sys_futex", [_, op, ..]) => op.parse().is_ok_and(|op: u32| matches!(op & 0x7f, 1 | 10)),
        ("sys_write", [_, _, len]) => *len == "8",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &[&str]) -> Trace {
        let code = Code { opened: 0x10, closed: 0x20, atomics: [0x30].into(), ..Code::default() };
        let mut trace = Trace::default();
        lines.iter().for_each(|line| trace.add(line, &code));
        trace
    }

    #[test]
    fn only_windows_count_and_only_lines_that_move() {
        let switch = |thread| format!("--7--   SCHED[{thread}]:  acquired lock (x)\n");
        let (one, two) = (&*switch(1), &*switch(2));
        let found = trace(&[
            one,
            "I  30,4",
            "I  10,1",
            "I  30,4",
            " M 1000,8",
            two,
            "I  31,4",
            " S 103f,2",
            " S 1041,1",
            one,
            "I  32,4",
            " L 1000,8",
            " S 1000,8",
            "I  20,1",
            "I  30,4",
            two,
            " S 1000,8",
        ]);
        assert_eq!(found.atomics, BTreeMap::from([(0x30, 1)]));
        assert_eq!(found.lines, BTreeMap::from([(0x31, 1), (0x32, 1)]), "the read is no write");
    }

    #[test]
    fn wake_ups_are_told_from_other_calls() {
        assert!(is_wake("SYSCALL[7,1](202) sys_futex ( 0x4a, 129, 1, 0, 0 ) --> [async] ... \n"));
        assert!(!is_wake("SYSCALL[7,1](202) sys_futex ( 0x4a, 137, 1, 0, 0 ) --> [async] ... \n"));
        assert!(is_wake("SYSCALL[7,1](1) sys_write ( 9, 0x1ffe, 8 ) --> [async] ... \n"));
        assert!(!is_wake("SYSCALL[7,1](1) sys_write ( 9, 0x1ffe, 80 ) --> [async] ... \n"));
        assert!(!is_wake("SYSCALL[7,1](1) ... [async] --> Success(0x8) \n"));
    }
}
