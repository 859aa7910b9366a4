//! What a session wants.

use std::sync::Arc;
use std::time::Duration;

use tyche_wire::{Accept, Connect, ConnectFlags, Name, PAGE_LEN, REQUEST_LEN_MAX, Uuid};

use super::event::ExportState;
use super::target_search::{ExportId, TargetId};
use crate::channel::batching::BatchPolicy;
use crate::channel::protection::HostKeys;

/// What a session wants.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// UUID of this host, the same after a restart.
    pub host: Uuid,
    /// Its name, for people.
    pub host_name: Name,
    /// UUID of the session, new for each.
    pub session: Uuid,
    /// UUID of the device that the session serves: that of the session, unless it takes over a
    /// device.
    pub device: Uuid,
    /// What the former session of the device knew of the export, if there was one: see
    /// [`ResumeState`](super::ResumeState). The owner submits again all requests that the former
    /// session has not answered.
    pub resumes: Option<ExportState>,
    /// The export.
    pub export: ExportId,
    /// The target that must offer it. Once connected, a session stays with its target, and so do
    /// later sessions of the device.
    pub target: TargetId,
    /// Requests in flight on each channel, 1 to 1024.
    pub queue_size: u16,
    /// Pages to request for the `damq`s of all channels of a queue together. Each channel gets an
    /// equal part, but at least 8 MiB, or all pages if these are fewer.
    pub damq_pages: u32,
    /// Operations of a queue in progress at once.
    pub operations_max: u32,
    /// Whether to connect read-only.
    pub read_only: bool,
    /// Whether checksums cover the data.
    pub checksum: bool,
    /// Whether to keep stage times: [`Session::stage_sample`](super::Session::stage_sample).
    pub stages: bool,
    /// Silence after which a channel is dead; at least 100 ms.
    pub keep_alive: Duration,
    /// Pause between two attempts to connect.
    pub reconnect_delay: Duration,
    /// How long to look for a lost target before the session fails; and, but at least 10 s, how
    /// long a live target may take for a request. `None`: without limit.
    pub ctrl_loss_tmo: Option<Duration>,
    /// How long requests wait for a lost target before they fail, while the session goes on until
    /// `ctrl_loss_tmo`. `None`: as long as that.
    pub fast_io_fail_tmo: Option<Duration>,
    /// How requests share frames.
    pub batch: BatchPolicy,
    /// Channels of a queue for each pair of a local link and an address of the target, at least 1.
    pub channels: usize,
    /// Which channel a request takes.
    pub choice: ChannelChoice,
    /// The keys, if frames are to be sealed: then the session takes nothing in the clear for the
    /// target's but hints.
    pub keys: Option<Arc<HostKeys>>,
}

/// The parameters that a session requests for a channel.
#[derive(Clone, Copy)]
pub(super) struct ConnectParams<'a> {
    pub(super) session: &'a SessionConfig,
    /// Whether the session was connected before.
    pub(super) resume: bool,
}

impl SessionConfig {
    /// A session that may write, the first one of its device, with the export of whichever target
    /// offers it. There are checksums and no stage times; one channel for each pair, with 128
    /// requests in flight; 32 MiB of `damq`s; and 1024 operations in progress. A channel is dead
    /// after 3 s of silence, attempts to connect are 500 ms apart, and requests wait for a lost
    /// target without limit.
    pub fn new(host: Uuid, host_name: Name, session: Uuid, export: ExportId) -> Self {
        Self {
            host,
            host_name,
            session,
            device: session,
            resumes: None,
            export,
            target: TargetId::Any,
            queue_size: 128,
            damq_pages: (32 << 20) / PAGE_LEN as u32,
            operations_max: 1024,
            read_only: false,
            checksum: true,
            stages: false,
            keep_alive: Duration::from_secs(3),
            reconnect_delay: Duration::from_millis(500),
            ctrl_loss_tmo: None,
            fast_io_fail_tmo: None,
            batch: BatchPolicy::default(),
            channels: 1,
            choice: ChannelChoice::default(),
            keys: None,
        }
    }
}

/// Pages that a target may grant even if fewer were requested: those of the longest request.
const DAMQ_PAGES_LEAST: u32 = REQUEST_LEN_MAX / PAGE_LEN as u32;

/// Whether an answer grants no more than was asked for.
pub(super) fn fits(accept: &Accept, connect: &Connect) -> bool {
    let asked = |flag| connect.flags.contains(flag);
    accept.export == connect.export
        && accept.queue_size <= connect.queue_size
        && accept.frame_len <= connect.frame_len
        // A target grants room for at least one request.
        && accept.damq_pages <= connect.damq_pages.max(DAMQ_PAGES_LEAST)
        && (!accept.stages || asked(ConnectFlags::STAGES))
        && (!accept.block_status || asked(ConnectFlags::BLOCK_STATUS))
}

/// How a session chooses a channel for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelChoice {
    /// Round robin.
    RoundRobin,
    /// The one that will finish first: by its bytes in flight, measured rate, round-trip time, and
    /// silence.
    #[default]
    LeastOutstanding,
    /// As `LeastOutstanding`, among the channels whose NIC sits on the NUMA node of the request's
    /// memory, if any is live.
    Node,
}
