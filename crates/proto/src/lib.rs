//! The protocol as sans-IO state machines. No clock, no system call, no thread, no payload: the
//! caller brings time and frames, and is told which bytes of which request belong where.
//!
//! | | host | target |
//! |---|---|---|
//! | who is there, who gets in | [`Session`] | [`Listener`], [`Registry`] |
//! | requests and their data | `host::initiator` | `target_end::requests` |
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

mod channel;
mod host;
mod question;
mod rules;
mod sync;
mod target_end;

pub use channel::batching::BatchPolicy;
pub use channel::body::RawFrame;
pub use channel::outgoing::{Outgoing, Part, SealedFrame, Written};
pub use channel::protection::{HostKeys, Opened};
pub use channel::stages::StageSample;
pub use channel::stats::{ChannelStats, RejectCounts};
pub use host::operation::{OpId, Operation};
pub use host::session::{
    ChannelChoice, ExportId, ExportState, Failure, Favourite, NextKey, NodeCounts, OfferedBy,
    PathReport, PlaceableChannel, PortConfig, Problem, QUEUES_MAX, QueueHandle, ResumeState,
    Session, SessionConfig, SessionEvent, SessionShared, SubmitError, TargetId, Waiting,
    parse_export,
};
pub use question::{connect_proof, nonce as nonce_of_question};
pub use rules::{AllRules, Rule, Rules};
pub use target_end::access::{Access, Allowed, HostId, Identity};
pub use target_end::export::{
    ChannelRef, ExportConfig, ExportKey, ExportTaken, RenameRefused, SessionInfo, Writer,
};
pub use target_end::generation::Loss;
pub use target_end::listener::{
    ChannelReport, Listener, ListenerConfig, ListenerEvent, OpenedChannel, Part as LinkPart,
    Refusal, RefusalCounts, TargetKeys,
};
pub use target_end::pool::CHANNEL_PAGES;
pub use target_end::registry::{Registry, TargetConfig};
pub use target_end::requests::{Action, Amounts};
pub use target_end::visits::Visit;
pub use tyche_crypto as crypto;
pub use tyche_time::{Instant, Pace};
pub use tyche_wire as wire;

use tyche_time as time;
