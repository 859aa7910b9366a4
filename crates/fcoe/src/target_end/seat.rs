//! The places of a target's threads.

use std::sync::Arc;

use tyche_fc::wire::Wwn;
use tyche_scsi::vpd::TargetPort;

use super::peers::Peer;
use super::units::Units;

/// The place of one thread of a port that shows logical units. The first thread of a port has its
/// logins; all have commands.
pub struct Seat {
    pub(super) units: Arc<Units>,
    pub(super) port: TargetPort,
    pub(super) peer: Peer,
}

impl Seat {
    /// The places of so many threads of the port of that name.
    ///
    /// # Panics
    /// If their number is no power of two, or there are more than
    /// [`LANES_MAX`](crate::LANES_MAX).
    pub fn take(units: &Arc<Units>, name: Wwn, threads: usize) -> Vec<Self> {
        assert_eq!(threads, crate::lanes::threads_within(threads), "threads of a port");
        let port = units.port(name);
        let seat = |peer| Self { units: Arc::clone(units), port, peer };
        units.join(port.number, threads).into_iter().map(seat).collect()
    }
}
