//! The target: exports as logical units, on one or more interfaces, each with threads of its own.
//!
//! ```text
//!                    device server: Units, behind a lock
//!                   /              |                     \
//! [ interface <-> NPort <-> TargetRole <-> Disk, .. ]     [ interface <-> .. ]
//!       |             mail, orders |
//!       └─ FCoE <-> FurtherThread: TargetRole <-> Disk, .. ]  ..
//! ```
//!
//! The first thread of an interface has its port, with the logins. Each has the commands whose
//! OX_IDs fall to it ([`share_of_thread`](crate::share_of_thread)), with a socket, exchanges,
//! memory and queues at the disks of its own. `logins` is about what they tell each other.
//!
//! The device server is shared, because an initiator's right to write holds for all interfaces. It
//! is asked once for each command; for reads and writes it grants an initiator what a thread can
//! tell by itself, until something changes. What an initiator has in the caches of disks is shared
//! as well (`Stake`), and changed with each write, without a lock.

mod announcer;
mod further;
mod grants;
mod logins;
mod mail;
mod management;
mod memory;
mod nexus;
mod open_units;
mod peers;
mod report;
mod role;
mod seat;
mod slot;
mod stakes;
mod thread;
mod units;

pub use announcer::VlanAnnouncer;
pub use further::FurtherThread;
pub use mail::SentOn;
pub use peers::Departure;
pub use report::FcoeTargetReport;
pub use role::TargetRole;
pub use seat::Seat;
pub use thread::{AskedReport, FcoeTarget, FcoeTargetOptions};
pub use units::{Generation, LunTaken, TargetUnit, UnitRemoval, Units, VisibleTo};
