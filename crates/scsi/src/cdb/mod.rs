//! Command descriptor blocks: the commands that our device server serves, which include those that
//! our initiator issues (SPC-4 clause 6, SBC-3 clause 5).
//!
//! The group of a CDB, the upper three bits of its operation code, says its length, and the lengths
//! agree in where they have their fields:
//!
//! ```text
//! length  flags  LBA    blocks or length      control
//!      6      1  1..=3  4                           5
//!     10      1  2..=5  7..=8                       9
//!     12      1  2..=5  6..=9                      11
//!     16      1  2..=9  10..=13                    15
//! ```
//!
//! Reserved bits are ignored, as other targets do. Fields that ask for something that we do not
//! have (protection information, ACA, ..) are refused, with a pointer to the byte.

mod emit;
mod parse;

/// Operation codes.
pub mod opcode {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const TEST_UNIT_READY: u8 = 0x00;
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const READ_6: u8 = 0x08;
    pub const WRITE_6: u8 = 0x0a;
    pub const INQUIRY: u8 = 0x12;
    pub const RESERVE_6: u8 = 0x16;
    pub const RELEASE_6: u8 = 0x17;
    pub const MODE_SENSE_6: u8 = 0x1a;
    pub const START_STOP_UNIT: u8 = 0x1b;
    pub const READ_CAPACITY_10: u8 = 0x25;
    pub const READ_10: u8 = 0x28;
    pub const WRITE_10: u8 = 0x2a;
    pub const VERIFY_10: u8 = 0x2f;
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub const UNMAP: u8 = 0x42;
    pub const MODE_SENSE_10: u8 = 0x5a;
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    pub const READ_16: u8 = 0x88;
    pub const WRITE_16: u8 = 0x8a;
    pub const VERIFY_16: u8 = 0x8f;
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub const WRITE_SAME_16: u8 = 0x93;
    /// Service actions: only READ CAPACITY(16).
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub const REPORT_LUNS: u8 = 0xa0;
    /// Service actions: only REPORT SUPPORTED OPERATION CODES.
    pub const MAINTENANCE_IN: u8 = 0xa3;
    pub const READ_12: u8 = 0xa8;
    pub const WRITE_12: u8 = 0xaa;
}

/// The service action of READ CAPACITY(16).
pub(crate) const READ_CAPACITY_16: u8 = 0x10;
/// The service action of REPORT SUPPORTED OPERATION CODES.
pub(crate) const REPORT_OPCODES: u8 = 0x0c;

/// A command descriptor block, in the 16 bytes that an FCP_CMND has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    bytes: [u8; Cdb::LEN_MAX],
    len: u8,
}

impl Cdb {
    /// Bytes of the longest CDB.
    pub const LEN_MAX: usize = 16;

    /// The CDB, padded with zeroes.
    pub fn padded(&self) -> &[u8; Self::LEN_MAX] {
        &self.bytes
    }

    /// The CDB.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The length of a CDB with that operation code; `None` for variable lengths, and for groups that
/// are reserved or vendor specific.
pub const fn len_of(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

/// The length of a CDB, for commands that have several forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the number of bytes")]
pub enum Form {
    Six,
    Ten,
    Twelve,
    Sixteen,
}

impl Form {
    /// The offset of the number of blocks.
    pub(crate) const fn blocks_at(self) -> u8 {
        match self {
            Self::Six => 4,
            Self::Ten => 7,
            Self::Twelve => 6,
            Self::Sixteen => 10,
        }
    }
}

/// The blocks that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The form of the CDB.
    pub form: Form,
    /// The first block.
    pub lba: u64,
    /// The number of blocks. Zero means none, except for SYNCHRONIZE CACHE and WRITE SAME: up to
    /// the end of the disk. (Zero in a CDB of 6 bytes means 256.)
    pub blocks: u32,
}

/// The values of a mode page that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum PageControl {
    Current = 0,
    Changeable = 1,
    Default = 2,
    Saved = 3,
}

/// The logical units that a REPORT LUNS asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunSelect {
    /// Logical units that are not well known.
    Ordinary = 0,
    /// Well known logical units.
    WellKnown = 1,
    /// All.
    All = 2,
}

/// The commands that a REPORT SUPPORTED OPERATION CODES asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpcodeQuery {
    /// All commands.
    All,
    /// The command of an operation code without service actions.
    Opcode(u8),
    /// The command of an operation code and a service action.
    Action(u8, u16),
    /// The command of an operation code, and of the service action if it has some.
    Either(u8, u16),
}

/// The question of a PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum ReservationQuery {
    Keys = 0,
    Reservation = 1,
    Capabilities = 2,
    FullStatus = 3,
}

/// The parameters of a MODE SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// The form, of 6 or 10 bytes: of the CDB and of the answer's header.
    pub form: Form,
    /// No block descriptors are wanted.
    pub no_descriptors: bool,
    /// The values that are wanted.
    pub control: PageControl,
    /// The page, or 0x3f for all.
    pub page: u8,
    /// The subpage, or 0xff for all.
    pub subpage: u8,
}

/// A command.
///
/// `allocation` is the most bytes of data that the initiator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY
    TestUnitReady,
    /// REQUEST SENSE
    RequestSense {
        /// Sense data are to have the descriptor format.
        descriptors: bool,
        #[allow(missing_docs, reason = "above")]
        allocation: u8,
    },
    /// INQUIRY
    Inquiry {
        /// The page of vital product data; `None` for the standard data.
        page: Option<u8>,
        #[allow(missing_docs, reason = "above")]
        allocation: u16,
    },
    /// RESERVE(6)
    Reserve,
    /// RELEASE(6)
    Release,
    /// MODE SENSE(6) or (10)
    ModeSense {
        /// The pages asked for.
        query: ModeSense,
        #[allow(missing_docs, reason = "above")]
        allocation: u16,
    },
    /// START STOP UNIT
    StartStopUnit {
        /// The answer is not to wait for the effect.
        immediate: bool,
        /// Start, not stop.
        start: bool,
    },
    /// READ CAPACITY(10)
    ReadCapacity10,
    /// READ CAPACITY(16)
    ReadCapacity16 {
        #[allow(missing_docs, reason = "above")]
        allocation: u32,
    },
    /// READ(6), (10), (12) or (16)
    Read {
        /// The blocks.
        range: Range,
        /// Read from stable storage.
        fua: bool,
    },
    /// WRITE(6), (10), (12) or (16)
    Write {
        /// The blocks.
        range: Range,
        /// Done only when on stable storage.
        fua: bool,
    },
    /// VERIFY(10) or (16), without a comparison
    Verify(Range),
    /// SYNCHRONIZE CACHE(10) or (16)
    SynchronizeCache {
        /// The blocks.
        range: Range,
        /// The answer is not to wait for the effect.
        immediate: bool,
    },
    /// WRITE SAME(16)
    WriteSame {
        /// The first block.
        lba: u64,
        /// The number of blocks.
        blocks: u32,
        /// Blocks may be deallocated if they then read as the block.
        unmap: bool,
        /// No block is sent; zeroes are meant (NDOB).
        no_data: bool,
    },
    /// UNMAP
    Unmap {
        /// Bytes of the parameter list.
        len: u16,
    },
    /// REPORT LUNS
    ReportLuns {
        /// The logical units.
        select: LunSelect,
        #[allow(missing_docs, reason = "above")]
        allocation: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES
    ReportOpcodes {
        /// The commands.
        query: OpcodeQuery,
        /// With the time that each takes.
        timeouts: bool,
        #[allow(missing_docs, reason = "above")]
        allocation: u32,
    },
    /// PERSISTENT RESERVE IN
    PersistentReserveIn {
        /// The question.
        query: ReservationQuery,
        #[allow(missing_docs, reason = "above")]
        allocation: u16,
    },
}
