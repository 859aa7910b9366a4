//! The conformance suite: PROTOCOL.md's requirements for a target and for a host, as vectors in
//! JSON, and a driver that plays the other end. `conformance/README.md` describes the format.
//!
//! ```text
//! main      vectors against a peer on a network interface          live
//! tests     the same against Listener and Session, in virtual time
//!               |
//!             suite     the files and their vectors
//!             run       one vector: its steps, one after the other
//!             exchange  frames in and out, the state of channels
//!             sealed    handshakes with keys, sealed frames
//!             frame     frames as bytes
//!             table     fields as bytes
//! ```
//!
//! [`fc`] has the same for exchanges of Fibre Channel.
//!
//! Only the CRC and the ciphers come from the implementation: frames are composed and decoded with
//! the table of fields in `conformance/frames.json`.

#![forbid(unsafe_code)]

mod exchange;
pub mod fc;
mod frame;
mod keys;
pub mod live;
mod receiver;
mod run;
mod sealed;
mod suite;
mod table;
pub mod uevent;

use std::collections::BTreeMap;
use std::time::Duration;

pub use frame::Mac;
pub use suite::{Outcome, Suite};

/// The result type, with an error in one line.
pub type Result<T> = std::result::Result<T, String>;

/// The end under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The target: the suite plays a host.
    Target,
    /// The host: the suite plays a target.
    Host,
    /// A target with a key that lets in hosts without one, too: the suite plays hosts of either
    /// kind.
    SealedTarget,
    /// A target that is silent: docs/protocol-annexes.md, "Silent targets".
    SilentTarget,
    /// A host with a key: the suite plays its target.
    SealedHost,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Target, Self::Host, Self::SealedTarget, Self::SilentTarget, Self::SealedHost];

    /// Its name, which is also that of its file of vectors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Host => "host",
            Self::SealedTarget => "sealed-target",
            Self::SilentTarget => "silent-target",
            Self::SealedHost => "sealed-host",
        }
    }

    /// Whether it is a host.
    pub fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::SealedHost)
    }

    /// Whether it is a target.
    pub fn is_target(self) -> bool {
        !self.is_host()
    }

    /// Whether it has a key.
    pub fn has_keys(self) -> bool {
        !matches!(self, Self::Target | Self::Host)
    }
}

/// The implementation under test, at the other end of a link.
pub trait Subject {
    /// Our own address on the link.
    fn address(&self) -> Mac;

    /// Length in bytes of the longest frame that the link takes.
    fn frame_len(&self) -> u32;

    /// Monotonic time since an arbitrary start.
    fn now(&self) -> Duration;

    /// Sends a frame to the implementation.
    ///
    /// # Errors
    /// If the link does not take it.
    fn send(&mut self, frame: &[u8]) -> Result<()>;

    /// Returns the next frame that it sends within that time.
    ///
    /// # Errors
    /// If the link fails.
    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>>;

    /// Sends an order to a host's agent, as a line.
    ///
    /// # Errors
    /// If there is no agent.
    fn order(&mut self, line: &str) -> Result<()>;

    /// Returns the next line of the agent, if there is one.
    ///
    /// # Errors
    /// If there is no agent.
    fn said(&mut self) -> Result<Option<String>>;

    /// Returns the number of frames that it has rejected, by reason; `None` if it does not report
    /// them.
    ///
    /// # Errors
    /// If the counters can't be read.
    fn rejects(&mut self) -> Result<Option<BTreeMap<String, u64>>>;

    /// Whether it can be told that the memory of its machine was put back to an earlier state.
    fn can_restore(&self) -> bool;

    /// Tells it so.
    ///
    /// # Errors
    /// If it can't be told.
    fn restore(&mut self) -> Result<()>;
}
