//! Commands of the user, and how they end.

use tyche_fc_wire::Wwn;
use tyche_fc_wire::fcp::{CDB_LEN, Residual};

/// Bytes of sense data that are kept: those of the fixed format, and descriptors that a disk has.
pub const SENSE_LEN_MAX: usize = 96;

/// A target of the lane, which may be logged in or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nexus(pub(super) u16);

/// A logical unit of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit(pub(super) u16);

/// A command for a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The logical unit.
    pub unit: Unit,
    /// The command (SPC-4, SBC-3).
    pub cdb: [u8; CDB_LEN],
    /// Its data.
    pub data: Data,
    /// Whether it modifies the logical unit: it must not be executed when something else may have
    /// been written since.
    pub modifies: bool,
    /// Whether the target answers it with a unit attention if there is one, in place of executing
    /// it: every command but INQUIRY, REPORT LUNS and REQUEST SENSE (SPC-4).
    pub hears_attentions: bool,
}

/// The data of a command, and their length in bytes (FCP_DL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// There are none.
    None,
    /// At most so many bytes come from the target.
    In(u32),
    /// So many bytes go to the target.
    Out(u32),
}

/// The reason why the lane does not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The target is not logged in.
    LoggedOut,
    /// There are as many commands as there may be, or too many XIDs are quarantined. Another
    /// completion, or time, makes room.
    Full,
}

/// Data of a frame that are to be copied to a command's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The command.
    pub exchange: u16,
    /// The first byte within its data.
    pub offset: u32,
}

/// The consequence of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// None: it belongs to no exchange of the lane, and is for others to handle.
    NotOurs,
    /// It is done with.
    Done,
    /// The payload is to be placed, before the next [event](super::Lane::poll_event).
    Place(Placement),
}

/// An event of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command has ended.
    Completed(Completion),
    /// A target does not even answer that exchanges end, or has forgotten the login: it is to begin
    /// anew ([`Logins::restart`](crate::port::Logins::restart)).
    Restart(Wwn),
}

/// The end of a command. The target is not at work with it any more, and won't be, except after
/// [`Failure::LoggedOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command, as [`submit`](super::Lane::submit) has called it.
    pub exchange: u16,
    /// Its end.
    pub end: Result<CommandAnswer, Failure>,
    /// Whether a response may have been lost that had a unit attention of a new login: as if it
    /// had told that the cache of the logical unit is lost.
    pub attention_lost: bool,
}

/// The answer of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandAnswer {
    /// The SCSI status (SAM-5): 0 good.
    pub status: u8,
    /// The status qualifier, such as the delay before a retry.
    pub qualifier: u16,
    /// The difference between the command's length of data and those that there were.
    pub residual: Residual,
    /// Sense data.
    pub sense: Sense,
}

/// The first bytes of sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    bytes: [u8; SENSE_LEN_MAX],
    len: u8,
}

/// The end of a command that has no answer. All but `Refused` may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Data of a read were lost. The target is done with it.
    DataLost,
    /// The target does not know of the command, and has never answered: it was lost on its way. To
    /// be sent again for as long as commands may take: the target may be slow, and not tell.
    NotArrived,
    /// The target was done with it, and its answer was lost.
    AnswerLost,
    /// It took too long, or its exchange went wrong, and the target has confirmed that it is over.
    Aborted,
    /// The target has not executed it, for this reason (a
    /// [`ResponseCode`](tyche_fc_wire::fcp::ResponseCode), if it is known).
    Refused(u8),
    /// The login has ended.
    LoggedOut {
        /// Whether the target may still execute it, until it has accepted another login, and change
        /// the logical unit. The lane takes no command before.
        may_modify: bool,
    },
}

impl Data {
    /// Bytes.
    pub fn len(self) -> u32 {
        match self {
            Self::None => 0,
            Self::In(len) | Self::Out(len) => len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl Sense {
    /// No sense data.
    pub const NONE: Self = Self { bytes: [0; SENSE_LEN_MAX], len: 0 };

    pub(super) fn new(sense: &[u8]) -> Self {
        let mut this = Self::NONE;
        let len = sense.len().min(SENSE_LEN_MAX);
        this.bytes[..len].copy_from_slice(&sense[..len]);
        this.len = len as u8;
        this
    }
}

impl std::ops::Deref for Sense {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
