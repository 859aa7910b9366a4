//! SCSI block devices, as FCP carries them: the commands, the device server of a target, and the
//! requests of an initiator (SAM-5, SPC-4, SBC-3).
//!
//! It is sans-IO: it knows no clock, no thread, no frame and no payload. Data of reads and writes
//! never pass through here.
//!
//! - [`Server`] is the device server of a target. [`Server::begin`] takes a CDB. The command ends
//!   at once with an answer ([`Step::Answer`]), or is an operation of the disk
//!   ([`Step::Perform`]), or needs its parameter list first ([`Step::Collect`]), of which
//!   [`Server::parameters`] makes operations.
//! - [`initiator::Scan`] and [`initiator::Discovery`] find the logical units of a target and the
//!   properties of one. [`initiator::Disk::request`] makes commands of operations, and
//!   [`initiator::classify`] says how a command ended.
//!
//! The pages, lists and CDBs between them have a file each. Each can be written and read. Writing
//! never fails for want of room: it is cut at the end of the buffer, as answers are to be cut at
//! the allocation length. Reading checks all lengths, never panics and never allocates. Each fault
//! has a name: a [`Refusal`], with its sense data, in bytes of an initiator; a [`Malformed`] in
//! bytes of a target.
//!
//! Not served: protection information, persistent reservations, ACA, mode selection, logs,
//! comparing writes, and WRITE SAME of anything but zeroes.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attention;
mod bytes;
mod capacity;
pub mod cdb;
pub mod initiator;
mod inquiry;
mod label;
mod listed;
mod lun;
mod malformed;
mod mode;
mod opcodes;
mod operation;
mod refusal;
mod report_luns;
mod sense;
mod server;
mod status;
mod unmap;
pub mod vpd;

pub use attention::Attention;
pub use capacity::Capacity;
pub use cdb::{Cdb, Command};
pub use inquiry::Inquiry;
pub use label::Label;
pub use lun::{Lun, LunSet, UNITS_MAX};
pub use malformed::Malformed;
pub use mode::{ALL_PAGES, CACHING, CONTROL, Mode};
pub use opcodes::{Commands, Support};
pub use operation::{Direction, Failure};
pub use refusal::Refusal;
pub use report_luns::{LunList, emit_luns};
pub use sense::{Code, Field, Sense, SenseBytes, SenseFault, SenseKey};
pub use server::{
    ANSWER_LEN_MAX, Grant, NexusId, NoRoom, Reply, Server, Step, TRANSFER_LEN_MAX, Task, Tasks,
    ToldAttention, UNMAP_DESCRIPTORS_MAX, UNMAP_LEN_MAX, Unit, WRITE_ZEROES_LEN_MAX,
};
pub use status::Status;
pub use tyche_geometry::Operation;
pub use unmap::{UNMAP_ONE_LEN, UnmapLimits, UnmapRanges, emit_unmap};
pub use uuid::Uuid;
