//! The control port of a target: requests of admins elsewhere, sealed, over TCP.
//!
//! It knows no request: bytes of an admin go to a [`Service`], and its bytes go back. Both ends
//! prove who they are by the handshake that hosts use, with a prologue of its own, so that neither
//! can be taken for the other. docs/protocol-annexes.md, "Control port".
//!
//! ```text
//! admin                                        target
//!         ◄──────────  challenge: random, for this connection only
//!         hello  ──────────►                   a keyed hash is checked first, then Noise IKpsk2
//!         ◄──────────  verdict: who the target is, and what the admin may do
//!         request  ──────────►                 records with numbers: none counts twice
//!         ◄──────────  answer
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `wire` | a stream of bytes with a deadline for each step |
//! | `handshake` | the three messages until both know who the other is |
//! | `record` | sealed messages in numbered records |
//! | `conversation` | the target's side of one connection |
//! | `guests` | the guests that are connected, and the one that has to go for another |
//! | `port` | the listening socket, and a thread for each guest |
//! | `client` | the admin's side |

#![forbid(unsafe_code)]

mod client;
mod conversation;
mod guests;
mod handshake;
mod port;
mod record;
mod wire;

pub use client::{Client, ClientError};
pub use conversation::{Attending, End, Owner, attend, greet};
pub use guests::Bounds;
pub use handshake::{Identity, NAME_MAX, Verdict};
pub use port::{Admin, Caller, Counts, Limits, Port, Service};
pub use record::{ANSWER_MAX, REQUEST_MAX, Records};
pub use wire::Wire;
