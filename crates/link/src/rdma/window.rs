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

/// Set in the length of a record whose frame lacks its data: the peer has placed them. Before the
/// frame there are the bytes of data (32 bits) and the number of the region (16 bits, then zero).
pub const PLACED: u32 = 1 << 31;
/// Bytes before a frame without its data, behind the record's head.
pub const PLACED_HEAD: usize = 8;

/// The length in a record that has a [`PeerRegion`] in the place of a frame.
pub const NOTE: u32 = 1 << 30;

/// The shortest piece of data that is placed: a shorter one is copied sooner than it is written.
pub const PLACED_MIN: usize = 4096;

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

/// Bytes of a [`PeerRegion`] on the wire.
pub const REGION: usize = 24;

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
    /// Whether its owner understands a [`NOTE`].
    pub takes_notes: bool,
}

/// Set in the last bytes of an invitation if its sender understands a [`NOTE`].
const TAKES_NOTES: u32 = 1;

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
        bytes[20..].copy_from_slice(&(u32::from(self.takes_notes) * TAKES_NOTES).to_le_bytes());
        bytes
    }

    /// As received; `None` if it is none, or of a size that no peer has. What follows it is padding
    /// or of a later version, as are unknown bits.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.get(..INVITATION)?.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (units, rest) = rest.split_first_chunk()?;
        let [units, flags] = [*units, *rest.first_chunk()?].map(u32::from_le_bytes);
        let is_possible = *magic == MAGIC && (Self::UNITS_MIN..=Self::UNITS_MAX).contains(&units);
        let (key, address) = (u32::from_le_bytes(*key), u64::from_le_bytes(*address));
        let takes_notes = flags & TAKES_NOTES != 0;
        is_possible.then_some(Self { key, address, units, takes_notes })
    }
}

/// Memory in which the owner of a window has its peer place data, as it tells the peer of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRegion {
    /// Its number, as the protocol numbers them.
    pub number: u16,
    /// The key to write there.
    pub key: u32,
    /// The address of its first byte, in the memory of its owner.
    pub address: u64,
    /// Its bytes; zero if data are not to be placed there any more.
    pub len: u64,
}

impl PeerRegion {
    /// As sent.
    pub fn encode(&self) -> [u8; REGION] {
        let mut bytes = [0; REGION];
        bytes[..2].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// As received.
    pub fn decode(bytes: &[u8; REGION]) -> Self {
        let (number, rest) = bytes.split_first_chunk().expect("24 bytes");
        let (_, rest) = rest.split_at(2);
        let (key, rest) = rest.split_first_chunk().expect("20 bytes");
        let (address, rest) = rest.split_first_chunk().expect("16 bytes");
        Self {
            number: u16::from_le_bytes(*number),
            key: u32::from_le_bytes(*key),
            address: u64::from_le_bytes(*address),
            len: u64::from_le_bytes(*rest.first_chunk().expect("8 bytes")),
        }
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
        let (key, address) = (0x0102_0304, 0x1122_3344_5566_7788);
        let window = PeerWindow { key, address, units: 8192, takes_notes: true };
        let mut golden = [
            0x54, 0x79, 1, 0, 4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0x20,
            0, 0, 1, 0, 0, 0,
        ];
        assert_eq!(window.encode(), golden);
        // A connection manager pads them.
        assert_eq!(PeerWindow::decode(&[&golden[..], &[0; 32]].concat()), Some(window));
        golden[20..].fill(0);
        let earlier = PeerWindow { takes_notes: false, ..window };
        assert_eq!(PeerWindow::decode(&golden), Some(earlier));
    }

    #[test]
    fn a_region_reads_as_it_was_written() {
        let (key, address) = (0x0102_0304, 0x1122_3344_5566_7788);
        let region = PeerRegion { number: 0x0506, key, address, len: 1 << 20 };
        let golden = [
            6, 5, 0, 0, 4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0x10, 0,
            0, 0, 0, 0,
        ];
        assert_eq!(region.encode(), golden);
        assert_eq!(PeerRegion::decode(&golden), region);
    }

    #[test]
    fn what_is_no_invitation_is_refused() {
        let window = |units| PeerWindow { key: 1, address: 2, units, takes_notes: true }.encode();
        assert_eq!(PeerWindow::decode(&window(64)[..INVITATION - 1]), None);
        for units in [0, 63, 32_769, u32::MAX] {
            assert_eq!(PeerWindow::decode(&window(units)), None, "{units}");
        }
        let mut other = window(64);
        other[2] = 2;
        assert_eq!(PeerWindow::decode(&other), None);
    }
}
