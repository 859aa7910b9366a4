//! Memory that a link receives into, and of which batches borrow frames: they are read where they
//! were received.
//!
//! ```text
//!  [frame][frame][frame]...                        lent: only read, until all are given back
//!                          [received ...][room ]   the link's: read and written
//! ```

use std::io;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tyche_block::{Arena, Extent, PAGE};

use super::frame::Refused;
use super::rx::{Lender, RxBatch};

/// See the [module](self). It takes no memory before something is received into it.
pub(crate) struct LendingMemory {
    shared: Arc<Shared>,
    /// The end of what was lent since all was given back.
    lent_end: usize,
}

struct Shared {
    arena: Arena,
    /// All of the arena: nobody else has a part of it.
    whole: Extent,
    /// Batches that have frames of it.
    loans: AtomicUsize,
}

impl Lender for Shared {
    fn give_back(&self, _: Range<usize>) {
        self.loans.fetch_sub(1, Ordering::Release);
    }
}

impl LendingMemory {
    /// Memory of that many bytes.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let arena = Arena::untouched(len.div_ceil(PAGE))?;
        let whole = arena.alloc(len).expect("the arena is this long");
        let shared = Shared { arena, whole, loans: AtomicUsize::new(0) };
        Ok(Self { shared: Arc::new(shared), lent_end: 0 })
    }

    /// Bytes of all.
    pub(crate) fn len(&self) -> usize {
        self.shared.whole.len()
    }

    /// Whether a batch has frames of it.
    pub(crate) fn is_lent(&self) -> bool {
        self.shared.loans.load(Ordering::Acquire) > 0
    }

    /// All bytes, to read.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.shared.whole
    }

    /// The bytes behind those that are lent, and the offset at which they begin.
    pub(crate) fn own(&mut self) -> (usize, &mut [u8]) {
        if !self.is_lent() {
            self.lent_end = 0;
        }
        let (start, left) = (self.lent_end, self.len() - self.lent_end);
        // SAFETY: within the memory, of which this is the only owner. Batches have only bytes
        // before them, and nobody else writes any as long as this is borrowed.
        let bytes = unsafe {
            slice::from_raw_parts_mut(self.shared.arena.region().0.add(start).as_ptr(), left)
        };
        (start, bytes)
    }

    /// Lends a batch the frame in these bytes, which lie behind all that are lent.
    ///
    /// # Errors
    /// The reason why the frame does not fit; the bytes are not lent then.
    pub(crate) fn lend(&mut self, batch: &mut RxBatch, frame: Range<usize>) -> Result<(), Refused> {
        assert!(self.lent_end <= frame.start && frame.end <= self.len(), "bytes of our own");
        // SAFETY: within the memory. Nobody writes the bytes any more before all loans are given
        // back, and that of this batch is taken below.
        unsafe {
            batch.lend(self.shared.arena.region().0.add(frame.start), frame.len(), None)?;
        }
        self.lent_end = frame.end;
        let lender: &Arc<Shared> = &self.shared;
        if !batch.borrows_from(Arc::as_ptr(lender).cast()) {
            lender.loans.fetch_add(1, Ordering::Relaxed);
            batch.borrow_from(lender.clone(), 0..1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(memory: &mut LendingMemory, at: usize, bytes: &[u8]) {
        let (start, own) = memory.own();
        own[at - start..][..bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn what_is_lent_is_not_written_before_every_batch_has_given_it_back() {
        let mut memory = LendingMemory::new(1000).unwrap();
        let mut batches = [RxBatch::with_head(4, 2, 96), RxBatch::with_head(4, 2, 96)];
        write(&mut memory, 0, &[1; 300]);
        memory.lend(&mut batches[0], 0..100).unwrap();
        memory.lend(&mut batches[0], 110..150).unwrap();
        assert_eq!(memory.lend(&mut batches[0], 150..200), Err(Refused::Full));
        assert_eq!(memory.own().0, 150);
        memory.lend(&mut batches[1], 200..300).unwrap();
        write(&mut memory, 300, &[2; 700]);
        batches[0].clear();
        assert_eq!(memory.own().0, 300, "the other one has frames still");
        assert_eq!(batches[1].frame(0).payload, [1; 96]);
        batches[1].settle();
        assert!(!memory.is_lent() && memory.own().0 == 0);
        write(&mut memory, 0, &[3; 1000]);
        assert_eq!(batches[1].frame(0).payload, [1; 96]);
    }
}
