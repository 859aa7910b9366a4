//! The daemon's own memory, which must be there when the kernel has none left.

use crate::shared::attach::Kind;

/// Prevents a deadlock: the kernel must never wait for this process to write out pages while this
/// process waits for the kernel, neither in an allocation nor in a page fault. A device that is not
/// this kernel's needs none of that.
pub(super) fn stay_in_memory(kind: Kind) {
    if !kind.is_of_this_kernel() {
        return;
    }
    if let Err(error) = tyche_block::avoid_reclaim_io() {
        tracing::warn!(
            "memory that runs short may hold up the disk: PR_SET_IO_FLUSHER: {error}; run with \
             CAP_SYS_RESOURCE"
        );
    }
    if let Err(error) = tyche_block::lock_memory() {
        tracing::warn!(
            "memory that runs short may hold up the disk: mlockall: {error}; run with \
             CAP_IPC_LOCK, or raise `ulimit -l`"
        );
    }
}
