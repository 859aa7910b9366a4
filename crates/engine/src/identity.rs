//! Who this machine is to others: identities that stay the same over restarts, for whatever on it
//! connects or exports.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Set by an administrator who wants another identity than the machine's.
const HOST_ID: &str = "/etc/tyche/host-id";
/// Made once where the machine has no identity of its own; in the state directory.
const HOST_ID_MADE: &str = "host-id";
/// What must outlive processes and reboots, unless the environment names another directory.
const STATE: &str = "/var/lib/tyche";
/// Names another directory.
const STATE_VARIABLE: &str = "TYCHE_STATE_DIR";
/// Of systemd; the base of what we show to others, never shown itself.
const MACHINE_ID: &str = "/etc/machine-id";
/// Namespace of the UUIDs that are derived from something else.
const NAMESPACE: Uuid = Uuid::from_u128(0x7479_6368_6500_4000_8000_b5b5_88b5_0001);

/// The directory of what must outlive processes and reboots.
pub fn state_dir() -> PathBuf {
    std::env::var_os(STATE_VARIABLE).map_or_else(|| STATE.into(), PathBuf::from)
}

/// The UUID that a name stands for, always the same.
pub fn derived(kind: &str, of: &[u8]) -> Uuid {
    Uuid::new_v5(&Uuid::new_v5(&NAMESPACE, kind.as_bytes()), of)
}

/// This machine's UUID as a host.
///
/// # Errors
/// `InvalidData` if the administrator's file holds no UUID; what the system says when an identity
/// cannot be kept.
pub fn host() -> io::Result<Uuid> {
    if let Ok(text) = fs::read_to_string(HOST_ID) {
        return Uuid::parse_str(text.trim()).map_err(|error| {
            let message = format!("{HOST_ID}: write one UUID into it: {error}");
            io::Error::new(io::ErrorKind::InvalidData, message)
        });
    }
    Ok(derived("host", machine()?.as_bytes()))
}

/// Tells this machine from the one that what is kept in a file may have been copied from; `None`
/// where the machine has no identity.
pub fn keeper() -> Option<Uuid> {
    let id = fs::read_to_string(MACHINE_ID).ok()?;
    Some(id.trim()).filter(|id| !id.is_empty()).map(|id| derived("keeper", id.as_bytes()))
}

/// What tells this machine from all others.
fn machine() -> io::Result<String> {
    let made = state_dir().join(HOST_ID_MADE);
    for path in [Path::new(MACHINE_ID), &made] {
        match fs::read_to_string(path) {
            Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
            _ => {}
        }
    }
    let id = Uuid::new_v4().to_string();
    let written = fs::create_dir_all(state_dir()).and_then(|()| fs::write(&made, &id));
    written.map_err(|error| {
        let message = format!("keep this machine's identity in {}: {error}", made.display());
        io::Error::new(error.kind(), message)
    })?;
    Ok(id)
}
