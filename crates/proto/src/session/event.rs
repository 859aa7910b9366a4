//! What happens to a session, and what it knows of its export.

use tyche_wire::{Echo, Mac, Reason, Rejection, Status, Uuid, Versions};

use super::{OfferedBy, Problem};
use crate::operation::OpId;

/// What a session knows of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportState {
    /// Identity of the target.
    pub target: Uuid,
    /// Identity of the export.
    pub uuid: Uuid,
    /// Bytes.
    pub size: u64,
    /// 512 or 4096.
    pub block_size: u32,
    /// Writes are refused, by the target or by our own wish.
    pub read_only: bool,
    /// Completed writes may be volatile until the next flush.
    pub write_cache: bool,
    /// Discard does something.
    pub discard: bool,
    /// Seeks take time: the data are on disks that turn.
    pub rotational: bool,
    /// The time in which completed writes survive without a flush.
    pub boot: Uuid,
}

/// What has to be known of a session to take its place when its program is gone and its device is
/// not: [`SessionConfig::device`](super::SessionConfig::device) and
/// [`SessionConfig::resumes`](super::SessionConfig::resumes).
///
/// It changes when the target comes back as another run, or the export gets another size; each time
/// there is a [`SessionEvent::FormerChanged`]. Whoever keeps it must do so before the device takes
/// its first request, and later not before the answers that came ahead of that event are given: one
/// of them may be the only one to tell of a lost cache. To keep an older one is safe: at worst
/// another flush fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    /// The device.
    pub device: Uuid,
    /// What is known of the export. Its `boot` is the one whose loss has still to be told, if there
    /// is any.
    pub export: ExportState,
}

/// Why a session is over for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `ctrl_loss_tmo` has passed without the target coming back.
    TargetLost,
    /// The target refused the channel.
    Rejected(Reason),
    /// The export of that name is another disk than before.
    ExportChanged,
    /// The target removed the export.
    ExportRemoved,
    /// Several targets offer what is wanted.
    Ambiguous([OfferedBy; 2]),
    /// The target has lost completed writes, or may have, beyond those in a cache: it was restored
    /// from a snapshot, or its memory is gone.
    WritesLost,
    /// The target lives, but has not answered a request in time.
    NoProgress,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TargetLost => f.write_str("the target did not come back in time"),
            Self::Rejected(reason) => reason.fmt(f),
            Self::ExportChanged => f.write_str("the export is not the same disk any more"),
            Self::ExportRemoved => f.write_str("the target removed the export"),
            Self::Ambiguous([one, other]) => write!(
                f,
                "two targets offer it: {} ({}) and {} ({}); name the one you mean",
                one.name, one.target, other.name, other.target
            ),
            Self::WritesLost => f.write_str(
                "the target has lost completed writes, or may have: \
                 it was restored from a snapshot, or its memory is gone",
            ),
            Self::NoProgress => f.write_str("the target lives, but did not answer in time"),
        }
    }
}

/// What happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// Data of a read have come: `len` bytes from `source` in the data section of the frame that
    /// was handled last belong at `offset` of the operation.
    Data {
        /// The operation.
        op: OpId,
        /// First byte within the operation.
        offset: u32,
        /// Bytes.
        len: u32,
        /// First byte within the frame's data section.
        source: u32,
    },
    /// The operation has ended.
    Completed {
        /// The operation.
        op: OpId,
        /// How.
        status: Status,
    },
    /// A channel is live, for the first time or again; the export is known.
    Connected,
    /// The last live channel was lost: operations wait.
    Lost(Problem),
    /// A channel is live on a local link, by index, to that address of the target.
    Joined(usize, Mac),
    /// A channel was lost; the session lives on others, or has told that it is `Lost`.
    Parted(usize, Mac, Problem),
    /// A connect was refused. The session goes on trying unless it also fails.
    Rejected(Box<Rejection>),
    /// A target at that address, heard on a local link by index, speaks other versions only.
    OtherVersion(usize, Mac, Versions),
    /// An answer to an [echo](super::Session::echo) has come.
    Echoed(Echo),
    /// The export has another size.
    Resized(u64),
    /// The session is over: everything has failed.
    Failed(Failure),
    /// The target has lost writes that it had completed: the next flush fails.
    CacheLost,
    /// [`Session::former`](super::Session::former) says something else.
    FormerChanged,
    /// The farewell is said.
    Closed,
}
