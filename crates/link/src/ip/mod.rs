//! The common parts of links over IP: the names of places, what there is to say of a transport, the
//! errors of opening a link, and this machine's own addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Link, TRANSPORTS};

mod addresses;
mod error;
mod listen_address;
mod origin;

pub(crate) use addresses::{LocalAddress, addresses};
/// A peer that no frame of a channel was sent to for so long has none: each side of a channel sends
/// something every 20 s at least. Only then another may have its place.
pub(crate) const UNSERVED_AFTER: Duration = Duration::from_secs(30);

pub use error::OpenError;
pub use listen_address::{DEFAULT_PORT, InvalidAddress, ListenAddress};
pub(crate) use origin::Origins;

/// The end of a session that a link is at: the target listens and the host connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that connects.
    Host,
    /// The end that listens.
    Target {
        /// Whether hosts that do not know its address find it, where the transport can do that.
        is_found: bool,
        /// Threads that serve the link, from 1 on: more than one only where the transport
        /// [can have them](Transport::has_threads).
        threads: u8,
    },
}

impl End {
    /// The further links that it has, one for each thread but the first.
    pub fn further(self) -> u8 {
        match self {
            Self::Host => 0,
            Self::Target { threads, .. } => threads.saturating_sub(1),
        }
    }
}

/// An open link.
pub struct OpenedLink {
    /// The link.
    pub link: Box<dyn Link>,
    /// The same for each further thread of a target, in order of their [shares](crate::Share).
    pub further: Vec<Box<dyn Link>>,
    /// Of a target that is to be found: its end for questions to everybody, if it has one; or a
    /// warning why hosts do not find it.
    pub beacon: Result<Option<Box<dyn Link>>, String>,
}

impl<L: Link + 'static> From<L> for OpenedLink {
    fn from(link: L) -> Self {
        Self { link: Box::new(link), further: Vec::new(), beacon: Ok(None) }
    }
}

impl OpenedLink {
    /// The links of a target's threads, of which there is one at least.
    pub(crate) fn of_threads<L: Link + 'static>(links: impl IntoIterator<Item = L>) -> Self {
        let mut links = links.into_iter().map(|link| Box::new(link) as Box<dyn Link>);
        let link = links.next().expect("a thread");
        Self { link, further: links.collect(), beacon: Ok(None) }
    }
}

/// The protocol that carries the frames of a link over IP: a row of [`TRANSPORTS`]. All that
/// depends on the transport asks its row.
#[derive(Debug)]
pub struct Transport {
    /// Its name. Those of its links begin with it, and a colon.
    pub name: &'static str,
    /// Its number, from 1 on: 0 is Ethernet.
    pub number: u8,
    /// Whether source addresses can be forged: routers forward frames of anybody.
    pub is_routed: bool,
    /// Whether data are checked from memory to memory underneath, so that frames need not do it.
    pub checks_data: bool,
    /// Whether several threads of a target can listen at one place.
    pub has_threads: bool,
    /// Tells a host that names no place what to do.
    pub no_host: &'static str,
    /// Opens the link of an end to or at a place, which has these addresses.
    pub open: fn(&ListenAddress, &[SocketAddr], End) -> Result<OpenedLink, OpenError>,
}

impl Transport {
    /// The name of the transport with that number; of those that are none, `ethernet`.
    pub fn name(number: u8) -> &'static str {
        TRANSPORTS.iter().find(|it| it.number == number).map_or("ethernet", |it| it.name)
    }

    /// The transport that the name of a link begins with; `None`: it is an interface's.
    pub fn named_by(link: &str) -> Option<&'static Self> {
        Self::split(link).map(|(transport, _)| transport)
    }

    /// The transport that the name of a link begins with, and the rest of the name.
    fn split(link: &str) -> Option<(&'static Self, &str)> {
        let (name, place) = link.split_once(':')?;
        Some((TRANSPORTS.iter().find(|it| it.name == name)?, place))
    }

    /// Opens a socket for the first of the addresses that is possible; returns it after its index.
    ///
    /// # Errors
    /// `NoAddress`, or what `failed` makes of the error of the last address.
    pub(crate) fn first<T, O>(
        &'static self,
        addresses: &[SocketAddr],
        options: &O,
        open: fn(&SocketAddr, &O) -> io::Result<T>,
        failed: fn(&'static Self, SocketAddr, io::Error) -> OpenError,
    ) -> Result<(usize, T), OpenError> {
        let mut result = Err(OpenError::NoAddress);
        for (index, address) in addresses.iter().enumerate() {
            match open(address, options) {
                Ok(socket) => return Ok((index, socket)),
                Err(source) => result = Err(failed(self, *address, source)),
            }
        }
        result
    }
}
