//! The disk over the NBD protocol, for programs through a [Unix socket](NbdServer), and for the
//! kernel, which makes it [`/dev/nbdN`](NbdDevice). Both use the same
//! `connection`. A program begins with the handshake; for the kernel, the process that configures
//! the device provides the same facts.

mod connection;
mod contexts;
mod device;
mod ending;
mod handshake;
mod outbox;
mod reply;
mod server;
mod wire;

pub use self::device::{NbdDevice, NbdDeviceOptions};
pub use self::ending::Ending;
pub use self::server::{NbdCounts, NbdServer};

/// The longest read or write offered to clients, in bytes, however large the arena is.
const PAYLOAD_MAX: u32 = 32 << 20;
