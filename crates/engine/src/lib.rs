//! The loops that join links, the protocol, and stores or attachments.
//!
//! One thread runs a channel to completion: receive, protocol, store or answer, transmit, without
//! hand-overs (MSST 2015 found them to be a quarter of a small request's time). It spins while that
//! pays, then sleeps in one wait that covers links, stores, submissions and timers.
//!
//! ```text
//! host:    attachment -> Volume (queue) -> [ Session <-> links ], one such thread per queue
//! target:  [ link <-> Listener <-> store ], one or more such threads per link
//! ```
//!
//! [`EventLoop`] and [`Ports`] are the loop, for any [`Protocol`]; `host` and `target` are Tyche's
//! two sides on it.

#![forbid(unsafe_code)]

mod backlog;
mod clock;
mod conversion;
mod discovery;
#[cfg(feature = "target")]
mod disk;
mod errors;
mod eventloop;
mod histogram;
mod host;
pub mod identity;
mod intake;
mod placed;
mod port;
mod ports;
mod protocol;
mod random;
pub mod restore;
mod stages;
#[cfg(feature = "target")]
mod target;
mod tyche;
mod volume;

pub use clock::Clock;
pub use conversion::operation;
pub use discovery::{Discovery, Foreign, Found, LinkFault, Listing, discover, search};
#[cfg(feature = "target")]
pub use disk::{Disk, Exported, Health};
pub use errors::{ErrorClass, ErrorCounts};
pub use eventloop::{EventLoop, Service};
pub use histogram::Histogram;
pub use host::{
    ConnectError, Done, Driver, Favoured, Host, HostControl, HostEnv, HostLink, HostOptions,
    HostReport, InlineHost, Job, Latency, LatencyFigures, LatencyReport, LinkError, LinkReport,
    Notice, QueueReport, RequestCounts,
};
pub use intake::Intake;
pub use placed::{LinkNodes, SessionNodes};
pub use port::{BATCH, Batches, Port, PortStats};
pub use ports::Ports;
pub use protocol::{Composed, Fault, Frames, Protocol, Received, Sink};
pub use stages::{Stage, StageTimes};
#[cfg(feature = "target")]
pub use target::{
    Arrival, ChannelEvent, Departure, ExportReport, Exporter, ExporterEnv, Exports, Remains,
    RememberWriter, RenewGeneration, Target, TargetExport, TargetLinkReport, TargetOptions,
    TargetReport, TargetSessionReport,
};
pub use volume::{Submission, Volume, VolumeQueue};
