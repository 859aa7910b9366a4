//! The pages of a target's data queue: handed out by the host, checked by the target.

use tyche_wire::{PAGE_LEN, Reject};

/// Pages that `len` bytes take.
fn pages(len: u32) -> usize {
    (len as usize).div_ceil(PAGE_LEN)
}

/// The host's side: which pages of the target's `damq` are in use. Pages go out in order, so that
/// the target can predict where the next data will go.
pub(crate) struct Allocator {
    used: Box<[bool]>,
    /// Where the next search starts.
    next: usize,
}

impl Allocator {
    pub(crate) fn new(pages: u32) -> Self {
        Self { used: vec![false; pages as usize].into(), next: 0 }
    }

    /// The first page of a free run for `len` bytes.
    pub(crate) fn take(&mut self, len: u32) -> Option<u32> {
        let (pages, start) = (pages(len), self.next);
        let first =
            self.find(start, self.used.len(), pages).or_else(|| self.find(0, start, pages))?;
        self.used[first..first + pages].fill(true);
        self.next = first + pages;
        Some(first as u32)
    }

    /// First fit among the runs that start in `from..to`.
    fn find(&self, from: usize, to: usize, pages: usize) -> Option<usize> {
        let mut first = from;
        while first < to && first + pages <= self.used.len() {
            match self.used[first..first + pages].iter().rposition(|&used| used) {
                None => return Some(first),
                Some(taken) => first += taken + 1,
            }
        }
        None
    }

    pub(crate) fn give_back(&mut self, first: u32, len: u32) {
        let pages = &mut self.used[first as usize..first as usize + pages(len)];
        assert!(pages.iter().all(|&used| used), "pages given back twice");
        pages.fill(false);
    }
}

/// The target's side: which slot holds which page.
pub(crate) struct Owners(Box<[Option<u16>]>);

impl Owners {
    pub(crate) fn new(pages: u32) -> Self {
        Self(vec![None; pages as usize].into())
    }

    /// The slots that hold any page of the run, with repetitions.
    pub(crate) fn of(&self, first: u32, len: u32) -> Result<impl Iterator<Item = u16>, Reject> {
        let first = first as usize;
        let run = self.0.get(first..first + pages(len)).ok_or(Reject::Placement)?;
        Ok(run.iter().filter_map(|&owner| owner))
    }

    pub(crate) fn take(&mut self, first: u32, len: u32, slot: u16) {
        let run = &mut self.0[first as usize..first as usize + pages(len)];
        assert!(run.iter().all(Option::is_none), "page has two owners");
        run.fill(Some(slot));
    }

    pub(crate) fn give_back(&mut self, first: u32, len: u32) {
        self.0[first as usize..first as usize + pages(len)].fill(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_out_in_order_and_holes_are_found() {
        let mut damq = Allocator::new(10);
        assert_eq!(damq.take(4096), Some(0));
        assert_eq!(damq.take(5 * 4096), Some(1));
        assert_eq!(damq.take(2 * 4096 + 512), Some(6));
        assert_eq!(damq.take(2 * 4096), None);
        damq.give_back(1, 5 * 4096);
        assert_eq!(damq.take(512), Some(9));
        assert_eq!(damq.take(3 * 4096), Some(1));
        assert_eq!(damq.take(3 * 4096), None);
        assert_eq!(damq.take(2 * 4096), Some(4));
    }

    #[test]
    fn runs_outside_of_the_queue_are_refused() {
        let owners = Owners::new(10);
        assert!(owners.of(9, 4096).is_ok());
        assert_eq!(owners.of(9, 4097).err(), Some(Reject::Placement));
        assert_eq!(owners.of(u32::MAX, 1 << 20).err(), Some(Reject::Placement));
    }
}
