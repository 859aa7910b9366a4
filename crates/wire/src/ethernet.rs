//! The Ethernet header.

use core::fmt;

use crate::{ETHERNET_LEN, HEAD_LEN};

/// The default EtherType: IEEE 802's first local experimental one.
pub const ETHERTYPE: u16 = 0x88b5;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations on the segment.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Reads `aa:bb:cc:dd:ee:ff` or `aa-bb-cc-dd-ee-ff`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut mac = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut mac {
            // `from_str_radix` alone would accept a sign.
            let digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
            let part = parts.next().filter(|part| part.len() == 2).filter(digits)?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(mac))
    }

    /// Whether it is a group address: broadcast or multicast.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Destination of a frame.
    pub fn destination(head: &[u8; HEAD_LEN]) -> Self {
        let [a, b, c, d, e, f, ..] = *head;
        Self([a, b, c, d, e, f])
    }

    /// Source of a frame.
    pub fn source(head: &[u8; HEAD_LEN]) -> Self {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *head;
        Self([a, b, c, d, e, f])
    }
}

/// Writes the Ethernet header of a frame.
pub(crate) fn emit(dst: Mac, src: Mac, ethertype: u16, head: &mut [u8; HEAD_LEN]) {
    head[..6].copy_from_slice(&dst.0);
    head[6..12].copy_from_slice(&src.0);
    head[12..ETHERNET_LEN].copy_from_slice(&ethertype.to_be_bytes());
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
