//! Verdicts: the map from status and sense data to the initiator's next action.

use tyche_geometry::Operation;

use crate::attention::Attention;
use crate::operation::Failure;
use crate::sense::{Code, Sense, SenseKey};
use crate::status::Status;

/// The end of a command.
///
/// A command that is retried had no effect, or may have it twice. The caller bounds the retries:
/// five at once are usual, later ones until the command's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Done,
    /// It is to be sent again now.
    RetryNow,
    /// It is to be sent again after a pause.
    RetryLater {
        /// The target has no room for it: fewer commands are to be outstanding.
        full: bool,
    },
    /// Something has happened to the logical unit. The command was not executed, and is to be sent
    /// again, but a flush must fail if writes that were done may be gone.
    Attention(Attention),
    /// It has failed.
    Failed(Failure),
}

/// Classifies the end of a command.
///
/// `operation` is the one that the command stands for, if it does: a target that refuses UNMAP or
/// WRITE SAME for a field has no such command as we need.
pub fn classify(status: u8, sense: &[u8], operation: Option<Operation>) -> Verdict {
    match Status::parse(status) {
        Some(Status::Good | Status::ConditionMet) => Verdict::Done,
        Some(Status::CheckCondition) => match Sense::parse(sense) {
            Ok(sense) => of_sense(&sense, operation),
            // A failure without its reason, which some targets have for aborted commands.
            Err(_) => Verdict::RetryNow,
        },
        Some(Status::Busy | Status::TaskSetFull) => Verdict::RetryLater { full: true },
        Some(Status::AcaActive) => Verdict::RetryLater { full: false },
        Some(Status::TaskAborted) => Verdict::RetryNow,
        Some(Status::ReservationConflict) => Verdict::Failed(Failure::Reserved),
        None => Verdict::Failed(Failure::Io),
    }
}

fn of_sense(sense: &Sense, operation: Option<Operation>) -> Verdict {
    if let Some(attention) = Attention::of(sense) {
        return Verdict::Attention(attention);
    }
    match sense.key {
        SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::Completed => Verdict::Done,
        SenseKey::NotReady => Verdict::RetryLater { full: false },
        SenseKey::AbortedCommand => Verdict::RetryNow,
        SenseKey::IllegalRequest => Verdict::Failed(illegal(sense.code, operation)),
        SenseKey::DataProtect => Verdict::Failed(match sense.code {
            Code::SPACE_ALLOCATION_FAILED => Failure::NoSpace,
            _ => Failure::ReadOnly,
        }),
        _ => Verdict::Failed(Failure::Io),
    }
}

fn illegal(code: Code, operation: Option<Operation>) -> Failure {
    let is_optional = matches!(operation, Some(Operation::Discard | Operation::WriteZeroes { .. }));
    match code {
        Code::INVALID_OPCODE => Failure::NotSupported,
        Code::LOGICAL_UNIT_NOT_SUPPORTED => Failure::Gone,
        Code::INVALID_FIELD_IN_CDB | Code::INVALID_FIELD_IN_PARAMETER_LIST if is_optional => {
            Failure::NotSupported
        }
        _ => Failure::Invalid,
    }
}
