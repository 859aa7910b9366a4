//! The protocol as sans-IO state machines. No clock, no system call, no thread, no payload: the
//! caller brings time and frames, and is told which bytes of which request belong where.
//!
//! | | host | target |
//! |---|---|---|
//! | who is there, who gets in | [`Session`] | [`Listener`], [`Registry`] |
//! | requests and their data | `initiator` | `target` |
//! | rings, acks, nacks, windows, timers | `channel` | `channel` |
//!
//! Each takes one input at a time and is then drained of its outputs:
//!
//! ```text
//! submit(now, ..) | handle_frame(now, ..) | complete(..) | handle_timeout(now)
//!     then  poll_event()  until None,  poll_transmit(now, ..)  until false,
//!     then  poll_timeout()  says how long to wait for the next input
//! ```
//!
//! All memory is taken when a channel opens. A frame that is wrong is a named counter
//! ([`RejectCounts`]), never an error and never a panic; our own invariants are assertions.

#![forbid(unsafe_code)]

mod access;
mod admission;
mod attempts;
mod batching;
mod body;
mod channel;
mod congestion;
mod contest;
mod damq;
mod echo;
mod generation;
mod initiator;
mod listener;
mod load;
mod operation;
mod outgoing;
mod protection;
mod question;
mod received;
mod registry;
mod ring;
mod rtt;
mod rules;
mod session;
mod stages;
mod stats;
mod sync;
mod takeovers;
mod target;
mod ticket;
mod turns;
mod visits;

pub use access::{Access, Allowed, HostId, Identity};
pub use batching::BatchPolicy;
pub use generation::Loss;
pub use listener::{
    ChannelReport, Listener, ListenerConfig, ListenerEvent, Part as LinkPart, Refusal,
};
pub use operation::{OpId, Operation};
pub use outgoing::{Outgoing, Part, SealedFrame, Written};
pub use protection::{HostKeys, Opened};
pub use question::{connect_proof, nonce as nonce_of_question};
pub use registry::{ChannelRef, ExportConfig, Registry, SessionInfo, TargetConfig, Writer};
pub use rules::{AllRules, Rule, Rules};
pub use session::{
    ChannelChoice, ExportId, ExportState, Failure, Favourite, NodeCounts, OfferedBy, PathReport,
    PortConfig, Problem, QUEUES_MAX, QueueHandle, ResumeState, Session, SessionConfig,
    SessionEvent, SessionShared, SubmitError, TargetId, Waiting, parse_export,
};
pub use stages::StageSample;
pub use stats::{ChannelStats, RejectCounts};
pub use target::Action;
pub use tyche_crypto as crypto;
pub use tyche_time::{Instant, Pace};
pub use tyche_wire as wire;
pub use visits::Visit;

use tyche_time as time;
