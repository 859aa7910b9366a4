//! What a session wants.

use std::time::Duration;

use tyche_wire::{Name, Uuid};

use super::event::ExportState;
use super::quest::{ExportId, TargetId};
use crate::batching::BatchPolicy;

/// What a session wants.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Identity of this host, the same after a restart.
    pub host: Uuid,
    /// Its name, for people.
    pub host_name: Name,
    /// Identity of the session, new for each.
    pub session: Uuid,
    /// Identity of the device that the session serves: the session's own, unless it takes the
    /// place of another.
    pub device: Uuid,
    /// What the former session of the device knew of the export, if there was one: see
    /// [`Former`](super::Former). Everything that it has not answered is to be submitted again.
    pub resumes: Option<ExportState>,
    /// The export.
    pub export: ExportId,
    /// The target that must offer it. Once connected, a session stays with its target, and so does
    /// one that takes the place of another.
    pub target: TargetId,
    /// Requests in flight on each channel, 1 to 1024.
    pub queue_size: u16,
    /// Pages wanted for the target's data queues of all channels together: each gets its part, but
    /// 8 MiB at least.
    pub damq_pages: u32,
    /// Operations in progress at once.
    pub operations_max: u32,
    /// Never write.
    pub read_only: bool,
    /// Cover data with checksums.
    pub checksum: bool,
    /// Find out where the time of operations goes: [`Session::exchange`](super::Session::exchange).
    pub stages: bool,
    /// Silence after which a channel is dead; at least 100 ms.
    pub keep_alive: Duration,
    /// Pause between two attempts to connect.
    pub reconnect_delay: Duration,
    /// How long to try to get back to a lost target before everything fails, and how long a living
    /// one may take for a request, if that is more than 10 s; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// How requests share frames.
    pub batch: BatchPolicy,
    /// Channels for each pair of a local link and an address of the target, at least 1.
    pub channels: usize,
    /// Which channel a request takes.
    pub choice: ChannelChoice,
}

/// How a session chooses a channel for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelChoice {
    /// Each in turn, whatever it can do.
    RoundRobin,
    /// The one that will be done first: by the bytes that it has in flight, the rate that it was
    /// seen to move them at, its round-trip time, and how long nothing was heard of it.
    #[default]
    LeastOutstanding,
    /// As `LeastOutstanding`, among the channels whose NIC sits on the NUMA node of the request's
    /// memory, if any is live.
    Node,
}
