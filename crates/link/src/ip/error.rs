//! Errors of opening a link, with their remedies.

use std::net::SocketAddr;
use std::{error, fmt, io};

use super::Transport;

/// Reasons why a link does not open.
#[derive(Debug)]
pub enum OpenError {
    /// The target's end cannot listen.
    Listen {
        /// The transport.
        transport: &'static Transport,
        /// The address to listen at.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The host's end cannot connect.
    Connect {
        /// The transport.
        transport: &'static Transport,
        /// The address to connect to.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// There is no address to try.
    NoAddress,
    /// A system call failed that should not.
    System {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl OpenError {
    /// The error of a system call.
    pub(crate) fn system(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { call, source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { transport, address, source } => {
                write!(f, "cannot listen at {}:{address}: ", transport.name)?;
                match source.kind() {
                    io::ErrorKind::AddrInUse => {
                        f.write_str("another process does; choose another port")
                    }
                    io::ErrorKind::AddrNotAvailable => write!(
                        f,
                        "this machine does not have that address; `ip address` lists those it \
                         has, and {} means all",
                        if address.is_ipv4() { "0.0.0.0" } else { "[::]" }
                    ),
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("ports below 1024 need root; choose another port")
                    }
                    _ => write!(f, "{source}"),
                }
            }
            Self::Connect { transport, address, source } => {
                let name = transport.name;
                write!(f, "cannot connect to {name}:{address}: ")?;
                match source.kind() {
                    io::ErrorKind::ConnectionRefused => write!(
                        f,
                        "nobody listens there; `tyche serve --link {name}:ADDRESS:{}` on that \
                         machine does",
                        address.port()
                    ),
                    io::ErrorKind::InvalidInput if is_without_interface(address) => write!(
                        f,
                        "an address of one segment needs its interface: \
                         {name}:[{}%INTERFACE]:{}",
                        address.ip(),
                        address.port()
                    ),
                    io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                        f.write_str("there is no route to it; check the address and the routes")
                    }
                    io::ErrorKind::TimedOut => {
                        f.write_str("no answer in time; check the address, routes and firewalls")
                    }
                    _ => write!(f, "{source}"),
                }
            }
            Self::NoAddress => f.write_str("the name has no address"),
            Self::System { call, source } => write!(f, "{call}: {source}"),
        }
    }
}

/// Whether an address is link-local, without the interface that it is on.
fn is_without_interface(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

impl error::Error for OpenError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Listen { source, .. }
            | Self::Connect { source, .. }
            | Self::System { source, .. } => Some(source),
            Self::NoAddress => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tcp, udp};

    #[test]
    fn messages_name_the_remedy() {
        let address = "192.0.2.1:7000".parse().unwrap();
        let transport = &tcp::TRANSPORT;
        let source = io::Error::from(io::ErrorKind::ConnectionRefused);
        let message = OpenError::Connect { transport, address, source }.to_string();
        assert!(message.contains("tyche serve --link tcp:ADDRESS:7000"), "{message}");
        let (transport, source) = (&udp::TRANSPORT, io::Error::from_raw_os_error(libc::EINVAL));
        let local = "[fe80::1]:8650".parse().unwrap();
        let message = OpenError::Connect { transport, address: local, source }.to_string();
        assert!(message.ends_with("udp:[fe80::1%INTERFACE]:8650"), "{message}");
        let transport = &tcp::TRANSPORT;
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        let message = OpenError::Listen { transport, address, source }.to_string();
        assert!(message.contains("tcp:192.0.2.1:7000: another process"), "{message}");
    }
}
