//! The ticket of a target: proof that a connect is fresh and that its source address is genuine.

use core::fmt;

/// Issued by a target in its answer to a hello, and returned in the connect. Opaque to the host;
/// all zeroes in a host's hello.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub [u8; Ticket::LEN]);

impl Ticket {
    /// Bytes on the wire.
    pub const LEN: usize = 24;
    /// No ticket: the value in a host's hello.
    pub const NONE: Self = Self([0; Self::LEN]);
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
