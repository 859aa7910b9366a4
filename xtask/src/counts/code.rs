//! The machine code that a traced process ran: which instructions are atomic, and where in the
//! source they come from.

use std::collections::{BTreeMap, HashSet};
use std::process::Command;

use crate::Result;
use crate::program::output;

/// Calls of this function open the window of a thread.
const OPENED: &str = "<counts::opened>:";
/// Calls of this one close it.
const CLOSED: &str = "<counts::closed>:";

/// The code of a process. Addresses are those of its memory.
#[derive(Default)]
pub(super) struct Code {
    /// Programs and libraries, with the address of each.
    pub(super) files: Vec<(u64, String)>,
    /// Instructions that read, modify and write memory in one step.
    pub(super) atomics: HashSet<u64>,
    pub(super) opened: u64,
    pub(super) closed: u64,
}

impl Code {
    /// `maps`: text that contains the process' `/proc/PID/maps`.
    pub(super) fn of(maps: &str) -> Result<Self> {
        let mut code = Self::default();
        for line in maps.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            // The first mapping of a file is at its address zero.
            if let [range, _, "00000000", _, _, path] = words[..]
                && path.starts_with('/')
                && !path.contains("valgrind")
                && !path.contains("vgdb")
                && let Some((start, _)) = range.split_once('-')
                && let Ok(start) = u64::from_str_radix(start, 16)
            {
                let mut objdump = Command::new("objdump");
                objdump.args(["-dC", "--no-show-raw-insn", path]);
                code.add(start, &output(&mut objdump)?);
                code.files.push((start, path.to_owned()));
            }
        }
        if code.opened == 0 || code.closed == 0 {
            return Err(format!("the program lacks {OPENED} or {CLOSED}"));
        }
        Ok(code)
    }

    /// Adds the instructions of a file, as objdump lists them.
    fn add(&mut self, start: u64, listed: &str) {
        for line in listed.lines() {
            let address = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
            if let Some((at, instruction)) = line.split_once(":\t") {
                if is_atomic(instruction)
                    && let Some(at) = address(at)
                {
                    self.atomics.insert(start + at);
                }
            } else if let Some((at, symbol)) = line.split_once(' ')
                && let Some(at) = address(at)
            {
                match symbol {
                    OPENED => self.opened = start + at,
                    CLOSED => self.closed = start + at,
                    _ => {}
                }
            }
        }
    }

    /// The functions that have these addresses, with their counts, largest first.
    pub(super) fn places(&self, counts: &BTreeMap<u64, u64>) -> Result<Vec<(String, u64)>> {
        let mut places = BTreeMap::<String, u64>::new();
        for (&address, count) in counts {
            *places.entry(self.function(address)?).or_default() += count;
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ok(places)
    }

    /// How often locks were taken, by the counts of atomic instructions.
    pub(super) fn locks(&self, atomics: &BTreeMap<u64, u64>) -> Result<BTreeMap<u64, u64>> {
        let mut locks = BTreeMap::new();
        for (&address, &count) in atomics {
            if self.functions(address)?.iter().any(|(name, place)| is_lock(name, place)) {
                locks.insert(address, count);
            }
        }
        Ok(locks)
    }

    /// The innermost function of ours at an address, else the innermost of all.
    fn function(&self, address: u64) -> Result<String> {
        let functions = self.functions(address)?;
        let ours = functions.iter().find(|(_, place)| place.contains("/crates/"));
        let Some((name, place)) = ours.or(functions.first()) else {
            return Ok(format!("{address:#x}"));
        };
        let file = self.file(address).map_or(place.as_str(), |(_, path)| path);
        let place = place.rsplit_once("/crates/").map_or(file, |(_, place)| place);
        let place = place.split(':').next().unwrap_or(place);
        Ok(format!("{name} ({place})"))
    }

    /// The functions that an address is in, the innermost first, each with its place in the source.
    fn functions(&self, address: u64) -> Result<Vec<(String, String)>> {
        let Some((start, path)) = self.file(address) else { return Ok(Vec::new()) };
        let mut addr2line = Command::new("addr2line");
        addr2line.args(["-fiC", "-e", path, &format!("{:#x}", address - start)]);
        let listed = output(&mut addr2line)?;
        let lines = listed.lines().map(str::to_owned);
        Ok(lines.clone().step_by(2).zip(lines.skip(1).step_by(2)).collect())
    }

    /// The program or library at an address.
    fn file(&self, address: u64) -> Option<&(u64, String)> {
        self.files.iter().filter(|(start, _)| *start <= address).max()
    }
}

/// Whether a function takes a lock: of the standard library, of parking_lot, or of C's.
fn is_lock(name: &str, place: &str) -> bool {
    let sources = ["/sync/mutex/", "/sync/rwlock/", "/parking_lot", "/lock_api"];
    let is_of_locks = sources.iter().any(|it| place.contains(it));
    let takes = ["lock", "try_lock", "read", "try_read", "write", "try_write"];
    (is_of_locks && takes.iter().any(|it| name.rsplit("::").next() == Some(it)))
        || name.contains("pthread_mutex_lock")
}

/// Whether an instruction of x86 reads, modifies and writes memory in one step.
fn is_atomic(instruction: &str) -> bool {
    // A fence writes to the thread's own stack, and changes nothing there.
    let is_fence = instruction.starts_with("lock or") && instruction.contains("$0x0,");
    instruction.starts_with("lock ") && !is_fence
        // With memory it needs no prefix.
        || instruction.starts_with("xchg ") && instruction.contains('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objdump_is_understood() {
        let mut code = Code::default();
        code.add(
            0x1000,
            "0000000000000010 <counts::opened>:\n  10:\tret\n\n0000000000000020 <counts::closed>:\n\
             \x20 20:\tlock cmpxchg %cl,(%rdi)\n  22:\tlock orl $0x0,-0x40(%rsp)\n\
             \x20 24:\txchg   %al,(%rdi)\n  26:\txchg   %ax,%ax\n",
        );
        assert_eq!((code.opened, code.closed), (0x1010, 0x1020));
        assert_eq!(code.atomics, HashSet::from([0x1020, 0x1024]));
    }

    #[test]
    fn a_lock_is_known_by_its_function_and_its_source() {
        let mutex = "/rustc/1/library/std/src/sys/sync/mutex/futex.rs:28";
        assert!(is_lock("lock", mutex) && is_lock("std::sys::sync::Mutex::try_lock", mutex));
        assert!(!is_lock("unlock", mutex), "a lock counts once");
        assert!(!is_lock("lock", "/src/crates/block/src/lent.rs:100"));
        assert!(is_lock("___pthread_mutex_lock", "/usr/lib/libc.so.6"));
    }
}
