//! The initiator: a logical unit of a target as a disk of this machine. In *queue* mode a thread
//! serves its volume ([`FcoeHost`]); in *inline* mode the submitting thread drives it
//! ([`FcoeInlineHost`]).
//!
//! ```text
//! queue    attachment -> Volume -> [ Driver: InitiatorRole <-> NPort <-> interface ]
//! inline   caller ---------------> [ Driver: InitiatorRole <-> NPort <-> interface ]
//! ```

mod commands;
mod driver;
mod host;
mod inline;
mod issue;
mod losses;
mod obstacle;
mod options;
pub(crate) mod question;
mod report;
mod requests;
mod role;

pub use host::{FcoeControl, FcoeHost};
pub use inline::FcoeInlineHost;
pub use obstacle::Obstacle;
pub use options::FcoeHostOptions;
pub use requests::Ended;
pub use role::{Event, InitiatorConfig, InitiatorRole};

use tyche_fc::vn2vn::Functions;

/// The functions of the port of an initiator.
pub const INITIATOR: Functions = Functions { initiator: true, target: false };
