//! What links over IP have in common: the names of places, and the errors of opening a link there.

mod error;
mod place;

pub use error::OpenError;
pub use place::{DEFAULT_PORT, Misspelt, Place, Transport};
