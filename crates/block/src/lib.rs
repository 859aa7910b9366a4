//! The common types of all block code: requests ([`Operation`], [`Request`]), the properties of a
//! disk ([`Geometry`]), results ([`Completion`], [`Errno`]), and the memory for data ([`Arena`],
//! [`Extent`]). [`avoid_reclaim_io`] keeps a thread that serves a disk from waiting for that disk.
//!
//! A request *owns* its buffer, and its completion returns it. So no component reads memory that
//! another may be writing. That needs no lock, and no `unsafe` outside of [`arena`](Arena).

mod arena;
mod disk;
mod errno;
mod lack;
mod lent;
mod mapping;
mod reclaim;
mod request;
mod reserve;
mod size;
mod sync;

pub use arena::{Arena, Extent};
pub use disk::{Disk, Sink, queues};
pub use errno::Errno;
pub use mapping::PAGE;
pub use reclaim::{avoid_reclaim_io, lock_memory};
pub use request::{Completion, OperationKind, Request};
pub use reserve::Reserve;
pub use size::ArenaSize;
pub use tyche_geometry::{
    Geometry, Operation, STATUS_LEN_MAX, StatusRun, StatusWriter, status_runs,
};
