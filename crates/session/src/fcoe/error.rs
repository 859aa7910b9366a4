//! Errors of setting up a session over FCoE.

use std::io;

use thiserror::Error;
use tyche_fcoe::fc::wire::Mac;
use tyche_link::packet;

/// Reasons why a session does not start.
#[derive(Debug, Error)]
pub enum FcoeError {
    /// The name of a disk or port is misspelt.
    #[error("{0}")]
    Name(String),
    /// The link is no interface.
    #[error("FCoE travels on Ethernet: {0} is no interface")]
    NoInterface(String),
    /// The interface can't be used.
    #[error(transparent)]
    Interface(#[from] packet::OpenError),
    /// The number of a port can't be locked.
    #[error("lock {0}: {1}; TYCHE_RUNTIME_DIR names another directory for it")]
    Lock(String, io::Error),
    /// Other processes have all numbers of ports of the interface with that address.
    #[error("all ports of FCoE with the address {0} are in use")]
    InUse(Mac),
}
