//! Names of the ports of this machine (WWPNs).
//!
//! Each process that speaks FCoE on an interface has a port of its own there, with a number that is
//! part of its name. Ports of one interface do not hear each other, so the numbers are kept apart
//! by locks in the run-time directory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tyche_fcoe::fc::network::Mode;
use tyche_fcoe::fc::wire::{Mac, Wwn};
use tyche_fcoe::{Interface, PortOptions};

use super::error::FcoeError;
use crate::runtime::runtime_dir;

/// The directory of the ports of this machine.
pub fn ports_dir() -> PathBuf {
    runtime_dir().join("fcoe")
}

/// Parses the name of a port.
///
/// # Errors
/// A text that says how it is written.
pub fn parse_wwpn(text: &str) -> Result<Wwn, String> {
    Wwn::parse(text).ok_or_else(|| {
        format!("`{text}`: a WWPN is 16 hexadecimal digits, such as 20:00:02:00:5e:10:00:01")
    })
}

/// The numbers of ports, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
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
pub struct PortName {
    /// Number of the port, if it follows from it.
    pub number: u16,
    /// Name of the port.
    pub wwpn: Wwn,
    /// Name of the node.
    pub wwnn: Wwn,
    /// Held as long as the port is used.
    _lock: File,
}

impl PortName {
    /// Takes the first number that is free.
    ///
    /// # Errors
    /// There is none, or none can be locked.
    pub fn take(mac: Mac, numbers: Numbers) -> Result<Self, FcoeError> {
        for number in numbers.range() {
            let file = ports_dir().join(format!("{mac}-{number:03x}.lock"));
            let refused = |error| FcoeError::Lock(file.display().to_string(), error);
            let locked = lock(&file).map_err(refused)?;
            if let Some(lock) = locked {
                let (wwpn, wwnn) = (Wwn::of_further_port(mac, number), Wwn::of_node(mac));
                return Ok(Self { number, wwpn, wwnn, _lock: lock });
            }
        }
        Err(FcoeError::InUse(mac))
    }

    /// The options of the port on its interface.
    pub fn options(&self, interface: Interface, mode: Mode, e_d_tov: Duration) -> PortOptions {
        let e_d_tov = Duration::from_millis(e_d_tov.as_millis() as u64);
        PortOptions { mode, ..PortOptions::new(interface, (self.wwpn, self.wwnn), e_d_tov) }
    }

    /// The same with another name, if the user has one for it.
    pub fn or(mut self, wwpn: Option<Wwn>) -> Self {
        self.wwpn = wwpn.unwrap_or(self.wwpn);
        self
    }
}

/// Locks a file that only its owner may reach; `None` if another process has the lock.
fn lock(file: &Path) -> io::Result<Option<File>> {
    if let Some(dir) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
    let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok(is_free.then_some(lock))
}
