//! What can happen to a file or device while it is exported, by other hands than ours.

/// What [`Store::check_backing`](crate::Store::check_backing) finds wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackingError {
    /// The file has no name any more: its blocks live as long as it is open.
    #[error(
        "its file was deleted: it works until the target stops, and is gone then; copy the disk \
         before"
    )]
    Deleted,
    /// The device was removed.
    #[error("its device was removed: requests fail; bring it back, then restart the target")]
    Removed,
    /// The end was cut off.
    #[error(
        "it has shrunk to {now} bytes: of its {size}, those beyond that fail; make it as large \
         as it was"
    )]
    Shrunk {
        /// Bytes that there are.
        now: u64,
        /// Bytes that are exported.
        size: u64,
    },
}
