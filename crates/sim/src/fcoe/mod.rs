//! Worlds of Fibre Channel over Ethernet: targets with logical units, initiators, a stranger, and
//! the network between them.
//!
//! Ports, logins, exchanges and device servers are those of the product: a target runs
//! [`TargetRole`](tyche_fcoe::TargetRole) and an initiator
//! [`InitiatorRole`](tyche_fcoe::InitiatorRole), each under an [`NPort`](tyche_fcoe::NPort), over
//! simulated links and stores. An initiator may have [further lanes](tyche_fcoe::FurtherLane), and
//! a target [further threads](tyche_fcoe::FurtherThread), which have their turn later than the
//! first, or earlier. The checker is that of the other worlds, [`crate::history`].
//!
//! ```text
//! plan        what a seed draws
//! world       drives the stations
//!   incidents ├ what happens to them
//!   station   ├ a port with its two links
//!   threads   ├ the threads of a target's interface
//!   target    ├ a target, its logical units and their disks
//!   initiator ├ an initiator and its workload
//!   forwarder ├ the forwarder of a fabric, if there is one
//!   ledger    ├ who is to be told of lost writes
//!   air       ├ the network: fates of frames
//!   stranger  └ garbage, and forged frames
//! rules       a value for each rule that is broken on purpose
//! canary      the checker must notice those
//! ```
//!
//! # Limits that are not violations
//!
//! Fibre Channel has no name for a command but the number of its exchange (OX_ID), which is used
//! again, and a port has no name for a login. FC.md says what follows ("When commands may be sent
//! again", "Lost and repeated frames"), and the network keeps to that:
//!
//! - A frame that arrives later than others arrives before the least time in which an XID is used
//!   again. Some arrive much later, but within R_A_TOV: they are the only copy, and the loss of the
//!   first shows; or the first has arrived long before, and a later exchange may have the number:
//!   between two of ours, CRN, RX_ID and SEQ_ID tell.
//! - A command, or an answer to one, that is longer on the way than a login takes belongs to the
//!   next login. The network drops it.
//! - Nothing says whose frame it is. So the stranger forges no data within a burst, no response to
//!   a command, no command but those of task management, and no login or logout.
//! - An operation that is in progress may be executed more than once: nobody keeps outcomes.

mod air;
mod canary;
mod forwarder;
mod initiator;
mod ledger;
mod plan;
mod rules;
mod station;
mod stranger;
mod target;
mod threads;
mod world;

pub(crate) use canary::{canaries, hunt};
pub(crate) use world::run;
