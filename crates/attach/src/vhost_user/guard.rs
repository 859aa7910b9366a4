//! Guest memory that may vanish: the front end can shorten the file behind it at any time. An
//! access to a page that is gone is no error but a signal, SIGBUS, which would end the process, and
//! with it all that it serves.
//!
//! A handler of that signal maps zeroed memory of this process in place of the guarded mapping, and
//! notes that it is lost. The access goes on; who made it then finds the note, and takes nothing
//! from that memory for true. Faults elsewhere get the handler that was there before.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use libc::{c_int, siginfo_t};

/// The most mappings at a time: two tables of 32 regions, and the in-flight memories.
const MAPPINGS_MAX: usize = 80;

/// An entry of the table that the handler searches. It must not wait, so there are no locks.
#[derive(Debug)]
struct Entry {
    is_taken: AtomicBool,
    /// The first address of the mapping; 0 while there is none.
    start: AtomicUsize,
    len: AtomicUsize,
    is_lost: AtomicBool,
}

static MAPPINGS: [Entry; MAPPINGS_MAX] = [const {
    Entry {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];

/// Whether any mapping was ever lost: the check of those that were not is one load.
static ANY_LOST: AtomicBool = AtomicBool::new(false);

/// Whether the handler is installed, or why not.
static INSTALLED: OnceLock<Result<(), Option<i32>>> = OnceLock::new();

/// The action on SIGBUS before ours.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that may vanish; must be dropped before it is unmapped.
#[derive(Debug)]
pub(super) struct Guard(&'static Entry);

impl Guard {
    /// Guards a shared mapping of a file.
    ///
    /// # Errors
    /// If there are too many mappings, or the system refuses the handler.
    ///
    /// # Safety
    /// The `len` bytes at `start` are a mapping of their own, page-aligned, with nothing but plain
    /// data that others may change at any time. The guard is dropped before they are unmapped.
    pub(super) unsafe fn new(start: *mut u8, len: usize) -> io::Result<Self> {
        let installed = INSTALLED.get_or_init(|| install().map_err(|it| it.raw_os_error()));
        installed.map_err(|errno| io::Error::from_raw_os_error(errno.unwrap_or_default()))?;
        let free = |entry: &&Entry| !entry.is_taken.swap(true, Ordering::Acquire);
        let entry = MAPPINGS.iter().find(free).ok_or(io::ErrorKind::OutOfMemory)?;
        entry.is_lost.store(false, Ordering::Relaxed);
        entry.len.store(len, Ordering::Relaxed);
        entry.start.store(start.addr(), Ordering::Release);
        Ok(Self(entry))
    }

    /// Whether the mapping was replaced. If it was, what was read from it before is worth nothing.
    pub(super) fn is_lost(&self) -> bool {
        // After the accesses before this call.
        fence(Ordering::Acquire);
        ANY_LOST.load(Ordering::Relaxed) && self.0.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// Installs the handler.
fn install() -> io::Result<()> {
    let mut former = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the system call fills `former`.
    let former = unsafe {
        check(libc::sigaction(libc::SIGBUS, ptr::null(), former.as_mut_ptr()))?;
        former.assume_init()
    };
    // Known before our handler is, which may be called at once.
    let _ = FORMER.set(former);
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = handle;
    // SAFETY: all-zero is a valid action; the handler only calls what may be called in one.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        check(libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()))
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The handler: replaces the mapping with the address that faulted.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid `info`.
    let address = unsafe { (*info).si_addr() }.addr();
    let mapped = |entry: &&Entry| {
        let start = entry.start.load(Ordering::Acquire);
        let len = entry.len.load(Ordering::Relaxed);
        start != 0 && (start..start.saturating_add(len)).contains(&address)
    };
    if let Some(entry) = MAPPINGS.iter().find(mapped)
        && replace(entry)
    {
        return;
    }
    // The access is repeated after this, and faults again.
    if let Some(former) = FORMER.get() {
        // SAFETY: it was the action before.
        unsafe { libc::sigaction(signal, former, ptr::null_mut()) };
    }
}

/// Puts zeroes in place of a mapping; false if the system refuses.
fn replace(entry: &Entry) -> bool {
    // Before the zeroes can be seen.
    entry.is_lost.store(true, Ordering::SeqCst);
    ANY_LOST.store(true, Ordering::SeqCst);
    let start = entry.start.load(Ordering::Relaxed) as *mut c_void;
    let len = entry.len.load(Ordering::Relaxed);
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: the guard vouches that the mapping has plain data only, and is not unmapped yet. The
    // code that was interrupted finds its `errno` unchanged.
    unsafe {
        let errno = libc::__errno_location();
        let former = *errno;
        let mapped = libc::mmap(start, len, protection, flags | libc::MAP_NORESERVE, -1, 0);
        *errno = former;
        mapped != libc::MAP_FAILED
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

    use super::super::chain::Memory;

    #[test]
    fn memory_that_vanishes_is_lost_and_nobody_dies() {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, 1 << 20).unwrap();
        let place = FileOffset::new(file.try_clone().unwrap(), 0);
        let regions = [(GuestAddress(0), 1 << 20, Some(place))];
        let memory = Memory::new(GuestMemoryMmap::from_ranges_with_files(regions).unwrap());
        let memory = memory.unwrap();
        memory.write_slice(b"there", GuestAddress(0x8000)).unwrap();
        assert!(!memory.is_lost());
        ftruncate(&file, 0x1000).unwrap();
        let mut bytes = [1; 5];
        memory.read_slice(&mut bytes, GuestAddress(0x8000)).unwrap();
        assert_eq!(bytes, [0; 5]);
        assert!(memory.is_lost());
        // The next one is whole.
        drop(memory);
        let memory = Memory::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4096)]).unwrap());
        assert!(!memory.unwrap().is_lost());
    }
}
