//! Reports on the interfaces of a target, for people.

use tyche_engine::PortStats;
use tyche_fc::target_end::Ignored;
use tyche_fc::wire::{PortId, Wwn};

use crate::rejects::Rejects;

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
    pub ignored: Vec<(&'static str, u64)>,
}

/// The counters by name.
pub(super) fn ignored(ignored: Ignored) -> Vec<(&'static str, u64)> {
    // Each field is named, so that none is forgotten.
    let Ignored {
        stranger,
        malformed,
        repeated_command,
        aborted,
        unknown,
        unasked,
        other_sequence,
        repeated_data,
        scattered,
        unexpected,
        lost_data,
        not_asked,
        management_failed,
        no_room,
        undrained,
    } = ignored;
    vec![
        ("stranger", stranger),
        ("malformed", malformed),
        ("repeated_command", repeated_command),
        ("aborted", aborted),
        ("unknown", unknown),
        ("unasked", unasked),
        ("other_sequence", other_sequence),
        ("repeated_data", repeated_data),
        ("scattered", scattered),
        ("unexpected", unexpected),
        ("lost_data", lost_data),
        ("not_asked", not_asked),
        ("management_failed", management_failed),
        ("no_room", no_room),
        ("undrained", undrained),
    ]
}
