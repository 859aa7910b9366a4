//! Names of the ports of this machine (WWPNs).
//!
//! Each process that speaks FCoE on an interface has a port of its own there, with a number that is
//! part of its name. Ports of one interface do not hear each other, so the numbers are kept apart
//! by locks in the run-time directory.

use std::fs::File;
use std::ops::RangeInclusive;

use tyche_fcoe::fc::wire::{Mac, Wwn};

use crate::error::{Code, Error, Result};
use crate::runtime;

/// Parses the name of a port.
///
/// # Errors
/// A text that says how it is written.
pub(crate) fn parse_wwpn(text: &str) -> Result<Wwn, String> {
    Wwn::parse(text).ok_or_else(|| {
        format!("`{text}`: a WWPN is 16 hexadecimal digits, such as 20:00:02:00:5e:10:00:01")
    })
}

/// The numbers of ports, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Ports of targets. The first has the name that others give to the only port of an interface.
    Target,
    /// Ports of sessions.
    Session,
    /// Ports that ask who is there.
    Discovery,
}

impl Numbers {
    fn range(self) -> RangeInclusive<u16> {
        match self {
            Self::Target => 0x000..=0x0ff,
            Self::Session => 0x100..=0xeff,
            Self::Discovery => 0xf00..=0xfff,
        }
    }
}

/// The names of a port of this machine, and the lock on its number.
pub(crate) struct PortName {
    /// Number of the port, if it follows from it.
    pub(crate) number: u16,
    /// Name of the port.
    pub(crate) wwpn: Wwn,
    /// Name of the node.
    pub(crate) wwnn: Wwn,
    /// Held as long as the port is used.
    _lock: File,
}

impl PortName {
    /// Takes the first number that is free.
    ///
    /// # Errors
    /// `Usage` if there is none.
    pub(crate) fn take(mac: Mac, numbers: Numbers) -> Result<Self> {
        for number in numbers.range() {
            if let Some(lock) = runtime::lock_fcoe_port(&format!("{mac}-{number:03x}"))? {
                let (wwpn, wwnn) = (Wwn::of_further_port(mac, number), Wwn::of_node(mac));
                return Ok(Self { number, wwpn, wwnn, _lock: lock });
            }
        }
        let message = format!("all ports of FCoE with the address {mac} are in use");
        Err(Error::new(Code::Usage, message))
    }

    /// The same with another name, if the user has one for it.
    pub(crate) fn or(mut self, wwpn: Option<Wwn>) -> Self {
        self.wwpn = wwpn.unwrap_or(self.wwpn);
        self
    }
}
