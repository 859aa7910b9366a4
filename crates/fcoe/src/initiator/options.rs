//! The options of a session with a disk.

use std::time::Duration;

use tyche_fc::vn2vn::Functions;
use tyche_fc::wire::{PortId, Wwn};
use tyche_proto::ExportState;
use tyche_proto::wire::Uuid;
use tyche_scsi::Lun;

use crate::interface::Interface;
use crate::n_port::{NPortConfig, RememberAddress};

/// Options to use a disk with.
pub struct FcoeHostOptions {
    /// The interface.
    pub interface: Interface,
    /// Name of the port of this end.
    pub wwpn: Wwn,
    /// Name of its node.
    pub wwnn: Wwn,
    /// The N_Port_ID that the port had before, if that is known.
    pub recorded: Option<PortId>,
    /// Takes each N_Port_ID that it gets.
    pub remember: RememberAddress,
    /// E_D_TOV: a whole number of milliseconds. R_A_TOV is five times that.
    pub e_d_tov: Duration,
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

impl FcoeHostOptions {
    /// The configuration of the initiator's port.
    pub fn port(&self) -> NPortConfig {
        let functions = Functions { initiator: true, target: false };
        let names = (self.wwpn, self.wwnn);
        NPortConfig { recorded: self.recorded, ..NPortConfig::new(names, functions, self.e_d_tov) }
    }
}
