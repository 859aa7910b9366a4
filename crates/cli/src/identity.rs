//! Who this machine is to others, with errors for its user.

use std::io;

use tyche_engine::identity;
use uuid::Uuid;

use crate::error::{Code, Error, Result};

/// This machine's UUID as a host.
pub(crate) fn host() -> Result<Uuid> {
    explain(identity::host())
}

/// The name that others see.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
