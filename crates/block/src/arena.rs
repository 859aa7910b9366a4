//! Page-aligned memory, allocated once and lent out in extents.
//!
//! An [`Arena`] is one allocation. An [`Extent`] is a run of its pages with exactly one owner: the
//! arena [records](crate::lent) the lent pages, so a page is never lent twice. That check, made
//! once per request, makes it safe to hand memory between threads and to the kernel without a lock
//! on the data itself.
//!
//! Two ways to get an extent: [`Arena::alloc`] finds free pages (the host's side, where requests
//! start), [`Arena::claim`] takes given pages (the target's `damq`, whose pages the *host* hands
//! out: PROTOCOL.md, "Slots, tags and placement").
//!
//! A card, or another process, may have been [told](Arena::region) to write into an arena at any
//! time, also while pages are lent out. Then what an extent holds is whatever bytes arrive: nobody
//! may rely on reading the same bytes twice.
//!
//! An arena may be [spread](Arena::spread) over NUMA nodes: each node holds an equal part of the
//! pages. An extent comes from the calling thread's node while that has free pages.

use std::alloc::{Layout, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::time::Duration;
use std::{fmt, slice};

use rustix::thread::sched_getcpu;
use tyche_numa::{Node, Placement};

use crate::lent::Lent;
use crate::mapping::{Mapping, PAGE};
use crate::size::ArenaSize;
use crate::sync::{Arc, AtomicUsize, Mutex, MutexGuard, Ordering};

/// One allocation of whole pages, lent out in extents. Clones share the same memory.
#[derive(Clone)]
pub struct Arena {
    memory: Arc<Memory>,
}

struct Memory {
    mapping: Mapping,
    pages: usize,
    parts: Parts,
    lent: Lent,
    /// Pages that are meant to be used now.
    usable: AtomicUsize,
    /// Pages that always have memory: the first ones.
    kept: AtomicUsize,
    /// Held by who changes the number of pages in use.
    turn: Mutex<()>,
}

/// The division of the pages into equal parts, one for each NUMA node, in the order of `nodes`.
struct Parts {
    /// Pages of each part.
    pages: usize,
    /// The nodes by part; empty if the pages are not placed.
    nodes: Box<[Node]>,
    /// By CPU: the part of its node.
    of_cpu: Box<[usize]>,
}

impl Parts {
    /// The part to search first: that of the calling thread's node.
    fn near(&self) -> usize {
        if self.nodes.len() < 2 { 0 } else { *self.of_cpu.get(sched_getcpu()).unwrap_or(&0) }
    }
}

/// Maps each CPU to the part of its node. CPUs of a node without a part get the first part.
fn parts_of_cpus(nodes: &[Node], placement: &Placement) -> Box<[usize]> {
    let mut of_cpu = Vec::new();
    for (part, node) in nodes.iter().enumerate() {
        for cpu in placement.topology().cpus(*node).iter().flat_map(|cpus| cpus.iter()) {
            of_cpu.resize(of_cpu.len().max(cpu + 1), 0);
            of_cpu[cpu] = part;
        }
    }
    of_cpu.into()
}

/// Aborts, as every allocation does that does not return an error, for want of so many pages.
fn abort(pages: usize) -> ! {
    let layout = Layout::from_size_align(pages * PAGE, PAGE);
    handle_alloc_error(layout.expect("arenas fit an address space"))
}

impl Arena {
    /// Allocates `pages` zeroed pages. The calling thread touches all of them, so by default they
    /// are on its NUMA node. Aborts, as every allocation does, if there is no memory.
    ///
    /// # Panics
    /// If `pages` is zero or exceeds a `u32`.
    pub fn new(pages: usize) -> Self {
        Self::try_new(pages).unwrap_or_else(|_| abort(pages))
    }

    /// As [`new`](Self::new), for memory that somebody else has asked for.
    ///
    /// # Errors
    /// The system's error if there is no memory.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn try_new(pages: usize) -> io::Result<Self> {
        Ok(Self::whole(Self::map(pages)?, Box::default()))
    }

    /// As [`new`](Self::new), but each page is allocated at its first use. Meant for arenas of
    /// which only a part is used.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn untouched(pages: usize) -> io::Result<Self> {
        Ok(Self::unused(Self::map(pages)?, Box::default()))
    }

    /// As [`untouched`](Self::untouched), placed on one NUMA node.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn untouched_on(pages: usize, node: Node) -> io::Result<Self> {
        Ok(Self::unused(Self::map_on(pages, node)?, [node].into()))
    }

    fn unused(mut mapping: Mapping, nodes: Box<[Node]>) -> Self {
        mapping.forgo_huge_pages(0);
        let pages = mapping.len() / PAGE;
        Self::of(mapping, Parts { pages, nodes, of_cpu: Box::default() }, 1)
    }

    /// As [`try_new`](Self::try_new), but only what `size` keeps is allocated; the other pages are
    /// held back: nobody gets them before a [`Reserve`](crate::Reserve) has allocated them.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn elastic(size: ArenaSize) -> io::Result<Self> {
        Ok(Self::holding(Self::map(size.all)?, Box::default(), size))
    }

    /// As [`elastic`](Self::elastic), placed on one NUMA node.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn elastic_on(size: ArenaSize, node: Node) -> io::Result<Self> {
        Ok(Self::holding(Self::map_on(size.all, node)?, [node].into(), size))
    }

    fn holding(mut mapping: Mapping, nodes: Box<[Node]>, size: ArenaSize) -> Self {
        let ArenaSize { all: pages, kept } = size;
        let kept = kept.clamp(1, pages);
        mapping.forgo_huge_pages(kept * PAGE);
        // SAFETY: a new mapping.
        unsafe { mapping.touch_part(0, kept * PAGE) };
        let parts = Parts { pages, nodes, of_cpu: Box::default() };
        Self::with(mapping, parts, Lent::with_held(pages, kept))
    }

    /// As [`try_new`](Self::try_new), in a file that is nowhere but in memory, for another process
    /// to map as well.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new), or if there is no descriptor left.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn in_file(pages: usize) -> io::Result<(Self, OwnedFd)> {
        let (mapping, file) = Mapping::of_file(Self::len_of(pages))?;
        Ok((Self::whole(mapping, Box::default()), file))
    }

    /// As [`try_new`](Self::try_new), placed on one NUMA node.
    ///
    /// # Errors
    /// If there is no memory, or the kernel refuses to place it there.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn on(pages: usize, node: Node) -> io::Result<Self> {
        Ok(Self::whole(Self::map_on(pages, node)?, [node].into()))
    }

    fn map_on(pages: usize, node: Node) -> io::Result<Mapping> {
        let mapping = Self::map(pages)?;
        let (start, len) = mapping.part(0, pages * PAGE);
        tyche_numa::bind(start, len, node).map_err(io::Error::other)?;
        Ok(mapping)
    }

    /// As [`new`](Self::new), with `pages` pages on each NUMA node that the placement names for
    /// request buffers. If it names none, the arena has `pages` pages in all and is not placed.
    ///
    /// # Errors
    /// If the kernel refuses to place memory.
    ///
    /// # Panics
    /// If there would be no pages, or more than a `u32` counts.
    pub fn spread(pages: usize, placement: &Placement) -> Result<Self, tyche_numa::Error> {
        let nodes: Box<[Node]> = placement.buffer_nodes().into();
        if nodes.is_empty() {
            return Ok(Self::new(pages));
        }
        let pages_in_all = pages * nodes.len();
        let mapping = Self::map(pages_in_all).unwrap_or_else(|_| abort(pages_in_all));
        for (part, node) in nodes.iter().enumerate() {
            let (start, len) = mapping.part(part * pages * PAGE, pages * PAGE);
            tyche_numa::bind(start, len, *node)?;
        }
        let (of_cpu, count) = (parts_of_cpus(&nodes, placement), nodes.len());
        Ok(Self::with_parts(mapping, Parts { pages, nodes, of_cpu }, count))
    }

    fn map(pages: usize) -> io::Result<Mapping> {
        Mapping::new(Self::len_of(pages))
    }

    /// Bytes of so many pages.
    fn len_of(pages: usize) -> usize {
        assert!(pages > 0 && u32::try_from(pages).is_ok(), "an arena of {pages} pages");
        pages * PAGE
    }

    /// An arena of one part, on one of the nodes if any are given.
    fn whole(mapping: Mapping, nodes: Box<[Node]>) -> Self {
        let pages = mapping.len() / PAGE;
        Self::with_parts(mapping, Parts { pages, nodes, of_cpu: Box::default() }, 1)
    }

    fn with_parts(mut mapping: Mapping, parts: Parts, count: usize) -> Self {
        // The page faults happen here rather than during a request.
        mapping.touch();
        Self::of(mapping, parts, count)
    }

    fn of(mapping: Mapping, parts: Parts, count: usize) -> Self {
        let lent = Lent::new(parts.pages, count);
        Self::with(mapping, parts, lent)
    }

    fn with(mapping: Mapping, parts: Parts, lent: Lent) -> Self {
        let (pages, kept, turn) =
            (mapping.len() / PAGE, AtomicUsize::new(lent.end()), Mutex::new(()));
        let usable = AtomicUsize::new(pages);
        Self { memory: Arc::new(Memory { mapping, pages, parts, lent, usable, kept, turn }) }
    }

    /// The number of pages.
    pub fn pages(&self) -> usize {
        self.memory.pages
    }

    /// Notes how many pages, from the first one on, are meant to be used now. It is a hint for
    /// those who would prepare memory for its use.
    pub fn set_usable(&self, pages: usize) {
        self.memory.usable.store(pages.min(self.pages()), Ordering::Relaxed);
    }

    /// The pages, from the first one on, that are meant to be used now: by default all.
    pub fn usable(&self) -> usize {
        self.memory.usable.load(Ordering::Relaxed)
    }

    /// The number of pages that always have memory: a request of so many gets them in the end,
    /// whatever happens. All, unless the arena is [elastic](Self::elastic).
    pub fn kept(&self) -> usize {
        self.memory.kept.load(Ordering::Relaxed)
    }

    /// Keeps `pages` at least from now on, or all if there are fewer. The calling thread allocates
    /// what is missing: it must not be one that a request of the disk depends on.
    pub fn keep(&self, pages: usize) {
        let pages = pages.min(self.pages());
        let mut growth = self.growth();
        growth.grow(pages.saturating_sub(growth.end()));
        self.memory.kept.fetch_max(pages, Ordering::Relaxed);
    }

    /// The right to change the number of pages in use.
    pub(crate) fn growth(&self) -> Growth<'_> {
        let turn = self.memory.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Growth { memory: &self.memory, _turn: turn }
    }

    /// The record of the lent pages.
    pub(crate) fn lent(&self) -> &Lent {
        &self.memory.lent
    }

    /// Gives the memory of an arena back to the kernel, from the page `first` on, which nobody
    /// uses: each page is allocated anew at its next use. False if some are lent: then nothing
    /// changes. Not for memory that a card or another process may write to.
    pub fn forget(&self, first: usize) -> bool {
        let pages = self.pages().saturating_sub(first);
        let rest = self.claim(first, pages * PAGE).filter(|_| pages > 0);
        rest.map(|mut rest| rest.forget()).is_some()
    }

    /// The start of the memory and its length in bytes, for registering it with the kernel.
    pub fn region(&self) -> (NonNull<u8>, usize) {
        self.memory.mapping.part(0, self.memory.pages * PAGE)
    }

    /// The NUMA nodes that hold the memory, as the kernel reports them for a sample of the pages;
    /// empty if unknown.
    pub fn memory_nodes(&self) -> Vec<Node> {
        let (start, len) = self.region();
        tyche_numa::nodes_of(start, len)
    }

    /// The NUMA nodes that the arena was placed on; empty if it was not placed.
    pub fn nodes(&self) -> &[Node] {
        &self.memory.parts.nodes
    }

    /// Lends a run of free pages that holds `len` bytes; `None` if there is none now.
    pub fn alloc(&self, len: usize) -> Option<Extent> {
        self.alloc_in(self.memory.parts.near(), len)
    }

    /// As [`alloc`](Self::alloc), but prefers the pages on `node` to those on other nodes.
    pub fn alloc_near(&self, node: Node, len: usize) -> Option<Extent> {
        let part = self.nodes().iter().position(|other| *other == node);
        self.alloc_in(part.unwrap_or(0), len)
    }

    fn alloc_in(&self, part: usize, len: usize) -> Option<Extent> {
        let pages = pages_of(len);
        let first = self.memory.lent.take_free(pages, part)?;
        Some(self.extent(first, pages, len))
    }

    /// As [`alloc`](Self::alloc), but waits up to `timeout` for pages to be returned.
    pub fn alloc_timeout(&self, len: usize, timeout: Duration) -> Option<Extent> {
        let (pages, near) = (pages_of(len), self.memory.parts.near());
        let first = self.memory.lent.take_free_timeout(pages, near, timeout)?;
        Some(self.extent(first, pages, len))
    }

    /// Lends the pages from `first` on that hold `len` bytes; `None` if one of them is already lent
    /// or does not exist.
    pub fn claim(&self, first: usize, len: usize) -> Option<Extent> {
        let pages = pages_of(len);
        let exists = first.checked_add(pages)? <= self.memory.pages;
        (exists && self.memory.lent.take(first, pages)).then(|| self.extent(first, pages, len))
    }

    fn extent(&self, first: usize, pages: usize, len: usize) -> Extent {
        Extent { memory: Arc::clone(&self.memory), first, pages, len }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} pages)", self.memory.pages)
    }
}

/// The right to change the number of pages of an [elastic](Arena::elastic) arena that are in use.
/// No request ever waits for it.
pub(crate) struct Growth<'a> {
    memory: &'a Memory,
    _turn: MutexGuard<'a, ()>,
}

impl Growth<'_> {
    /// The end of the pages in use: those from here on are held back, and have no memory.
    pub(crate) fn end(&self) -> usize {
        self.memory.lent.end()
    }

    /// Allocates the memory of the next `pages`, or of those that there are, and has them used.
    /// Takes as long as the kernel does to find memory.
    pub(crate) fn grow(&mut self, pages: usize) {
        let first = self.end();
        let pages = pages.min(self.memory.pages - first);
        if pages > 0 {
            // SAFETY: pages that are held back have no owner, and only who has this turn changes
            // that.
            unsafe { self.memory.mapping.touch_part(first * PAGE, pages * PAGE) };
            self.memory.lent.release(first, pages);
        }
    }

    /// Holds the last `pages` in use back, and gives their memory to the kernel; false if one of
    /// them is lent.
    pub(crate) fn shrink(&mut self, pages: usize) -> bool {
        let first = self.end() - pages;
        let is_held = self.memory.lent.hold(first, pages);
        if is_held {
            // SAFETY: as in `grow`.
            unsafe { self.memory.mapping.forget(first * PAGE, pages * PAGE) };
        }
        is_held
    }
}

/// The pages that hold `len` bytes, at least one.
fn pages_of(len: usize) -> usize {
    len.div_ceil(PAGE).max(1)
}

/// A run of pages of an [`Arena`] with one owner. Dropping it returns the pages to the arena.
pub struct Extent {
    memory: Arc<Memory>,
    first: usize,
    pages: usize,
    len: usize,
}

impl Extent {
    /// Index of the first page in its arena.
    pub fn first_page(&self) -> usize {
        self.first
    }

    /// Whether the extent is part of `arena`.
    pub fn is_of(&self, arena: &Arena) -> bool {
        Arc::ptr_eq(&self.memory, &arena.memory)
    }

    /// A number of its arena, which no other has while the extent lives.
    pub fn arena_id(&self) -> usize {
        Arc::as_ptr(&self.memory).addr()
    }

    /// The NUMA node of the extent, if its arena was placed on one or [spread](Arena::spread) over
    /// several.
    pub fn node(&self) -> Option<Node> {
        let parts = &self.memory.parts;
        parts.nodes.get(self.first / parts.pages).copied()
    }

    /// Gives its memory back to the kernel: it is zero from now on, and each page is allocated anew
    /// at its next use. Not for memory that a card or another process may write to.
    pub(crate) fn forget(&mut self) {
        // SAFETY: the pages are lent to `self` alone, which is borrowed exclusively.
        unsafe { self.memory.mapping.forget(self.first * PAGE, self.pages * PAGE) };
    }

    fn start(&self) -> NonNull<u8> {
        self.memory.mapping.part(self.first * PAGE, self.pages * PAGE).0
    }
}

impl Deref for Extent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are initialised (the kernel zeroes them) and lent to `self` alone.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }
}

impl DerefMut for Extent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.memory.lent.give_back(self.first, self.pages);
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extent({} bytes at page {})", self.len, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_do_not_overlap_and_come_back() {
        let arena = Arena::new(8);
        let mut a = arena.alloc(3 * PAGE).unwrap();
        let b = arena.alloc(5 * PAGE - 1).unwrap();
        assert_eq!((a.first_page(), b.first_page()), (0, 3));
        assert_eq!(b.len(), 5 * PAGE - 1);
        assert!(arena.alloc(1).is_none());
        assert!(arena.claim(2, 1).is_none());
        a.fill(0xa5);
        assert!(b.iter().all(|&byte| byte == 0));
        drop(a);
        assert_eq!(arena.claim(2, 1).unwrap().first_page(), 2);
        assert!(arena.claim(7, 2 * PAGE).is_none(), "past the end");
    }

    #[test]
    fn search_finds_the_only_hole_wherever_it_starts() {
        let arena = Arena::new(200);
        let mut all: Vec<_> = (0..200).map(|_| arena.alloc(1)).collect();
        for hole in [0usize, 1, 63, 64, 127, 198] {
            all[hole] = None;
            all[hole + 1] = None;
            assert!(arena.alloc(3 * PAGE).is_none());
            let found = arena.alloc(2 * PAGE).expect("there is a hole of two pages");
            assert_eq!(found.first_page(), hole);
            drop(found);
            all[hole] = arena.claim(hole, 1);
            all[hole + 1] = arena.claim(hole + 1, 1);
            assert!(all[hole].is_some() && all[hole + 1].is_some());
        }
    }

    /// An arena that claims to be spread over two nodes, with 8 pages on each.
    fn of_two_nodes() -> Arena {
        let nodes = [Node(0), Node(3)].into();
        let parts = Parts { pages: 8, nodes, of_cpu: Box::default() };
        Arena::with_parts(Arena::map(16).unwrap(), parts, 2)
    }

    #[test]
    fn a_spread_arena_lends_from_the_requested_node_first() {
        let arena = of_two_nodes();
        let a = arena.alloc_near(Node(3), 5 * PAGE).unwrap();
        let b = arena.alloc_near(Node(3), 3 * PAGE).unwrap();
        assert_eq!((a.first_page(), a.node()), (8, Some(Node(3))));
        assert_eq!((b.first_page(), b.node()), (13, Some(Node(3))));
        let elsewhere = arena.alloc_near(Node(3), PAGE).unwrap();
        assert_eq!((elsewhere.first_page(), elsewhere.node()), (0, Some(Node(0))));
        drop(a);
        assert_eq!(arena.alloc_near(Node(3), PAGE).unwrap().first_page(), 8);
        assert_eq!(arena.alloc_near(Node(7), PAGE).unwrap().node(), Some(Node(0)));
    }

    #[test]
    fn no_extent_is_on_two_nodes() {
        let arena = of_two_nodes();
        let taken = arena.alloc_near(Node(0), 5 * PAGE).unwrap();
        let next = arena.alloc_near(Node(0), 4 * PAGE).unwrap();
        assert_eq!((next.first_page(), next.node()), (8, Some(Node(3))));
        assert!(arena.alloc(5 * PAGE).is_none(), "7 pages are free, but not side by side");
        drop((taken, next));
        assert!(arena.alloc(9 * PAGE).is_none(), "more than a node has");
        assert!(arena.alloc(8 * PAGE).is_some() && Arena::new(9).alloc(9 * PAGE).is_some());
    }

    #[test]
    fn without_nodes_an_arena_is_whole() {
        let topology = tyche_numa::Topology::read("/sys".as_ref()).unwrap();
        let placement = Placement::new(tyche_numa::Affinity::None, topology).unwrap();
        let arena = Arena::spread(16, &placement).unwrap();
        assert!(arena.nodes().is_empty());
        assert_eq!(arena.alloc(16 * PAGE).unwrap().node(), None);
    }

    #[test]
    fn a_waiter_gets_what_another_thread_returns() {
        let arena = Arena::new(1);
        let taken = arena.alloc(1).unwrap();
        assert!(arena.alloc_timeout(1, Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| arena.alloc_timeout(1, Duration::from_secs(30)));
            drop(taken);
            assert!(waiter.join().unwrap().is_some());
        });
    }
}

#[cfg(all(test, loom))]
mod models;
