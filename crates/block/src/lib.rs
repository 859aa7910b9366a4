//! The vocabulary that everything touching blocks shares: what can be asked of a disk
//! ([`Operation`], [`Request`]), what a disk is like ([`Geometry`]), how a request ends
//! ([`Completion`], [`Errno`]), and the memory that data travels in ([`Arena`], [`Extent`]).
//!
//! A request *owns* its buffer. Whoever serves the request gives the buffer back with the
//! completion. So no part ever looks at memory that another part may be writing, without a lock
//! and without `unsafe` outside of [`arena`](Arena).

mod arena;
mod disk;
mod errno;
mod mapping;
mod request;

pub use arena::{Arena, Extent, PAGE};
pub use disk::{Disk, Sink};
pub use errno::Errno;
pub use request::{Completion, Geometry, Operation, Request};
