//! Who this machine is to others: identities that stay the same over restarts, for whatever on it
//! connects or exports.

use std::fs;
use std::io;
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
        match fs::read_to_string(path) {
            Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
            _ => {}
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
