//! The loop that joins links, a protocol, and stores or attachments. It knows no protocol.
//!
//! One thread runs a channel to completion: receive, protocol, store or answer, transmit, without
//! hand-overs (MSST 2015 found them to be a quarter of a small request's time). It spins while that
//! pays, then sleeps in one wait that covers links, stores, submissions and timers.
//!
//! ```text
//! host:    attachment -> Volume (queue) -> [ EventLoop <-> links ], one such thread per queue
//! target:  [ link <-> EventLoop <-> store ], one or more such threads per link
//! ```
//!
//! [`EventLoop`] drives a [`Service`]: a [`Protocol`], whose frames come and go by [`Ports`], and
//! the other side of its requests.

#![forbid(unsafe_code)]

mod backlog;
mod clock;
mod counts;
#[cfg(feature = "target")]
mod disk;
mod errors;
mod eventloop;
mod histogram;
pub mod identity;
mod intake;
mod job;
mod latency;
#[cfg(feature = "target")]
mod limiter;
pub mod placed;
mod port;
mod ports;
mod protocol;
pub mod restore;
#[cfg(feature = "target")]
mod sync;
mod volume;

pub use clock::{Clock, now};
pub use counts::{RequestCounts, SuccessCounts};
#[cfg(feature = "target")]
pub use disk::{DEPTH, Disk, Exported, Health};
pub use errors::{ErrorClass, ErrorCounts};
pub use eventloop::{EventLoop, Service};
pub use histogram::Histogram;
pub use intake::Intake;
pub use job::{Done, Job};
pub use latency::{LATENCY, Latency};
#[cfg(feature = "target")]
pub use limiter::{Limiter, Line, RateLimit, Step};
pub use placed::{LinkNodes, SessionNodes, ThreadAffinity};
pub use port::{BATCH, Batches, Port, PortStats, batch_frames};
pub use ports::Ports;
pub use protocol::{Composed, Fault, FrameSink, Frames, Protocol, Received};
pub use volume::{Submission, Volume, VolumeQueue};
