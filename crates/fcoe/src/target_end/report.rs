//! Reports on the interfaces of a target, for people.

use tyche_counters::Reading;
use tyche_engine::PortStats;
use tyche_fc::wire::{PortId, Wwn};

use crate::n_port::Rejects;

/// The state of an interface.
#[derive(Clone, Debug)]
pub struct FcoeTargetReport {
    /// Its name.
    pub link: String,
    /// Name of its port.
    pub wwpn: Wwn,
    /// The N_Port_ID of the port, if it has one.
    pub id: Option<PortId>,
    /// Its fault, if any.
    pub problem: Option<String>,
    /// The initiators that are logged in.
    pub initiators: Vec<Wwn>,
    /// Commands executed.
    pub commands: u64,
    /// Frames and bytes, of FIP and FCoE together.
    pub port: PortStats,
    /// Dropped frames by reason.
    pub rejects: Rejects,
    /// Frames without effect, and commands that failed on their way, by reason.
    pub ignored: Vec<Reading>,
}
