//! The N_Port_ID of a port of this machine, which it asks for again when it is started anew: others
//! find it where it was, and a port that had to give way to another does not move twice.
//!
//! A record is a preference. If another port has that N_Port_ID now, ours takes one that is free,
//! and that is recorded.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tyche_fcoe::RememberAddress;
use tyche_fcoe::fc::wire::{PortId, Wwn};

/// The record of one port: a file of its own, named after the port.
pub(crate) struct AddressRecord(PathBuf);

impl AddressRecord {
    /// The record of a port in a directory, which need not exist.
    pub(crate) fn of(wwpn: Wwn, dir: &Path) -> Self {
        Self(dir.join(wwpn.to_string()))
    }

    /// The N_Port_ID that the port had; `None` if there is no record that can be read.
    pub(crate) fn read(&self) -> Option<PortId> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("{}: {error}; the port may get another N_Port_ID", self.0.display());
                return None;
            }
        };
        // A file that was not written to its end has fewer digits.
        let digits = text.trim_end();
        let number = u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 6);
        number.map(PortId::new)
    }

    /// Records each N_Port_ID that the port gets.
    pub(crate) fn into_callback(self) -> RememberAddress {
        let mut last = self.read();
        Box::new(move |id| {
            if last.replace(id) == Some(id) {
                return;
            }
            if let Err(error) = self.write(id) {
                tracing::warn!(
                    "{}: {error}; the port may have another N_Port_ID than {id} next time",
                    self.0.display()
                );
            }
        })
    }

    fn write(&self, id: PortId) -> std::io::Result<()> {
        if let Some(dir) = self.0.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&self.0, format!("{id}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_of_a_port_is_kept_and_a_torn_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, [a, b]) = (dir.path().join("ids"), [0x2000_0200_5e10_0001, 2].map(Wwn));
        assert_eq!(AddressRecord::of(a, &dir).read(), None);
        let mut remember = AddressRecord::of(a, &dir).into_callback();
        for id in [0x0b0b, 0x0001, 0x0001] {
            remember(PortId::new(id));
            assert_eq!(AddressRecord::of(a, &dir).read(), Some(PortId::new(id)));
        }
        assert_eq!(AddressRecord::of(b, &dir).read(), None, "each port has its own");
        for torn in ["", "00000", "0000zz\n"] {
            fs::write(dir.join(a.to_string()), torn).unwrap();
            assert_eq!(AddressRecord::of(a, &dir).read(), None, "{torn:?}");
        }
    }
}
