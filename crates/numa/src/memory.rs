//! Where memory comes from, goes to, and is.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::syscall::{self, Policy};
use crate::{Error, Node};

/// The unit of placement: the smallest page of any Linux. Larger ones are only asked twice.
const PAGE: usize = 4096;
/// Pages that [`nodes_of`] asks about.
const SAMPLES: usize = 64;

/// While it lives, memory that the calling thread touches first, and what the kernel allocates on
/// its behalf (rings of sockets and of io_uring), comes from a node. Afterwards it is as before.
///
/// What an allocator had from the kernel before, and hands out again, is where it is.
#[must_use = "the preference ends when it is dropped"]
#[derive(Debug)]
pub struct Near {
    before: Policy,
    /// A policy is its thread's.
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
        // The kernel has granted as much before. If it does so no more, memory is further away.
        let _ = self.before.apply();
    }
}

/// Has whole pages at a node from now on: those that have been touched move there.
///
/// # Errors
/// [`Error::NoMemory`], or [`Error::Refused`]; the memory is then as good as before.
///
/// # Panics
/// If the memory does not start with a page.
pub fn bind(start: NonNull<u8>, len: usize, node: Node) -> Result<(), Error> {
    assert_eq!(start.as_ptr().addr() % PAGE, 0, "memory moves by the page");
    let applied = Policy::prefer(node).apply_to(start.as_ptr(), len);
    applied.map_err(|source| explain(node, "mbind", source))
}

/// `EINVAL` is what the kernel says of a node that a cpuset does not have.
fn explain(node: Node, call: &'static str, source: std::io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EINVAL) => Error::NoMemory { node },
        _ => Error::Refused { call, source },
    }
}

/// The nodes that have the memory, as the kernel says of pages all over it, 64 at most. What has
/// not been touched yet is nowhere; nor is anything where the kernel does not tell.
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
