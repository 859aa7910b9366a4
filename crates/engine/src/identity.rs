//! The identity of this machine: stable over restarts, for every host or target on it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Written by an administrator to replace the machine's identity.
const HOST_ID: &str = "/etc/tyche/host-id";
/// Generated once if the machine has no identity; in the state directory.
const HOST_ID_MADE: &str = "host-id";
/// The state directory, unless the environment names another.
const STATE: &str = "/var/lib/tyche";
/// The environment variable that names another directory.
const STATE_VARIABLE: &str = "TYCHE_STATE_DIR";
/// The machine ID of systemd; identities are derived from it, and it is never sent itself.
const MACHINE_ID: &str = "/etc/machine-id";
/// Namespace of the UUIDs that are derived from something else.
const NAMESPACE: Uuid = Uuid::from_u128(0x7479_6368_6500_4000_8000_b5b5_88b5_0001);

/// The directory of state that outlives processes and reboots.
pub fn state_dir() -> PathBuf {
    let set = std::env::var_os(STATE_VARIABLE).filter(|value| !value.is_empty());
    set.map_or_else(|| STATE.into(), PathBuf::from)
}

/// The UUID derived from a name, always the same.
pub fn derived(kind: &str, of: &[u8]) -> Uuid {
    Uuid::new_v5(&Uuid::new_v5(&NAMESPACE, kind.as_bytes()), of)
}

/// Parses the UUID of a host; the nil UUID is none.
pub fn parse_host(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text.trim()).ok().filter(|uuid| !uuid.is_nil())
}

/// This machine's UUID as a host.
///
/// # Errors
/// `InvalidData` if the administrator's file holds no UUID; the system's error if it can't be read,
/// or an identity cannot be stored.
pub fn host() -> io::Result<Uuid> {
    match read(HOST_ID)? {
        Some(text) => parse_host(&text).ok_or_else(|| {
            let message = format!("{HOST_ID}: write one UUID into it, such as `uuidgen` prints");
            io::Error::new(ErrorKind::InvalidData, message)
        }),
        None => Ok(derived("host", machine()?.as_bytes())),
    }
}

/// Identifies this machine in stored state, which may have been copied from another machine; `None`
/// if the machine has no identity.
pub fn keeper() -> Option<Uuid> {
    let id = read(MACHINE_ID).ok()?.and_then(|text| machine_id(&text))?;
    Some(derived("keeper", id.as_bytes()))
}

/// The unique ID of this machine, generated if there is none.
fn machine() -> io::Result<String> {
    let made = state_dir().join(HOST_ID_MADE);
    for path in [Path::new(MACHINE_ID), &made] {
        if let Some(id) = read(path)?.and_then(|text| machine_id(&text)) {
            return Ok(id);
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

/// Parses an identity read from a file. Machines that were never booted, or whose image was
/// prepared for cloning, have `uninitialized` or nothing: that is no identity.
fn machine_id(text: &str) -> Option<String> {
    parse_host(text).map(|_| text.trim().to_owned())
}

/// Reads a file; `None` if there is none.
fn read(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    let path = path.as_ref();
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_identity_is_not_taken_for_one() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(machine_id(&format!("{id}\n")).as_deref(), Some(id));
        for text in ["", "\n", "uninitialized\n", "host1", "00000000000000000000000000000000"] {
            assert_eq!(machine_id(text), None, "{text:?}");
            assert_eq!(parse_host(text), None, "{text:?}");
        }
        let uuid = "11111111-2222-4333-8444-555555555555";
        assert_eq!(parse_host(&format!(" {uuid}\n")).unwrap().to_string(), uuid);
    }
}
