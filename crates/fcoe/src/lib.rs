//! Fibre Channel over Ethernet in the engine's loop: what joins links, the state machines of
//! [`tyche_fc`], and disks.
//!
//! ```text
//!              ports of the loop        N_Port of an interface          role
//!  interface ─┬─ FIP  (0x8914) ── VN2VN or a fabric ──┐
//!             └─ FCoE (0x8906) ── link services ──────┴── commands ── stores, or a volume
//! ```
//!
//! An [`NPort`] is the protocol of a loop: it finds an address and neighbours, logs in, and hands
//! all other frames to its [`Role`], the commands of an initiator or of a target. [`discover`]
//! listens without one; [`survey()`] asks targets what disks they have.

#![forbid(unsafe_code)]

mod discovery;
mod initiator;
mod interface;
mod lanes;
mod losses;
mod n_port;
mod options;
mod outbox;
mod role;
mod survey;
mod sync;
#[cfg(feature = "target")]
mod target_end;

pub use discovery::{Discovery, FoundNeighbour, FoundVlan, discover};
pub use initiator::{Ended, Event, FcoeControl, FcoeHost, FcoeHostOptions, FcoeInlineHost};
pub use initiator::{FurtherLane, InlineSession, LaneHandle, SessionShared};
pub use initiator::{INITIATOR, InitiatorConfig, InitiatorRole, Obstacle, counter_tables};
pub use interface::{FCOE, FIP, Interface, MTU_FULL};
pub use lanes::{LANES_MAX, share};
#[cfg(feature = "target")]
pub use lanes::{share_of_thread, threads_within};
pub use n_port::{NPort, Notice, Rejects, RememberAddress};
pub use options::PortOptions;
pub use role::Role;
pub use survey::{SurveyOptions, Surveyed, SurveyedTarget, SurveyedUnit, Targets, survey};
#[cfg(feature = "target")]
pub use target_end::{AskedReport, FcoeTarget, FcoeTargetOptions, FcoeTargetReport, VlanAnnouncer};
#[cfg(feature = "target")]
pub use target_end::{
    Departure, FurtherThread, Generation, LunTaken, Seat, SentOn, TargetRole, TargetUnit,
    UnitRemoval, Units, VisibleTo,
};
pub use tyche_fc as fc;
pub use tyche_fc::network::PortConfig;
pub use tyche_scsi as scsi;
