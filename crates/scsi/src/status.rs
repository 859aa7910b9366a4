//! The status byte that ends a command (SAM-5, 5.3).

use crate::listed::listed;

listed! {
    /// The status of a command.
    #[repr(u8)]
    pub enum Status {
        /// The command is done.
        Good = 0x00,
        /// Sense data say what is wrong, or what has happened meanwhile.
        CheckCondition = 0x02,
        /// The condition of a PRE-FETCH is met; as good as `Good`.
        ConditionMet = 0x04,
        /// The logical unit can't take the command now.
        Busy = 0x08,
        /// Another initiator has the logical unit.
        ReservationConflict = 0x18,
        /// The logical unit has no room for another command.
        TaskSetFull = 0x28,
        /// An auto contingent allegiance of another command is active.
        AcaActive = 0x30,
        /// Another initiator aborted the command.
        TaskAborted = 0x40,
    }
}

impl Status {
    /// The status of that byte; `None` if the byte is reserved or obsolete.
    pub fn parse(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| *status as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_one_byte() {
        let known = (0..=u8::MAX).filter_map(Status::parse);
        assert!(known.eq(Status::ALL));
    }
}
