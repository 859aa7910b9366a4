//! `tcp:HOST:PORT` and `udp:HOST:PORT`: the names of links over IP, used in place of an interface.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use super::Transport;

/// The port of a place that names none.
pub const DEFAULT_PORT: u16 = 8650;

/// The place where a target listens: a name or address, and a port.
#[derive(Clone, Debug)]
pub struct ListenAddress {
    transport: &'static Transport,
    host: String,
    port: u16,
}

/// A name with the prefix that is not valid otherwise.
#[derive(Clone, Debug)]
pub struct InvalidAddress {
    name: String,
    transport: &'static Transport,
    what: &'static str,
}

impl ListenAddress {
    /// Whether the name is that of a link without Ethernet.
    pub fn is_named_by(link: &str) -> bool {
        Transport::named_by(link).is_some()
    }

    /// Parses the name of a link; `None`: the name is an interface's. `port_min` is 0 where the
    /// kernel may choose the port, to listen at, and 1 elsewhere. Without a port it is
    /// [`DEFAULT_PORT`].
    ///
    /// # Errors
    /// If it is misspelt.
    pub fn parse(link: &str, port_min: u16) -> Result<Option<Self>, InvalidAddress> {
        let Some((transport, place)) = Transport::split(link) else { return Ok(None) };
        let misspelt = |what| InvalidAddress { name: link.to_owned(), transport, what };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| misspelt("a bracket is open"))?,
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        if port.rfind(':').is_some_and(|at| at > 0) {
            return Err(misspelt("an IPv6 address needs brackets"));
        }
        if host.is_empty() {
            let what = if port_min > 0 { transport.no_host } else { "there is no host" };
            return Err(misspelt(what));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => DEFAULT_PORT,
            port => port
                .and_then(|port| port.parse().ok())
                .filter(|port| *port >= port_min)
                .ok_or_else(|| misspelt("the port is no number from 1 to 65535"))?,
        };
        Ok(Some(Self { transport, host: host.to_owned(), port }))
    }

    /// The protocol that carries the frames.
    pub fn transport(&self) -> &'static Transport {
        self.transport
    }

    /// The name or address without its port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The addresses of the place, in the order in which to try them. May query a name server.
    ///
    /// # Errors
    /// If the name has none, or the query fails.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, transport: Transport { name: prefix, .. }, what } = self;
        write!(
            f,
            "`{name}`: {what}; write {prefix}:HOST:PORT, such as {prefix}:192.0.2.1:{DEFAULT_PORT} \
             or {prefix}:[2001:db8::1]:{DEFAULT_PORT}"
        )
    }
}

impl std::error::Error for InvalidAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ipv4_ipv6_or_names() {
        let one =
            |place: &str| ListenAddress::parse(place, 1).unwrap().unwrap().resolve().unwrap()[0];
        assert_eq!(one("tcp:127.0.0.1:8650").to_string(), "127.0.0.1:8650");
        assert_eq!(one("udp:[::1]:7").to_string(), "[::1]:7");
        assert_eq!(one("udp:[::1]").to_string(), "[::1]:8650");
        assert_eq!(one("udp:127.0.0.1").to_string(), "127.0.0.1:8650");
        assert_eq!(one("tcp:localhost:1").port(), 1);
        assert_eq!(ListenAddress::parse("tcp:[::]:0", 0).unwrap().unwrap().port, 0);
        let place = ListenAddress::parse("udp:a:1", 1).unwrap().unwrap();
        assert_eq!((place.transport().name, place.host()), ("udp", "a"));
    }

    #[test]
    fn interfaces_are_no_places() {
        assert!(matches!(ListenAddress::parse("eth0", 1), Ok(None)));
        assert!(!ListenAddress::is_named_by("eth0") && ListenAddress::is_named_by("tcp:a:1"));
    }

    #[test]
    fn misspelt_places_are_shown_how_to_write_them() {
        let places =
            ["", ":1", "[]:1", "[::1", "[::1]8", "::1:8650", "a:b", "a:0", "a:65536", "a:", "a:-1"];
        for place in places {
            let error = ListenAddress::parse(&format!("udp:{place}"), 1).unwrap_err().to_string();
            assert!(error.contains("udp:HOST:PORT"), "{error}");
            assert!(error.starts_with(&format!("`udp:{place}`: ")), "{error}");
        }
        let error = ListenAddress::parse("udp:::1:8650", 1).unwrap_err().to_string();
        assert!(error.contains("brackets"), "{error}");
        // A discovery finds targets, not an address to listen at.
        for (port_min, is_told) in [(1, true), (0, false)] {
            let error = ListenAddress::parse("udp:", port_min).unwrap_err().to_string();
            assert_eq!(error.contains("tyche discover"), is_told, "{error}");
        }
    }
}
