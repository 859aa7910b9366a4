//! The host's side as a library: a program reads and writes an export of a target itself, without a
//! block device, a kernel driver or a daemon in between.
//!
//! [`Options::open`] connects; the [`Volume`] takes requests and returns completions. Only
//! functions named *wait*, *open* or *close* block. Two modes ([`Mode`]), chosen when opening:
//!
//! ```text
//! inline   caller -> Volume -> Session <-> link        the caller's thread does everything
//! queue    callers -> Volume (queue) -> | thread: Session <-> link
//! ```
//!
//! *Inline* has no hand-over, and so the shortest path; but it makes progress only while the caller
//! polls, a few times a second at least. *Queue* takes requests from any thread, and keeps the
//! session alive by itself.
//!
//! ```no_run
//! use std::time::Duration;
//! use tyche::{Operation, Options, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut options = Options::new("vm1");
//! options.links.push("eth1".to_owned());
//! let volume = options.open()?;
//! let buffer = volume.arena().alloc(4096);
//! let request = Request { operation: Operation::Read, offset: 0, len: 4096, buffer };
//! volume.submit(request, 7)?;
//! let mut done = Vec::new();
//! volume.wait(&mut done, 1, 16, Duration::from_secs(30))?;
//! for completion in done {
//!     println!("{}: {:?}", completion.token, completion.result);
//! }
//! volume.close(Duration::from_secs(1));
//! # Ok(())
//! # }
//! ```
//!
//! The same in C is `tyche.h`, generated from the `ffi` module, the only one that needs `unsafe`.

#![deny(unsafe_code)]

mod either;
mod error;
#[allow(unsafe_code, reason = "who uses the value is only known at run time")]
mod exclusive;
mod fcoe;
#[allow(unsafe_code, reason = "the border to C: raw pointers in, raw pointers out")]
mod ffi;
mod inline;
mod options;
mod queue;
mod volume;
mod wanted;

pub use error::{OpenError, Refusal, Refused};
pub use options::{FcoeMode, FcoeOptions, Mode, NativeOptions, Options, SessionOptions};
pub use tyche_block::{Arena, Completion, Errno, Extent, Geometry, Operation, Request};
pub use tyche_fcoe::Interface;
pub use tyche_proto::BatchPolicy;
pub use tyche_remote::{HostLink, HostReport};
pub use tyche_session::LinkError;
pub use volume::Volume;

/// Maximum number of requests that a volume has taken and whose completions it has not returned.
pub const REQUESTS_MAX: usize = tyche_session::OPERATIONS_MAX;
