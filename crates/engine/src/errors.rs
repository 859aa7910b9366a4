//! Counters of failed requests, by operation and by class of error, and of dropped frames.

use std::time::{Duration, Instant};

use tyche_block::{Errno, OperationKind};
use tyche_counters::{CountsBy, labels};

labels! {
    /// The meaning of an error number for a disk.
    pub enum ErrorClass {
        /// `EIO`, and every number that is in no other class.
        Io = "io",
        /// The medium is damaged: `ENODATA`, `EILSEQ`, `EBADMSG`.
        Medium = "medium",
        /// No space is left: `ENOSPC`, `EDQUOT`, `EFBIG`.
        NoSpace = "no_space",
        /// The device is gone: `ENODEV`, `ENXIO`, `ENOMEDIUM`, `ESHUTDOWN`.
        Gone = "gone",
        /// Not permitted, or read-only: `EPERM`, `EACCES`, `EROFS`.
        NotPermitted = "not_permitted",
        /// An invalid request: `EINVAL`.
        Invalid = "invalid",
        /// Not supported: `EOPNOTSUPP`.
        Unsupported = "unsupported",
        /// No memory is left: `ENOMEM`.
        NoMemory = "no_memory",
    }
}

impl From<Errno> for ErrorClass {
    fn from(errno: Errno) -> Self {
        // Numbers without a name in `Errno` are those of Linux, in the order of the doc comments.
        match errno {
            Errno(61 | 84 | 74) => Self::Medium,
            Errno::NOSPC | Errno(122 | 27) => Self::NoSpace,
            Errno(19 | 6 | 123) | Errno::SHUTDOWN => Self::Gone,
            Errno::PERM | Errno(13) | Errno::ROFS => Self::NotPermitted,
            Errno::INVAL => Self::Invalid,
            Errno::OPNOTSUPP => Self::Unsupported,
            Errno::NOMEM => Self::NoMemory,
            _ => Self::Io,
        }
    }
}

/// Counters of failed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    counts: [CountsBy<ErrorClass, { ErrorClass::ALL.len() }>; OperationKind::ALL.len()],
    /// The time of the last one.
    last: Option<Instant>,
}

impl ErrorCounts {
    /// Counts a failed request.
    pub fn add(&mut self, operation: OperationKind, errno: Errno) {
        self.counts[operation as usize].add(errno.into());
        self.last = Some(Instant::now());
    }

    /// Adds other counters to these.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.last = self.last.max(other.last);
    }

    /// The counters that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (OperationKind, ErrorClass, u64)> {
        OperationKind::ALL.into_iter().zip(&self.counts).flat_map(|(operation, classes)| {
            classes.iter().map(move |(class, count)| (operation, class, count))
        })
    }

    /// The sum of all counters.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(CountsBy::total).sum()
    }

    /// The time since the last failed request; `None` if there is none.
    pub fn since_last(&self) -> Option<Duration> {
        self.last.map(|last| last.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_classes_have_their_own_counters() {
        for (index, operation) in OperationKind::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, index);
        }
        let mut counts = ErrorCounts::default();
        assert_eq!((counts.iter().count(), counts.total()), (0, 0));
        assert_eq!(counts.since_last(), None);
        counts.add(OperationKind::Write, Errno::NOSPC);
        counts.add(OperationKind::Read, Errno(121));
        counts.add(OperationKind::Read, Errno::IO);
        let found: Vec<_> =
            counts.iter().map(|(kind, class, count)| (kind.name(), class.name(), count)).collect();
        assert_eq!(found, [("read", "io", 2), ("write", "no_space", 1)]);
        assert_eq!(counts.total(), 3);
        let mut all = ErrorCounts::default();
        all.merge(&counts);
        all.merge(&ErrorCounts::default());
        assert_eq!(all, counts, "with the time of the last one");
        assert!(all.since_last().is_some());
    }
}
