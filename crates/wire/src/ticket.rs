//! The ticket of a target: proof that a connect is fresh and comes from where it says.

use core::fmt;

/// Handed out by a target in its answer to a hello, and shown to it in the connect. Opaque to the
/// host; all zeroes in a hello that asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub [u8; Ticket::LEN]);

impl Ticket {
    /// Bytes on the wire.
    pub const LEN: usize = 24;
    /// None: what a hello that asks has.
    pub const NONE: Self = Self([0; Self::LEN]);
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
