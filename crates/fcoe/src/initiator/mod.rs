//! The initiator: a logical unit of a target as a disk of this machine. In *queue* mode threads
//! serve its volume ([`FcoeHost`]), each a queue of it with a *lane*, which has exchanges, memory
//! and a socket of its own; in *inline* mode the submitting threads drive it, each a queue
//! ([`FcoeInlineHost`]).
//!
//! ```text
//! queue    attachment -> Volume -> [ Driver: InitiatorRole <-> NPort <-> interface ]
//!                      \                        |  shared
//!                       queue 1 -> [ LaneDriver: FurtherLane <-> FCoE of the interface ] ..
//! inline   caller ---------------> [ Driver: InitiatorRole <-> NPort <-> interface ]
//!          another caller -------> [ LaneDriver: FurtherLane <-> FCoE of the interface ] ..
//! ```

mod commands;
mod driver;
mod further;
mod generations;
mod host;
mod inline;
mod issue;
mod lane;
mod obstacle;
mod options;
pub(crate) mod question;
mod report;
mod requests;
mod role;
mod shared;

pub use further::FurtherLane;
pub use host::{FcoeControl, FcoeHost};
pub use inline::{FcoeInlineHost, InlineSession};
pub use lane::InitiatorConfig;
pub use obstacle::Obstacle;
pub use options::FcoeHostOptions;
pub use report::counter_tables;
pub use requests::Ended;
pub use role::{Event, InitiatorRole};
pub use shared::{LaneHandle, SessionShared};

use tyche_fc::neighbour::Functions;

/// The functions of the port of an initiator.
pub const INITIATOR: Functions = Functions { initiator: true, target: false };
