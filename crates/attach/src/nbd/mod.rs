//! The disk for everything that speaks the protocol of network block devices: programs, through
//! a [Unix socket](NbdServer), and the kernel, which makes [`/dev/nbdN`](NbdDevice) of it.
//!
//! Both are the same [connection](self::connection). A program begins with the handshake; the
//! kernel never speaks it, for whoever configures the device tells it what it would have learnt.

mod connection;
mod device;
mod ending;
mod handshake;
mod outbox;
mod server;
mod wire;

pub use self::device::{NbdDevice, NbdDeviceOptions};
pub use self::ending::Ending;
pub use self::server::{NbdCounts, NbdServer};

/// The longest read or write offered to clients, in bytes, however large the arena is.
const PAYLOAD_MAX: u32 = 32 << 20;
