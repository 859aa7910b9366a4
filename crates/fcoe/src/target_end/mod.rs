//! The target: exports as logical units, on one or more interfaces, each with a thread of its own.
//!
//! ```text
//!                device server: Units, behind a lock
//!               /                                    \
//! [ interface <-> NPort <-> TargetRole <-> Disk, .. ]   [ interface <-> .. ]
//! ```
//!
//! The device server is shared, because an initiator's right to write holds for all interfaces. It
//! is asked once for each command; for reads and writes it grants an initiator what a thread can
//! tell by itself, until something changes. What an initiator has in the caches of disks is shared
//! as well (`Stake`), and changed with each write, without a lock.

mod announcer;
mod grants;
mod management;
mod memory;
mod open_units;
mod peers;
mod report;
mod role;
mod slot;
mod stakes;
mod thread;
mod units;

pub use announcer::VlanAnnouncer;
pub use peers::Departure;
pub use report::FcoeTargetReport;
pub use role::TargetRole;
pub use thread::{FcoeTarget, FcoeTargetOptions};
pub use units::{Generation, LunTaken, TargetUnit, UnitRemoval, Units, VisibleTo};
