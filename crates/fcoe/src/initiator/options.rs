//! The options of a session with a disk.

use std::time::Duration;

use tyche_block::ArenaSize;
use tyche_fc::wire::Wwn;
use tyche_link::Link;
use tyche_proto::ExportState;
use tyche_proto::wire::Uuid;
use tyche_remote::SessionOptions;
use tyche_scsi::Lun;

use super::lane::InitiatorConfig;
use crate::interface::receive_capacity;
use crate::lanes;
use crate::options::PortOptions;

/// Options to use a disk with.
pub struct FcoeHostOptions {
    /// The port of this end.
    pub port: PortOptions,
    /// Name of the target's port.
    pub target: Wwn,
    /// The logical unit.
    pub lun: Lun,
    /// The links of further queues for FCoE, on the same interface: each queue has a lane, with a
    /// thread and memory of its own. Up to [`LANES_MAX`](crate::LANES_MAX) queues in all. For an
    /// [`FcoeHost`](crate::FcoeHost) only: in inline mode a further queue
    /// [joins](crate::FcoeInlineHost::join) with its link.
    pub further_queues: Vec<Box<dyn Link>>,
    /// Options of a session of either protocol.
    pub session: SessionOptions,
    /// The device that the disk is for.
    pub device: Uuid,
    /// The disk, as the former session of the device knew it: it must be the same.
    pub resumes: Option<ExportState>,
    /// Memory of a queue for the data of requests. An inline session keeps all of it.
    pub arena_size: ArenaSize,
    /// The longest spin before sleeping.
    pub spin: Duration,
}

impl FcoeHostOptions {
    /// The configuration of a lane with that link.
    pub(super) fn config(&self, link: &dyn Link) -> InitiatorConfig {
        InitiatorConfig {
            target: self.target,
            lun: self.lun,
            depth: self.session.queue_size.into(),
            frames: frames_of(link),
            read_only: self.session.read_only,
            ctrl_loss_tmo: self.session.ctrl_loss_tmo,
            fast_io_fail_tmo: self.session.fast_io_fail_tmo,
            xids: lanes::COMMANDS,
            seed: getrandom::u64().expect("the kernel's random numbers are always there"),
        }
    }
}

/// The frames that reads of a lane with that link may cause at a time.
pub(super) fn frames_of(link: &dyn Link) -> u32 {
    // A quarter of them is left for what comes beside data.
    receive_capacity(link) / 4 * 3
}
