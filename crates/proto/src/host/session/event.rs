//! Events of a session, and its knowledge of the export.

use tyche_crypto::PublicKey;
use tyche_wire::{Echo, Geometry, Mac, Reason, Rejection, Status, Uuid, Versions};

use super::{OfferedBy, Problem};
use crate::host::operation::OpId;

/// What a session knows of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportState {
    /// Identity of the target.
    pub target: Uuid,
    /// Identity of the export.
    pub uuid: Uuid,
    /// The disk, as the session has it: read-only because the export is, or because the session is
    /// configured so.
    pub geometry: Geometry,
    /// Generation of the export: completed writes survive without a flush while it stays the same.
    pub generation: Uuid,
}

/// The state of a session that the next one of its device needs, if the device outlives its
/// program: [`SessionConfig::device`](super::SessionConfig::device) and
/// [`SessionConfig::resumes`](super::SessionConfig::resumes).
///
/// It changes with the generation or the size of the export, and when a loss has been reported to
/// the device ([`Session::answered`](super::Session::answered)); each time there is a
/// [`SessionEvent::ResumeStateChanged`]. The owner keeps the first one before the device takes its
/// first request. An older one is safe: at worst another flush fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeState {
    /// The device.
    pub device: Uuid,
    /// The state of the export. If a loss has not been reported yet, `generation` is the generation
    /// that was lost.
    pub export: ExportState,
}

/// A target's next key, by which it is to be known from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextKey {
    /// The target, which has proved the former key.
    pub target: Uuid,
    /// The key that it was known by.
    pub former: PublicKey,
    /// The key that it is to be known by.
    pub next: PublicKey,
}

/// Why a session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `ctrl_loss_tmo` has passed without the target coming back.
    TargetLost,
    /// The target refused the channel.
    Rejected(Reason),
    /// The export is another disk than before.
    ExportChanged,
    /// The target removed the export.
    ExportRemoved,
    /// Several targets offer what is wanted.
    Ambiguous([OfferedBy; 2]),
    /// The target has lost completed writes, or may have, beyond those in a cache: it was restored
    /// from a snapshot, or its memory is gone.
    WritesLost,
    /// The target lives, but has not completed a request in time.
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
    /// was handled last belong at `offset` of the operation. If the peer has placed them
    /// ([`RawFrame::is_placed`](crate::RawFrame)), `source` is in the memory that it has written
    /// to.
    Data {
        /// The operation.
        op: OpId,
        /// First byte within the operation.
        offset: u32,
        /// Bytes.
        len: u32,
        /// First byte within the frame's data section, or within that memory.
        source: u32,
    },
    /// The operation has ended.
    Completed {
        /// The operation.
        op: OpId,
        /// Its status.
        status: Status,
    },
    /// A channel is live, for the first time or again; the export is known.
    Connected,
    /// The last live channel was lost: operations wait for another.
    Lost(Problem),
    /// A channel is live: index of its local link, address of the target.
    Joined(usize, Mac),
    /// A channel was lost, with index and address as in `Joined`. If it was the last, `Lost`
    /// follows.
    Parted(usize, Mac, Problem),
    /// A Connect was refused. The session tries again unless `Failed` follows.
    Rejected(Box<Rejection>),
    /// A target speaks other versions only: index of the local link, address, its versions.
    OtherVersion(usize, Mac, Versions),
    /// A reply to an [echo](super::Session::echo) has come.
    Echoed(Echo),
    /// The export has another size.
    Resized(u64),
    /// The target was away for `fast_io_fail_tmo`: all operations in progress have failed, and new
    /// ones are refused.
    FailsFast,
    /// The target is back after `FailsFast`: operations are taken again.
    Resumed,
    /// The session has failed, and with it all operations in progress.
    Failed(Failure),
    /// The target has lost writes that it had completed: the next flush fails.
    CacheLost,
    /// [`Session::resume_state`](super::Session::resume_state) has changed.
    ResumeStateChanged,
    /// The target is to be known by another key.
    NextKey(NextKey),
    /// The queue has ended as requested.
    Closed,
}
