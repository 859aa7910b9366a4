//! The system calls of `mempolicy(7)`, for which safe Rust has no wrapper. None of them can make
//! memory invalid: a policy decides on the place of pages, not on their content.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::io;
use std::ptr;

use crate::Node;
use crate::node::NODES_MAX;

const WORD: usize = c_ulong::BITS as usize;
/// The kernel subtracts one from this number of bits.
const MASK_BITS: c_ulong = NODES_MAX as c_ulong + 1;
/// Moves pages already allocated (`numaif.h`; the libc crate lacks it).
const MPOL_MF_MOVE: c_uint = 1 << 1;

type Mask = [c_ulong; NODES_MAX / WORD];

/// A memory policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    mode: c_int,
    nodes: Mask,
}

impl Policy {
    /// Prefers a node, with others as fallback.
    pub(crate) fn prefer(node: Node) -> Self {
        let (mut nodes, index): (Mask, _) = (Mask::default(), usize::from(node.0));
        nodes[index / WORD] |= 1 << (index % WORD);
        Self { mode: libc::MPOL_PREFERRED, nodes }
    }

    /// The policy of the calling thread.
    pub(crate) fn current() -> io::Result<Self> {
        let mut policy = Self { mode: 0, nodes: Mask::default() };
        let none = ptr::null::<c_void>();
        // SAFETY: the kernel writes one int and at most `NODES_MAX` bits; it ignores the address,
        // which is for another use of the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.nodes.as_mut_ptr(),
                MASK_BITS,
                none,
                0 as c_ulong,
            )
        })?;
        Ok(policy)
    }

    /// Applies the policy to the calling thread.
    pub(crate) fn apply(&self) -> io::Result<()> {
        // SAFETY: the kernel reads `NODES_MAX` bits.
        check(unsafe {
            libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), MASK_BITS)
        })
    }

    /// Applies the policy to a range of memory, and moves pages already allocated.
    pub(crate) fn apply_to(&self, start: *const u8, len: usize) -> io::Result<()> {
        // SAFETY: the kernel reads `NODES_MAX` bits. Moving a page changes neither its address nor
        // its content; a range that is not mapped is an error.
        check(unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start,
                len as c_ulong,
                self.mode,
                self.nodes.as_ptr(),
                MASK_BITS,
                MPOL_MF_MOVE,
            )
        })
    }
}

/// Queries the nodes of pages into `status`: a negative number for a page not in memory.
pub(crate) fn query(pages: &[*const u8], status: &mut [c_int]) -> io::Result<()> {
    assert_eq!(pages.len(), status.len(), "each page has a status");
    let (own, no_nodes, no_flags): (c_int, *const c_int, c_int) = (0, ptr::null(), 0);
    // SAFETY: the kernel reads as many addresses and writes as many ints as there are. Without
    // target nodes it moves nothing, and it does not access the memory at the addresses.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            own,
            pages.len() as c_ulong,
            pages.as_ptr(),
            no_nodes,
            status.as_mut_ptr(),
            no_flags,
        )
    })
}

fn check(result: c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
