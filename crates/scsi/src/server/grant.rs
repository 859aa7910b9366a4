//! Rights of initiators, with which a thread begins reads and writes without asking the server.

use tyche_geometry::Operation;

use super::{TRANSFER_LEN_MAX, Task, Unit};
use crate::cdb::Command;

/// The right of an initiator to read a logical unit, and perhaps to write to it. It holds as long
/// as [`Server::changes`](super::Server::changes) is what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number of the logical unit.
    pub(super) number: u8,
    pub(super) unit: Unit,
    /// Whether the initiator is the one that writes, or one of several.
    pub(super) writes: bool,
}

impl Grant {
    /// The operation of a READ, unless something is to be flushed first, or of a WRITE if that is
    /// granted. `None` for everything else, and for what is to be refused: it is for the server.
    pub fn begin(&self, cdb: &[u8]) -> Option<Task> {
        let (operation, range) = match Command::parse(cdb).ok()? {
            Command::Read { range, fua } if !(fua && self.unit.geometry.write_cache) => {
                (Operation::Read, range)
            }
            Command::Write { range, fua } if self.writes => (Operation::Write { fua }, range),
            _ => return None,
        };
        let (offset, len) = self.unit.check(range, TRANSFER_LEN_MAX).ok()?;
        (len > 0).then_some(Task { unit: self.number, operation, offset, len })
    }
}
