//! The conformance suite: what PROTOCOL.md asks of a target and of a host, as vectors in JSON, and
//! a driver that plays the other end. `conformance/README.md` describes the format.
//!
//! ```text
//! main      vectors against a peer on a network interface          live
//! tests     the same against Listener and Session, in virtual time
//!               |
//!             suite     the files and their vectors
//!             run       one vector: its steps, one after the other
//!             exchange  frames in and out, the state of channels
//!             frame     frames as bytes
//!             table     fields as bytes
//! ```
//!
//! Nothing here comes from the implementation but the CRC: frames are composed and taken apart
//! from the table of fields in `conformance/frames.json`.

#![forbid(unsafe_code)]

mod exchange;
mod frame;
pub mod live;
mod run;
mod suite;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

pub use frame::Mac;
pub use suite::{Outcome, Role, Suite};

/// Anything that went wrong, in one line.
pub type Result<T> = std::result::Result<T, String>;

/// The implementation under test, at the other end of a link.
pub trait Subject {
    /// Our own address on the link.
    fn address(&self) -> Mac;

    /// Bytes of the longest frame that the link takes.
    fn frame_len(&self) -> u32;

    /// Time since some moment.
    fn now(&self) -> Duration;

    /// Sends a frame to it.
    ///
    /// # Errors
    /// If the link does not take it.
    fn send(&mut self, frame: &[u8]) -> Result<()>;

    /// The next frame that it sends within that time.
    ///
    /// # Errors
    /// If the link fails.
    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>>;

    /// Gives an order to a host's agent: a line.
    ///
    /// # Errors
    /// If there is no agent.
    fn order(&mut self, line: &str) -> Result<()>;

    /// What the agent has said that has not been looked at: a line.
    ///
    /// # Errors
    /// If there is no agent.
    fn said(&mut self) -> Result<Option<String>>;

    /// How many frames it has rejected, by reason; `None` if it does not tell.
    ///
    /// # Errors
    /// If it can't be asked.
    fn rejects(&mut self) -> Result<Option<BTreeMap<String, u64>>>;
}
