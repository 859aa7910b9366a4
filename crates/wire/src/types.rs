//! Newtypes for fields of frames: positions, tags, names.

use core::fmt;

/// Index of a channel at the frame's receiver, chosen by the receiver in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u16);

impl ChannelId {
    /// The index in frames that belong to no channel (discovery and handshake).
    pub const NONE: Self = Self(u16::MAX);
}

/// Random secret of a channel, chosen by the frame's receiver. Frames with another one are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Its first four bytes in a frame, at [`COOKIE_AT`](crate::COOKIE_AT): enough to sort frames
    /// before the header is parsed.
    pub fn first_bytes(self) -> [u8; 4] {
        (self.0 as u32).to_le_bytes()
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// Number of a frame on its channel in one direction. Never repeats, not even for retransmissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketNumber(pub u64);

/// Position of a frame in its ring: a sequence number that wraps at 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position(pub u32);

impl Position {
    /// The position `n` further on.
    #[must_use]
    pub fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The distance of `self` ahead of `base`; negative if it is behind.
    pub fn ahead_of(self, base: Self) -> i32 {
        self.0.wrapping_sub(base.0).cast_signed()
    }
}

/// Identifies a request in flight: a slot of the `remq` and the slot's generation, which grows
/// (wrapping) with every use of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Index into the `remq`.
    pub slot: u16,
    /// The generation of the slot.
    pub generation: u16,
}

impl Tag {
    /// The encoding on the wire.
    pub fn to_bits(self) -> u32 {
        u32::from(self.generation) << 16 | u32::from(self.slot)
    }

    /// Decodes a tag from the wire.
    pub fn from_bits(bits: u32) -> Self {
        Self { slot: (bits & 0xffff) as u16, generation: (bits >> 16) as u16 }
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// A name of an export, a host or a target: 1 to 63 bytes of UTF-8 without control characters,
/// or empty where the PDU allows it.
pub type Name = Text<64>;

/// Whether a text may not have a character: a control character, or one that is not shown, so that
/// two
/// names could look alike, or a name change the line that it is printed in (bidirectional controls,
/// separators of lines, zero-width characters).
fn is_banned(c: char) -> bool {
    let is_unseen = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}');
    c.is_control() || is_unseen
}

/// UTF-8 in a field of `N` bytes, padded with zeroes; at most `N - 1` bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Text<N> {
    /// Bytes of its field.
    pub const LEN: usize = N;
    /// The empty text.
    pub const EMPTY: Self = Self { bytes: [0; N], len: 0 };

    /// A text; `None` if it is too long, or has control characters or such that are not shown.
    pub fn new(text: &str) -> Option<Self> {
        if text.len() >= N.min(256) || text.chars().any(is_banned) {
            return None;
        }
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self { bytes, len: text.len() as u8 })
    }

    /// The longest prefix of the text that fits, without control characters.
    pub fn truncated(text: &str) -> Self {
        let mut this = Self::EMPTY;
        for c in text.chars().filter(|&c| !is_banned(c)) {
            let end = usize::from(this.len) + c.len_utf8();
            if end >= N.min(256) {
                break;
            }
            c.encode_utf8(&mut this.bytes[usize::from(this.len)..end]);
            this.len = end as u8;
        }
        this
    }

    /// Parses a field: `None` unless terminated, zero-padded, UTF-8 and free of control characters.
    pub(crate) fn from_bytes(bytes: [u8; N]) -> Option<Self> {
        let len = bytes.iter().position(|&byte| byte == 0)?;
        if bytes[len..].iter().any(|&byte| byte != 0) {
            return None;
        }
        Self::new(core::str::from_utf8(&bytes[..len]).ok()?)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; N] {
        &self.bytes
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("checked by `new`")
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn names_have_no_characters_that_are_not_shown() {
        for c in ['\u{202e}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{1b}', '\n', '\u{e0041}'] {
            let name = std::format!("vm{c}1");
            assert_eq!(Name::new(&name), None, "{name:?}");
            assert_eq!(Name::truncated(&name).as_str(), "vm1");
            let mut field = [0; 64];
            field[..name.len()].copy_from_slice(name.as_bytes());
            assert_eq!(Name::from_bytes(field), None, "{name:?}");
        }
        for name in ["vm1", "größe", "磁盘", "диск-1", "a b"] {
            assert_eq!(Name::new(name).unwrap().as_str(), name);
        }
    }
}
