//! The initiator: finds logical units and their properties, makes commands of operations, and says
//! how they ended.

mod discovery;
mod disk;
mod scan;
mod verdict;

pub use discovery::{Discovery, DiscoveryError, Progress};
pub use disk::{Disk, Next, Translation};
pub use scan::Scan;
pub use verdict::{Verdict, classify};

use crate::cdb::Cdb;
use crate::operation::Direction;
use crate::unmap::UNMAP_ONE_LEN;

/// A command for a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub cdb: Cdb,
    /// Its data.
    pub data: Data,
}

/// The data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// There are none.
    None,
    /// At most so many bytes come from the target.
    In(u32),
    /// So many bytes of the operation go to the target.
    Out(u32),
    /// This parameter list of UNMAP goes to the target.
    Unmap([u8; UNMAP_ONE_LEN]),
    /// A block of so many bytes, all zero, goes to the target.
    Zeroes(u32),
}

impl Data {
    /// Their direction.
    pub fn direction(&self) -> Direction {
        match self {
            Self::None => Direction::None,
            Self::In(_) => Direction::In,
            Self::Out(_) | Self::Unmap(_) | Self::Zeroes(_) => Direction::Out,
        }
    }

    /// Their length in bytes, the FCP_DL of FCP.
    pub fn len(&self) -> u32 {
        match *self {
            Self::None => 0,
            Self::In(len) | Self::Out(len) | Self::Zeroes(len) => len,
            Self::Unmap(list) => list.len() as u32,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A target's answer to a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandAnswer<'a> {
    /// The status byte.
    pub status: u8,
    /// Sense data, if there are any.
    pub sense: &'a [u8],
    /// Data that have arrived.
    pub data: &'a [u8],
}
