//! Addresses and numbers: of stations, ports and exchanges.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identifiers that are bytes in frames.
macro_rules! octets {
    ($($(#[$doc:meta])* $name:ident($vis:vis [u8; $len:literal]);)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(transparent)]
            pub struct $name($vis [u8; $len]);
        )*
    };
}

octets! {
    /// An Ethernet address.
    Mac(pub [u8; 6]);
    /// The address of a port in a fabric (N_Port_ID): 24 bits.
    PortId([u8; 3]);
    /// The upper half of the Ethernet addresses of a fabric's ports (FC-MAP).
    FcMap(pub [u8; 3]);
}

/// The name of a port, node, switch or fabric (WWN): unique in the world.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wwn(pub u64);

/// The number of an exchange at one of its ends: OX_ID or RX_ID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Xid(pub u16);

impl Mac {
    /// The address of a port whose fabric provides it (FPMA, FC-BB-6).
    pub fn fpma(map: FcMap, id: PortId) -> Self {
        let ([a, b, c], [d, e, f]) = (map.0, id.0);
        Self([a, b, c, d, e, f])
    }

    /// The lower half, which is the N_Port_ID in the address of a port.
    pub fn port_id(self) -> PortId {
        let [.., d, e, f] = self.0;
        PortId([d, e, f])
    }

    /// Whether it is a group address: broadcast or multicast.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl PortId {
    /// No address: the sender has none yet.
    pub const NONE: Self = Self([0; 3]);
    /// The port of the fabric that a node logs in to (F_Port controller).
    pub const F_PORT: Self = Self([0xff, 0xff, 0xfe]);
    /// The fabric controller, which reports changes.
    pub const FABRIC_CONTROLLER: Self = Self([0xff, 0xff, 0xfd]);
    /// The name server.
    pub const NAME_SERVER: Self = Self([0xff, 0xff, 0xfc]);

    /// The address with these 24 bits; the upper 8 are dropped.
    pub const fn new(id: u32) -> Self {
        let [_, a, b, c] = id.to_be_bytes();
        Self([a, b, c])
    }

    /// Its 24 bits.
    pub const fn to_u32(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

impl FcMap {
    /// The default of a fabric.
    pub const FABRIC: Self = Self([0x0e, 0xfc, 0x00]);
    /// The value for ports without a fabric (VN2VN).
    pub const VN2VN: Self = Self([0x0e, 0xfd, 0x00]);
}

impl Wwn {
    /// The name of a node (WWNN) with this address: NAA 1.
    pub fn of_node(mac: Mac) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        Self(u64::from_be_bytes([0x10, 0, a, b, c, d, e, f]))
    }

    /// The name of the first port (WWPN) of a node with this address: NAA 2.
    pub fn of_port(mac: Mac) -> Self {
        Self(Self::of_node(mac).0 ^ 0x3000_0000_0000_0000)
    }

    /// The name of a further port of that node: NAA 2, with a number of 12 bits; 0 is the first.
    pub fn of_further_port(mac: Mac, number: u16) -> Self {
        Self(Self::of_port(mac).0 | u64::from(number & 0xfff) << 48)
    }

    /// Reads 16 hexadecimal digits, with `0x` in front, colons between bytes, or neither.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("0x").unwrap_or(text);
        let (mut name, mut digits) = (0, 0);
        for (at, c) in text.char_indices() {
            match c.to_digit(16) {
                Some(digit) if digits < 16 => {
                    name = name << 4 | u64::from(digit);
                    digits += 1;
                }
                None if c == ':' && text.len() == 23 && at % 3 == 2 => {}
                _ => return None,
            }
        }
        (digits == 16).then_some(Self(name))
    }
}

impl Xid {
    /// Not assigned yet.
    pub const NONE: Self = Self(0xffff);
}

/// Writes bytes in hexadecimal with colons between.
fn colons(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, byte) in bytes.iter().enumerate() {
        write!(f, "{}{byte:02x}", if at == 0 { "" } else { ":" })?;
    }
    Ok(())
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        colons(&self.0, f)
    }
}

impl fmt::Display for Wwn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        colons(&self.0.to_be_bytes(), f)
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.to_u32())
    }
}

impl fmt::Display for FcMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}")
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

/// The text is the value of identifiers in traces and failed assertions.
macro_rules! debug_is_display {
    ($($name:ident)*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        })*
    };
}

debug_is_display!(Mac PortId FcMap Wwn Xid);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    const MAC: Mac = Mac([0x02, 0, 0, 0, 0xab, 0x01]);

    #[test]
    fn addresses_of_ports_have_map_and_id() {
        let mac = Mac::fpma(FcMap::VN2VN, PortId::new(0x00ab01));
        assert_eq!(mac.to_string(), "0e:fd:00:00:ab:01");
        assert_eq!(mac.port_id(), PortId::new(0xff00_ab01));
        assert_eq!(mac.port_id().to_u32(), 0xab01);
        assert!(!mac.is_group() && Mac([1, 0x10, 0x18, 1, 0, 4]).is_group());
    }

    #[test]
    fn names_come_from_the_address_of_the_interface() {
        assert_eq!(Wwn::of_node(MAC).to_string(), "10:00:02:00:00:00:ab:01");
        assert_eq!(Wwn::of_port(MAC).to_string(), "20:00:02:00:00:00:ab:01");
        assert_eq!(Wwn::of_further_port(MAC, 0xf123).to_string(), "21:23:02:00:00:00:ab:01");
        assert_eq!(Wwn::of_further_port(MAC, 0), Wwn::of_port(MAC));
    }

    #[test]
    fn names_are_read_in_three_notations_only() {
        let name = Some(Wwn(0x2000_0200_0000_ab01));
        for text in ["20:00:02:00:00:00:AB:01", "0x200002000000ab01", "200002000000ab01"] {
            assert_eq!(Wwn::parse(text), name, "{text}");
        }
        let wrong = [
            "",
            "0x",
            "200002000000ab0",
            "200002000000ab011",
            "+00002000000ab01",
            "20:00:02:00:00:00:ab",
            "20:00:02:00:00:00:ab:01:02",
            "2:000:02:00:00:00:ab:01",
            "20-00-02-00-00-00-ab-01",
            "200002000000ab0g",
        ];
        for text in wrong {
            assert_eq!(Wwn::parse(text), None, "{text}");
        }
    }
}
