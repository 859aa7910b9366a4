//! The common parts of links over IP: the names of places, the errors of opening a link there, and
//! this machine's own addresses.

mod addresses;
mod error;
mod place;

pub(crate) use addresses::{LocalAddress, addresses};
pub use error::OpenError;
pub use place::{DEFAULT_PORT, Misspelt, Place, Transport};
