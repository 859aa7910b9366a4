//! `tcp:HOST:PORT`: the name of a link over TCP, used in place of an interface.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The prefix of such names.
const PREFIX: &str = "tcp:";

/// The place where a target listens: a name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: String,
    port: u16,
}

/// A name with the prefix that is not valid otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misspelt {
    name: String,
    what: &'static str,
}

impl Place {
    /// Whether the name is that of a link without Ethernet.
    pub fn is_named_by(link: &str) -> bool {
        link.starts_with(PREFIX)
    }

    /// Parses the name of a link; `None`: the name is an interface's. `port_min` is 0 where the
    /// kernel may choose the port, to listen at, and 1 elsewhere.
    ///
    /// # Errors
    /// If it is misspelt.
    pub fn parse(link: &str, port_min: u16) -> Result<Option<Self>, Misspelt> {
        let Some(place) = link.strip_prefix(PREFIX) else { return Ok(None) };
        let misspelt = |what| Misspelt { name: link.to_owned(), what };
        let (host, port) = place.rsplit_once(':').ok_or_else(|| misspelt("there is no port"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let bare = match bare {
            Some(bare) => bare,
            None if host.contains(':') => return Err(misspelt("an IPv6 address needs brackets")),
            None => host,
        };
        if bare.is_empty() {
            return Err(misspelt("there is no host"));
        }
        match port.parse::<u16>() {
            Ok(port) if port >= port_min => Ok(Some(Self { host: bare.to_owned(), port })),
            _ => Err(misspelt("the port is no number from 1 to 65535")),
        }
    }

    /// The name or address without its port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The addresses of the place, in the order in which to try them. May query a name server.
    ///
    /// # Errors
    /// If the name has none, or the query fails.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl fmt::Display for Misspelt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, what } = self;
        write!(
            f,
            "`{name}`: {what}; write {PREFIX}HOST:PORT, such as {PREFIX}192.0.2.1:8650 or \
             {PREFIX}[2001:db8::1]:8650"
        )
    }
}

impl std::error::Error for Misspelt {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ipv4_ipv6_or_names() {
        let one = |place: &str| Place::parse(place, 1).unwrap().unwrap().resolve().unwrap()[0];
        assert_eq!(one("tcp:127.0.0.1:8650").to_string(), "127.0.0.1:8650");
        assert_eq!(one("tcp:[::1]:8650").to_string(), "[::1]:8650");
        assert_eq!(one("tcp:localhost:1").port(), 1);
        assert_eq!(Place::parse("tcp:[::]:0", 0).unwrap().unwrap().port, 0);
    }

    #[test]
    fn interfaces_are_no_places() {
        assert_eq!(Place::parse("eth0", 1), Ok(None));
        assert!(!Place::is_named_by("eth0") && Place::is_named_by("tcp:a:1"));
    }

    #[test]
    fn misspelt_places_are_shown_how_to_write_them() {
        for place in ["", "host", ":1", "[]:1", "::1:8650", "a:b", "a:0", "a:65536", "a:", "a:-1"] {
            let error = Place::parse(&format!("tcp:{place}"), 1).unwrap_err().to_string();
            assert!(error.contains("tcp:HOST:PORT"), "{error}");
            assert!(error.starts_with(&format!("`tcp:{place}`: ")), "{error}");
        }
    }
}
