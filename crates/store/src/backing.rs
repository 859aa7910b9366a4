//! Changes to a file or device that others make while it is exported.

/// Faults that [`Store::check_backing`](crate::Store::check_backing) finds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackingError {
    /// The file or device can't be opened, so far.
    #[error("offline until its disk is there: {0}")]
    Missing(String),
    /// The file was deleted: it has no name, and its blocks live as long as it is open.
    #[error(
        "its file was deleted: the disk works until the target stops, and is lost then; copy it \
         before that"
    )]
    Deleted,
    /// The device was removed.
    #[error("its device was removed: requests fail; bring it back, then restart the target")]
    Removed,
    /// The file or device was truncated.
    #[error(
        "it has shrunk to {now} bytes: requests beyond that fail, and what was cut off is lost; \
         restore the {size} bytes, then restart the target"
    )]
    Shrunk {
        /// Bytes that are left.
        now: u64,
        /// Bytes that are exported.
        size: u64,
    },
}
