//! Pages of a target's data queue (`damq`): allocated by the host, checked by the target.

use tyche_wire::{CREDIT_MIN, PAGE_LEN, REQUEST_LEN_MAX, Reject};

/// Pages that `len` bytes take.
fn pages(len: u32) -> usize {
    (len as usize).div_ceil(PAGE_LEN)
}

/// The host's side: the allocator of the target's `damq`. It takes the lowest free pages first, so
/// that few requests use few pages, which stay in the target's processor cache.
pub(crate) struct Allocator {
    used: Box<[bool]>,
    /// The lowest free page; the number of pages if none is free.
    lowest: usize,
    /// Pages that may be taken, from the first one on.
    limit: usize,
    /// Pages beyond them that are used still.
    beyond: usize,
    request_len_max: u32,
}

/// Bytes of a request at most where so many pages may be taken.
fn request_len_max(limit: usize) -> u32 {
    REQUEST_LEN_MAX.min((limit / 2 * PAGE_LEN) as u32)
}

impl Allocator {
    /// As the target has said nothing yet: the [least](CREDIT_MIN) pages may be taken.
    pub(crate) fn new(pages: u32) -> Self {
        let limit = CREDIT_MIN.min(pages) as usize;
        let (used, request_len_max) = (vec![false; pages as usize].into(), request_len_max(limit));
        Self { used, lowest: 0, limit, beyond: 0, request_len_max }
    }

    /// Pages of the whole `damq`.
    pub(crate) fn pages(&self) -> usize {
        self.used.len()
    }

    /// Sets how many pages may be taken from now on.
    pub(crate) fn set_limit(&mut self, pages: u32) {
        self.limit = pages as usize;
        self.request_len_max = request_len_max(self.limit);
        self.beyond = self.used[self.limit..].iter().filter(|used| **used).count();
    }

    /// Whether all pages that are used may be taken.
    pub(crate) fn is_within_limit(&self) -> bool {
        self.beyond == 0
    }

    /// Bytes of a request at most: two have room at once, or more would wait for the last page of
    /// one.
    pub(crate) fn request_len_max(&self) -> u32 {
        self.request_len_max
    }

    /// Takes the lowest free run for `len` bytes and returns its first page.
    pub(crate) fn take(&mut self, len: u32) -> Option<u32> {
        let pages = pages(len);
        let first = self.find(pages)?;
        self.set(first, pages, true);
        if first == self.lowest {
            let taken = self.used[first..].iter().position(|&used| !used);
            self.lowest = taken.map_or(self.used.len(), |distance| first + distance);
        }
        Some(first as u32)
    }

    /// Whether there is a free run for `len` bytes.
    pub(crate) fn has_room(&self, len: u32) -> bool {
        self.find(pages(len)).is_some()
    }

    fn find(&self, pages: usize) -> Option<usize> {
        let mut first = self.lowest;
        if pages == 1 {
            return (first < self.limit).then_some(first);
        }
        while first + pages <= self.limit {
            match self.used[first..first + pages].iter().rposition(|&used| used) {
                None => return Some(first),
                Some(taken) => first += taken + 1,
            }
        }
        None
    }

    pub(crate) fn give_back(&mut self, first: u32, len: u32) {
        let (first, pages) = (first as usize, pages(len));
        let run = &self.used[first..first + pages];
        assert!(run.iter().all(|&used| used), "pages given back twice");
        self.set(first, pages, false);
        self.lowest = self.lowest.min(first);
        if self.beyond > 0 {
            self.beyond -= (first + pages).saturating_sub(first.max(self.limit));
        }
    }

    /// Marks a run as used or free. A single page is the usual case, and needs no `memset`.
    fn set(&mut self, first: usize, pages: usize, used: bool) {
        match &mut self.used[first..first + pages] {
            [page] => *page = used,
            run => run.fill(used),
        }
    }
}

/// The target's side: the slot that holds each page.
pub(crate) struct Owners {
    slots: Box<[Option<u16>]>,
    /// The number of the frame that claimed the page last.
    claims: Box<[u32]>,
    /// Pages that may be claimed, from the first one on.
    limit: usize,
}

impl Owners {
    pub(crate) fn new(pages: u32) -> Self {
        let pages = pages as usize;
        let limit = pages.min(CREDIT_MIN as usize);
        Self { slots: vec![None; pages].into(), claims: vec![0; pages].into(), limit }
    }

    /// Sets how many pages may be claimed from now on.
    pub(crate) fn set_limit(&mut self, pages: u32) {
        self.limit = (pages as usize).min(self.slots.len());
    }

    /// Claims a run of pages for a request of the frame with the number `frame`. The pages must be
    /// of those that may be claimed, and belong neither to a busy slot nor to another request of
    /// the same frame.
    ///
    /// # Errors
    /// `Placement` otherwise.
    pub(crate) fn claim(
        &mut self,
        first: u32,
        len: u32,
        frame: u32,
        is_busy: impl Fn(u16) -> bool,
    ) -> Result<(), Reject> {
        let run = first as usize..first as usize + pages(len);
        let owners = self.slots[..self.limit].get(run.clone()).ok_or(Reject::Placement)?;
        let claims = &mut self.claims[run];
        for (owner, claim) in owners.iter().zip(claims) {
            if *claim == frame || owner.is_some_and(&is_busy) {
                return Err(Reject::Placement);
            }
            *claim = frame;
        }
        Ok(())
    }

    /// Forgets which frames have claimed pages.
    pub(crate) fn forget_claims(&mut self) {
        self.claims.fill(0);
    }

    /// The pages that `len` bytes from `first` on take.
    pub(crate) fn run(first: u32, len: u32) -> std::ops::Range<u32> {
        first..first + pages(len) as u32
    }

    /// The slot that holds a page. The page must be one of a claimed run.
    pub(crate) fn of(&self, page: u32) -> Option<u16> {
        self.slots[page as usize]
    }

    /// Gives a free page to a slot.
    pub(crate) fn take(&mut self, page: u32, slot: u16) {
        let former = self.slots[page as usize].replace(slot);
        assert!(former.is_none(), "page has two owners");
    }

    pub(crate) fn give_back(&mut self, first: u32, len: u32) {
        self.slots[first as usize..first as usize + pages(len)].fill(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_run_that_is_long_enough_goes_out() {
        let mut damq = Allocator::new(10);
        damq.set_limit(10);
        assert_eq!(damq.take(4096), Some(0));
        assert_eq!(damq.take(5 * 4096), Some(1));
        assert_eq!(damq.take(2 * 4096 + 512), Some(6));
        assert_eq!(damq.take(2 * 4096), None);
        damq.give_back(1, 5 * 4096);
        assert_eq!(damq.take(512), Some(1));
        assert_eq!(damq.take(3 * 4096), Some(2));
        damq.give_back(0, 4096);
        assert_eq!(damq.take(2 * 4096), None, "0, 5 and 9 are apart");
        assert_eq!(damq.take(4096), Some(0));
        assert_eq!(damq.take(4096), Some(5));
        assert_eq!(damq.take(4096), Some(9));
        assert_eq!(damq.take(512), None);
        damq.give_back(9, 4096);
        assert_eq!(damq.take(4096), Some(9));
    }

    #[test]
    fn a_run_is_the_first_that_a_search_page_by_page_finds() {
        let (mut damq, mut pages) = (Allocator::new(200), [false; 200]);
        damq.set_limit(200);
        let (mut taken, mut random) = (Vec::new(), 1_u64);
        for _ in 0..5_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = 1 + (random >> 33) as usize % 70;
            if random >> 63 == 0 && !taken.is_empty() {
                let (first, len) = taken.swap_remove((random >> 40) as usize % taken.len());
                damq.give_back(first as u32, len as u32 * 4096);
                pages[first..first + len].fill(false);
                continue;
            }
            let free = |first: &usize| pages[*first..*first + len].iter().all(|used| !used);
            let wanted = (0..=200 - len).find(free);
            assert_eq!(damq.take(len as u32 * 4096), wanted.map(|first| first as u32));
            if let Some(first) = wanted {
                pages[first..first + len].fill(true);
                taken.push((first, len));
            }
        }
    }

    #[test]
    #[should_panic(expected = "pages given back twice")]
    fn pages_that_are_free_are_not_given_back() {
        let mut damq = Allocator::new(200);
        damq.set_limit(200);
        damq.take(100 * 4096);
        damq.give_back(60, 41 * 4096);
    }

    #[test]
    fn pages_beyond_the_limit_are_left_as_they_come_back() {
        let mut damq = Allocator::new(200);
        assert_eq!(damq.take(33 * 4096), None, "more than the least");
        damq.set_limit(200);
        assert_eq!((damq.request_len_max(), damq.take(100 * 4096)), (100 * 4096, Some(0)));
        assert_eq!((damq.take(10 * 4096), damq.take(10 * 4096)), (Some(100), Some(110)));
        damq.set_limit(105);
        assert_eq!((damq.is_within_limit(), damq.take(4096)), (false, None));
        damq.give_back(100, 10 * 4096);
        assert_eq!((damq.is_within_limit(), damq.take(6 * 4096)), (false, None));
        assert_eq!(damq.take(5 * 4096), Some(100));
        damq.give_back(110, 10 * 4096);
        assert!(damq.is_within_limit());
    }

    #[test]
    fn runs_outside_of_the_queue_are_refused() {
        let mut owners = Owners::new(10);
        let free = |_| false;
        assert_eq!(owners.claim(9, 4096, 1, free), Ok(()));
        assert_eq!(owners.claim(9, 4097, 2, free), Err(Reject::Placement));
        owners.set_limit(9);
        assert_eq!(owners.claim(9, 4096, 2, free), Err(Reject::Placement), "not to be used");
        owners.set_limit(10);
        assert_eq!(owners.claim(u32::MAX, 1 << 20, 3, free), Err(Reject::Placement));
        assert_eq!(owners.claim(8, 8192, 1, free), Err(Reject::Placement), "in the same frame");
        assert_eq!(owners.claim(8, 8192, 4, free), Ok(()));
        Owners::run(8, 8192).for_each(|page| owners.take(page, 5));
        assert_eq!(owners.claim(9, 4096, 6, |owner| owner == 5), Err(Reject::Placement));
        assert_eq!([7, 8, 9].map(|page| owners.of(page)), [None, Some(5), Some(5)]);
    }
}
