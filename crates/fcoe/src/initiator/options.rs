//! The options of a session with a disk.

use std::time::Duration;

use tyche_fc::wire::Wwn;
use tyche_proto::ExportState;
use tyche_proto::wire::Uuid;
use tyche_scsi::Lun;

use crate::options::PortOptions;

/// Options to use a disk with.
pub struct FcoeHostOptions {
    /// The port of this end.
    pub port: PortOptions,
    /// Name of the target's port.
    pub target: Wwn,
    /// The logical unit.
    pub lun: Lun,
    /// The most commands at a time.
    pub queue_size: u16,
    /// Whether to refuse writes.
    pub read_only: bool,
    /// The time that requests wait for a lost target; `None`: for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// The device that the disk is for.
    pub device: Uuid,
    /// The disk, as the former session of the device knew it: it must be the same.
    pub resumes: Option<ExportState>,
    /// Pages of memory for the data of requests.
    pub arena_pages: usize,
    /// The longest spin before sleeping.
    pub spin: Duration,
}
