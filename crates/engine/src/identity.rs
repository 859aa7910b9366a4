//! Who this machine is to others: identities that stay the same over restarts, for whatever on it
//! connects or exports.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use uuid::Uuid;

/// Set by an administrator who wants another identity than the machine's.
const HOST_ID: &str = "/etc/tyche/host-id";
/// Made once where the machine has no identity of its own.
const HOST_ID_MADE: &str = "/var/lib/tyche/host-id";
/// Of systemd; the base of what we show to others, never shown itself.
const MACHINE_ID: &str = "/etc/machine-id";
/// Namespace of the UUIDs that are derived from something else.
const NAMESPACE: Uuid = Uuid::from_u128(0x7479_6368_6500_4000_8000_b5b5_88b5_0001);

/// The UUID that a name stands for, always the same.
pub fn derived(kind: &str, of: &[u8]) -> Uuid {
    Uuid::new_v5(&Uuid::new_v5(&NAMESPACE, kind.as_bytes()), of)
}

/// A UUID that can tell one host from another.
pub fn parse_host(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text.trim()).ok().filter(|uuid| !uuid.is_nil())
}

/// This machine's UUID as a host.
///
/// # Errors
/// `InvalidData` if the administrator's file holds no UUID; what the system says when it can't be
/// read, or an identity cannot be kept.
pub fn host() -> io::Result<Uuid> {
    match read(HOST_ID)? {
        Some(text) => parse_host(&text).ok_or_else(|| {
            let message = format!("{HOST_ID}: write one UUID into it, such as `uuidgen` prints");
            io::Error::new(ErrorKind::InvalidData, message)
        }),
        None => Ok(derived("host", machine()?.as_bytes())),
    }
}

/// The UUID of the target of that name on this machine.
///
/// # Errors
/// What the system says when an identity cannot be kept.
pub fn target(name: &str) -> io::Result<Uuid> {
    Ok(derived("target", format!("{}/{name}", machine()?).as_bytes()))
}

/// What tells this machine from all others.
fn machine() -> io::Result<String> {
    for path in [MACHINE_ID, HOST_ID_MADE] {
        if let Some(id) = read(path)?.and_then(|text| machine_id(&text)) {
            return Ok(id);
        }
    }
    let id = Uuid::new_v4().to_string();
    let path = Path::new(HOST_ID_MADE);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, &id)).map_err(|error| {
        let message = format!("keep this machine's identity in {HOST_ID_MADE}: {error}");
        io::Error::new(error.kind(), message)
    })?;
    Ok(id)
}

/// An identity that is kept in a file, as it is written there. Machines that were never booted, or
/// whose image was prepared for cloning, have `uninitialized` or nothing: that tells them from no
/// other.
fn machine_id(text: &str) -> Option<String> {
    parse_host(text).map(|_| text.trim().to_owned())
}

/// `None` if there is no such file.
fn read(path: &str) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
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
