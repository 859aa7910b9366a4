//! Memory policies: the node of new memory, of existing memory, and queries.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::syscall::{self, Policy};
use crate::{Error, Node};

/// The unit of placement: the smallest page of any Linux. Larger pages are just queried twice.
const PAGE: usize = 4096;
/// The most pages that [`nodes_of`] queries.
const SAMPLES: usize = 64;

/// While it lives, memory that the calling thread touches first, and memory that the kernel
/// allocates for it (rings of sockets and of io_uring), comes from a node. Dropping it restores the
/// previous policy.
///
/// Memory that an allocator already had, and hands out again, stays in place.
#[must_use = "the preference ends when it is dropped"]
#[derive(Debug)]
pub struct Near {
    before: Policy,
    /// A policy belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Near {
    /// Begins to prefer a node.
    ///
    /// # Errors
    /// [`Error::NoMemory`], or [`Error::Refused`].
    pub fn to(node: Node) -> Result<Self, Error> {
        let refused = |call| move |source| Error::Refused { call, source };
        let before = Policy::current().map_err(refused("get_mempolicy"))?;
        Policy::prefer(node).apply().map_err(|source| explain(node, "set_mempolicy", source))?;
        Ok(Self { before, _thread: PhantomData })
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        // The kernel granted this policy before. If it refuses now, memory is further away.
        let _ = self.before.apply();
    }
}

/// Binds whole pages to a node: those already touched move there.
///
/// # Errors
/// [`Error::NoMemory`], or [`Error::Refused`]; the memory then stays usable as it was.
///
/// # Panics
/// If the memory is not page-aligned.
pub fn bind(start: NonNull<u8>, len: usize, node: Node) -> Result<(), Error> {
    assert_eq!(start.as_ptr().addr() % PAGE, 0, "memory moves by the page");
    let applied = Policy::prefer(node).apply_to(start.as_ptr(), len);
    applied.map_err(|source| explain(node, "mbind", source))
}

/// Explains an error: the kernel returns `EINVAL` for a node outside the cpuset.
fn explain(node: Node, call: &'static str, source: std::io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EINVAL) => Error::NoMemory { node },
        _ => Error::Refused { call, source },
    }
}

/// The nodes of the memory, according to the kernel, by at most 64 pages spread over it. Untouched
/// memory has no node; nor has any if the kernel does not tell.
pub fn nodes_of(start: NonNull<u8>, len: usize) -> Vec<Node> {
    let pages = len.div_ceil(PAGE);
    let samples = pages.min(SAMPLES);
    let at = |sample: usize| start.as_ptr().wrapping_add(sample * pages / samples * PAGE);
    let addresses: Vec<_> = (0..samples).map(|sample| at(sample).cast_const()).collect();
    let mut status = vec![-1; samples];
    if syscall::query(&addresses, &mut status).is_err() {
        return Vec::new();
    }
    let nodes: BTreeSet<_> = status.iter().filter_map(|it| u16::try_from(*it).ok()).collect();
    nodes.into_iter().map(Node).collect()
}
