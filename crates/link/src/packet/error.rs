//! Errors and warnings of opening a link, with their remedies.

use std::net::{IpAddr, SocketAddr};
use std::{error, fmt, io};

use super::MTU_MIN;

/// Reasons why a link does not open.
#[derive(Debug)]
pub enum OpenError {
    /// There is no interface of this name in this network namespace.
    NoSuchInterface {
        /// The name asked for.
        interface: String,
        /// The Ethernet interfaces that exist.
        present: Vec<String>,
    },
    /// The interface is down.
    Down {
        /// Its name.
        interface: String,
    },
    /// The interface is a member of another one, which takes its incoming frames.
    Member {
        /// Its name.
        interface: String,
        /// The bridge, bond or the like, if it has a name in this network namespace.
        master: Option<String>,
    },
    /// The interface does not carry Ethernet frames.
    NotEthernet {
        /// Its name.
        interface: String,
        /// Its hardware type (`ARPHRD_..`).
        hardware: u16,
    },
    /// The MTU is below [`MTU_MIN`].
    MtuTooSmall {
        /// The interface's name.
        interface: String,
        /// Its MTU, in bytes.
        mtu: usize,
    },
    /// The number is a frame length, not an EtherType.
    EtherType(u16),
    /// The process may not open raw packet sockets.
    NotPermitted,
    /// A system call failed that should not.
    System {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchInterface { interface, present } if present.is_empty() => write!(
                f,
                "there is no interface {interface}, nor any Ethernet interface at all, in this \
                 network namespace"
            ),
            Self::NoSuchInterface { interface, present } => {
                write!(f, "there is no interface {interface}; there are: {}", present.join(", "))?;
                let is_address = |text: &str| {
                    text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok()
                };
                match is_address(interface) {
                    true => write!(f, "; an address is udp:{interface} or tcp:{interface}"),
                    false => Ok(()),
                }
            }
            Self::Down { interface } => {
                write!(f, "interface {interface} is down; `ip link set {interface} up` starts it")
            }
            Self::Member { interface, master } => {
                let master = master.as_deref().unwrap_or("another interface");
                write!(
                    f,
                    "interface {interface} is part of {master}, which takes all that arrives on \
                     it: use {master}, or take {interface} out with \
                     `ip link set {interface} nomaster`"
                )
            }
            Self::NotEthernet { interface, hardware } => write!(
                f,
                "interface {interface} does not carry Ethernet frames (hardware type {hardware})"
            ),
            Self::MtuTooSmall { interface, mtu } => write!(
                f,
                "interface {interface} has an MTU of {mtu}, at least {MTU_MIN} is needed; \
                 `ip link set {interface} mtu {MTU_MIN}` sets it"
            ),
            Self::EtherType(number) => write!(
                f,
                "{number:#06x} is no EtherType: those start at 0x0600; 0x88b5 and 0x88b6 are free \
                 for local use"
            ),
            Self::NotPermitted => f.write_str(
                "raw packet sockets need the capability CAP_NET_RAW: run as root, or give it to \
                 the program with `setcap cap_net_raw,cap_net_admin+ep`",
            ),
            Self::System { call, source } => write!(f, "{call}: {source}"),
        }
    }
}

impl error::Error for OpenError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A send buffer that the kernel made smaller than asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferShortfall {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes granted.
    pub granted: usize,
}

impl fmt::Display for BufferShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, granted } = self;
        write!(
            f,
            "the send buffer is {granted} bytes instead of {wanted}; \
             `sysctl -w net.core.wmem_max={wanted}` allows it, or the capability CAP_NET_ADMIN"
        )
    }
}

impl error::Error for BufferShortfall {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_remedy() {
        let interface = || "eth9".to_owned();
        let says = |error: OpenError, part: &str| {
            let message = error.to_string();
            assert!(message.contains(part), "{message}");
        };
        let present = vec!["eth0".to_owned(), "eth1".to_owned()];
        says(
            OpenError::NoSuchInterface { interface: interface(), present },
            "no interface eth9; there are: eth0, eth1",
        );
        says(OpenError::Down { interface: interface() }, "`ip link set eth9 up`");
        let master = Some("br0".to_owned());
        says(OpenError::Member { interface: interface(), master }, "part of br0, which takes");
        says(
            OpenError::Member { interface: interface(), master: None },
            "`ip link set eth9 nomaster`",
        );
        says(OpenError::MtuTooSmall { interface: interface(), mtu: 576 }, "MTU of 576, at least");
        says(OpenError::NotPermitted, "CAP_NET_RAW");
        let short = BufferShortfall { wanted: 1 << 20, granted: 212_992 };
        assert!(short.to_string().contains("`sysctl -w net.core.wmem_max=1048576`"));
    }
}
