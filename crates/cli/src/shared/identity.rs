//! The identity of this machine as others see it, with error messages for its user.

use std::io;

use tyche_engine::identity;
use uuid::Uuid;

use crate::shared::error::{Code, Error, Result};

/// Parses the UUID of a host that an option names.
pub(crate) fn parse_host(text: &str) -> Result<Uuid, String> {
    identity::parse_host(text).ok_or_else(|| {
        "a host ID is a UUID, such as `uuidgen` prints, and not all zeroes".to_owned()
    })
}

/// This machine's UUID as a host.
pub(crate) fn host() -> Result<Uuid> {
    explain(identity::host())
}

fn explain<T>(known: io::Result<T>) -> Result<T> {
    known.map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::InvalidData => Code::Config,
            _ => Code::Other,
        };
        Error::new(code, error.to_string())
    })
}
