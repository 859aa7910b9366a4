//! Addresses of control ports: where a target listens, and where an admin finds it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The port of a control port that names none.
const PORT: u16 = 8652;

/// Parses the address at which a target listens: `tcp:ADDRESS:PORT`.
///
/// # Errors
/// How to write it.
pub(crate) fn parse_listening(text: &str) -> Result<SocketAddr, String> {
    let address = text.strip_prefix("tcp:").and_then(|place| {
        let alone = place.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(place);
        let with_port = |address: IpAddr| SocketAddr::new(address, PORT);
        place.parse().ok().or_else(|| alone.parse().ok().map(with_port))
    });
    let remedy = || {
        format!(
            "write \"tcp:ADDRESS:{PORT}\", with an IP address of this machine, such as \
             \"tcp:192.0.2.1:{PORT}\", or \"tcp:[::]:{PORT}\" for all"
        )
    };
    address.filter(|it: &SocketAddr| it.port() != 0).ok_or_else(remedy)
}

/// A target elsewhere: its name, if it is said, and where its control port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetPlace {
    /// The name that known-targets or the target itself has.
    pub(crate) name: Option<String>,
    /// A name or an address.
    pub(crate) host: String,
    port: u16,
}

impl TargetPlace {
    /// Parses `[NAME@]HOST[:PORT]`.
    ///
    /// # Errors
    /// How to write it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("{what}; write [NAME@]HOST[:PORT], such as store1@192.0.2.1 or store1@[::1]")
        };
        let (name, place) = match text.rsplit_once('@') {
            Some(("", _)) => return Err(wrong("there is no name before the @")),
            Some((name, place)) => (Some(name.to_owned()), place),
            None => (None, text),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| wrong("a bracket is open"))?,
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        if port.rfind(':').is_some_and(|at| at > 0) {
            return Err(wrong("an IPv6 address needs brackets"));
        }
        if host.is_empty() {
            return Err(wrong("there is no host"));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => PORT,
            port => port
                .and_then(|port| port.parse().ok())
                .filter(|port| *port != 0)
                .ok_or_else(|| wrong("the port is no number from 1 to 65535"))?,
        };
        Ok(Self { name, host: host.to_owned(), port })
    }

    /// Its addresses, in the order in which to try them. May ask a name server.
    ///
    /// # Errors
    /// If there are none, or the query fails.
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl fmt::Display for TargetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_listens_at_an_address() {
        for (text, address) in [
            ("tcp:10.0.0.1:7", "10.0.0.1:7"),
            ("tcp:10.0.0.1", "10.0.0.1:8652"),
            ("tcp:[::]:9", "[::]:9"),
            ("tcp:[::1]", "[::1]:8652"),
            ("tcp:::1", "[::1]:8652"),
        ] {
            assert_eq!(parse_listening(text).unwrap().to_string(), address, "{text}");
        }
        for text in ["", "tcp:", "udp:10.0.0.1:7", "10.0.0.1:7", "tcp:store1:7", "tcp:10.0.0.1:0"] {
            assert!(parse_listening(text).unwrap_err().contains("tcp:ADDRESS:8652"), "{text}");
        }
    }

    #[test]
    fn a_target_elsewhere_has_a_host_and_maybe_a_name_and_a_port() {
        let parse = |text: &str| {
            let place = TargetPlace::parse(text).unwrap();
            (place.name.clone().unwrap_or_default(), place.to_string())
        };
        let of = |name: &str, place: &str| (name.to_owned(), place.to_owned());
        assert_eq!(parse("store1@10.0.0.1"), of("store1", "10.0.0.1:8652"));
        assert_eq!(parse("a@b@host:7"), of("a@b", "host:7"));
        assert_eq!(parse("host"), of("", "host:8652"));
        assert_eq!(parse("[::1]"), of("", "[::1]:8652"));
        assert_eq!(parse("store1@[::1]:7"), of("store1", "[::1]:7"));
        for text in ["", "@a", "a@", "a@:1", "[::1", "::1", "a:b", "a:0", "a:65536", "[::1]7"] {
            assert!(TargetPlace::parse(text).unwrap_err().contains("[NAME@]HOST[:PORT]"), "{text}");
        }
        assert!(TargetPlace::parse("store1@::1").unwrap_err().contains("brackets"));
    }
}
