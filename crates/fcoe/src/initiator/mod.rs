//! The initiator: a logical unit of a target as a volume of this machine, served by a thread.
//!
//! ```text
//! attachment -> Volume -> [ InitiatorRole <-> NPort <-> interface ]
//! ```

mod commands;
mod host;
mod issue;
mod losses;
mod obstacle;
pub(crate) mod question;
mod report;
mod requests;
mod role;

pub use host::{FcoeControl, FcoeHost, FcoeHostOptions};
pub use obstacle::Obstacle;
pub use requests::Ended;
pub use role::{Event, InitiatorConfig, InitiatorRole};
