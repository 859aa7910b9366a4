//! The common types of all block code: requests ([`Operation`], [`Request`]), the properties of a
//! disk ([`Geometry`]), results ([`Completion`], [`Errno`]), and the memory for data ([`Arena`],
//! [`Extent`]).
//!
//! A request *owns* its buffer, and its completion returns it. So no part ever reads memory that
//! another part may be writing, without a lock and without `unsafe` outside of [`arena`](Arena).

mod arena;
mod disk;
mod errno;
mod mapping;
mod request;

pub use arena::{Arena, Extent, PAGE};
pub use disk::{Disk, Sink};
pub use errno::Errno;
pub use request::{Completion, Geometry, Operation, Request};
