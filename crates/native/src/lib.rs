//! Tyche's own protocol in the engine's loop: both ends, and discovery.
//!
//! ```text
//! host:    attachment -> Volume (queue) -> [ Session <-> links ], one such thread per queue
//! target:  [ link <-> Listener <-> store ], one or more such threads per link
//! ```

#![forbid(unsafe_code)]

mod composer;
mod conversion;
mod discovery;
mod host;
mod memory;
mod path_probe;
mod random;
mod stages;
#[cfg(feature = "target")]
mod target_end;

pub use conversion::operation;
pub use discovery::{Discovery, Foreign, Found, Listing, discover, search};
pub use host::{ConnectError, Driver, HostControl, HostEnv, HostOptions, HostSession, InlineHost};
pub use memory::ChannelMemory;
pub use path_probe::{ProbedPath, probe_paths};
pub use stages::{Stage, StageTimes};
#[cfg(feature = "target")]
pub use target_end::{
    Arrival, ChannelEvent, Departure, ExportReport, Exporter, ExporterEnv, Exports, LinkRemoval,
    Remains, RememberWriter, Removal, RenewGeneration, Target, TargetExport, TargetLinkReport,
    TargetOptions, TargetReport, TargetSessionReport, Use, UseCounts,
};
