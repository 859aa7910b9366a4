//! The common types of all block code: requests ([`Operation`], [`Request`]), the properties of a
//! disk ([`Geometry`]), results ([`Completion`], [`Errno`]), and the memory for data ([`Arena`],
//! [`Extent`]). Threads that serve a disk are kept from waiting for it ([`avoid_reclaim_io`]).
//!
//! A request *owns* its buffer, and its completion returns it. So no part ever reads memory that
//! another part may be writing, without a lock and without `unsafe` outside of [`arena`](Arena).

mod arena;
mod disk;
mod errno;
mod mapping;
mod reclaim;
mod request;
mod sync;

pub use arena::{Arena, Extent, PAGE};
pub use disk::{Disk, Sink, queues};
pub use errno::Errno;
pub use reclaim::{avoid_reclaim_io, lock_memory};
pub use request::{Completion, Operation, Request};
pub use tyche_geometry::Geometry;
