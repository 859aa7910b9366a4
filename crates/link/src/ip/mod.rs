//! The common parts of links over IP: the names of places, the errors of opening a link there, and
//! this machine's own addresses.

use std::time::Duration;

mod addresses;
mod error;
mod listen_address;
mod origin;

pub(crate) use addresses::{LocalAddress, addresses};
/// A peer that no frame of a channel was sent to for so long has none: each side of a channel sends
/// something every 20 s at least. Only then another may have its place.
pub(crate) const UNSERVED_AFTER: Duration = Duration::from_secs(30);

pub use error::OpenError;
pub use listen_address::{DEFAULT_PORT, InvalidAddress, ListenAddress, Transport};
pub(crate) use origin::Origins;
