//! Loans: blocks of a disk that are read in place, without a copy.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A range of a disk, read in place, with its content at the time of the loan. Writes to the range
/// during the loan go to other memory.
pub struct Loan {
    lender: Arc<dyn Lender>,
    start: NonNull<u8>,
    len: usize,
}

/// The owner of lent memory.
pub(crate) trait Lender: Send + Sync {
    /// Ends the loan of these bytes.
    fn give_back(&self, start: NonNull<u8>, len: usize);
}

// SAFETY: the memory is not written while it is lent, so any thread may read it; the lender is
// `Send` and `Sync`.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    /// # Safety
    /// The `len` bytes at `start` are not written until they are given back.
    pub(crate) unsafe fn new(lender: Arc<dyn Lender>, start: NonNull<u8>, len: usize) -> Self {
        Self { lender, start, len }
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the loan keeps the lender alive, and the lender keeps the bytes unchanged.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lender.give_back(self.start, self.len);
    }
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loan({} bytes)", self.len)
    }
}
