//! The memory of an end that its peer writes to, and how the peer learns where it is.
//!
//! ```text
//!  0     head     the peer's report how far it has taken frames out of its own ring
//!  4     tail     how far the ring is filled, if that is written (QueueKind::Base)
//!  64    ring     records, in units of 64 bytes
//! ```

use crate::HEAD;

/// Bytes of a unit: positions in a ring count these.
pub const UNIT: usize = 64;

/// Where the report is in a window.
pub const HEAD_AT: usize = 0;
/// Where the tail is in a window.
pub const TAIL_AT: usize = WORD;
/// Where the ring is in a window.
pub const RING_AT: usize = UNIT;
/// Bytes of a report.
pub const WORD: usize = 4;

/// The bytes of a record before its frame: the frame's length and the head of the other direction,
/// both 32 bits, little-endian.
pub const RECORD_HEAD: usize = 8;

/// The length in a record that has no frame: the rest of the ring, up to its end, is unused.
pub const UNUSED: u32 = u32::MAX;

/// The most interrupts that a sender causes beyond the head that its peer has reported. The peer
/// has room for twice as many. It is more than the frames that the usual ring is for.
pub const INTERRUPTS_MAX: usize = 192;

/// The most announcements that a receiver has taken out without a report. With as many on their
/// way, a sender still has room for more.
pub const ANNOUNCEMENTS_MAX: usize = INTERRUPTS_MAX / 4;

/// One part of so many of a ring may be taken out without a report, and sent without a look whether
/// its writes have ended.
pub const LAG: u64 = 8;

/// Bytes of a [`PeerWindow`] on the wire.
pub const INVITATION: usize = 24;

/// The first bytes of an invitation.
const MAGIC: [u8; 4] = *b"Ty\x01\x00";

/// A window as its owner tells the peer of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWindow {
    /// The key to write there.
    pub key: u32,
    /// The address of its first byte, in the memory of its owner.
    pub address: u64,
    /// Units of its ring.
    pub units: u32,
}

impl PeerWindow {
    /// The fewest units of a ring.
    const UNITS_MIN: u32 = 64;
    /// The most units of a ring: as much memory, 2 MiB, a peer may have us take for what is on its
    /// way there.
    pub const UNITS_MAX: u32 = 32_768;

    /// As sent when a connection is made.
    pub fn encode(&self) -> [u8; INVITATION] {
        let mut bytes = [0; INVITATION];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.units.to_le_bytes());
        bytes
    }

    /// As received; `None` if it is none, or of a size that no peer has. What follows it is padding
    /// or of a later version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.get(..INVITATION)?.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let units = u32::from_le_bytes(*rest.first_chunk()?);
        let is_possible = *magic == MAGIC && (Self::UNITS_MIN..=Self::UNITS_MAX).contains(&units);
        let (key, address) = (u32::from_le_bytes(*key), u64::from_le_bytes(*address));
        is_possible.then_some(Self { key, address, units })
    }
}

/// Bytes of a window whose ring has so many units.
pub const fn window_len(units: u32) -> usize {
    RING_AT + units as usize * UNIT
}

/// The longest frame for a ring of so many units: a quarter of it, so that no more than that is
/// unused before its end.
pub fn frame_len_max(units: u32) -> usize {
    units as usize * UNIT / 4 - RECORD_HEAD
}

/// The number of frames of that length that a ring of so many units holds, however late the reports
/// are.
pub fn capacity(units: u32, frame_len: usize) -> usize {
    let each = units_of(frame_len);
    // What does not fit before the end of the ring is unused, once on either side.
    let room = u64::from(units) - u64::from(units) / LAG;
    (room.saturating_sub(2 * each) / each) as usize
}

/// The fewest units of a ring with that capacity.
pub const fn units_for(frames: u32, frame_len: usize) -> u32 {
    let each = (RECORD_HEAD + frame_len).div_ceil(UNIT) as u32;
    ((frames + 2) * each * LAG as u32).div_ceil(LAG as u32 - 1)
}

/// The units of a record with a frame of that length.
pub fn units_of(frame_len: usize) -> u64 {
    (RECORD_HEAD + frame_len).div_ceil(UNIT) as u64
}

// The shortest ring takes the shortest frames.
const _: () = assert!(PeerWindow::UNITS_MIN as usize * UNIT / 4 - RECORD_HEAD >= HEAD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_reads_as_it_was_written() {
        let window = PeerWindow { key: 0x0102_0304, address: 0x1122_3344_5566_7788, units: 8192 };
        let golden = [
            0x54, 0x79, 1, 0, 4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0x20,
            0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(window.encode(), golden);
        // A connection manager pads them.
        assert_eq!(PeerWindow::decode(&[&golden[..], &[0; 32]].concat()), Some(window));
    }

    #[test]
    fn what_is_no_invitation_is_refused() {
        let window = |units| PeerWindow { key: 1, address: 2, units }.encode();
        assert_eq!(PeerWindow::decode(&window(64)[..INVITATION - 1]), None);
        for units in [0, 63, 32_769, u32::MAX] {
            assert_eq!(PeerWindow::decode(&window(units)), None, "{units}");
        }
        let mut other = window(64);
        other[2] = 2;
        assert_eq!(PeerWindow::decode(&other), None);
    }
}
