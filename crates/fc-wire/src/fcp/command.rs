//! FCP_CMND: a command for a logical unit, or a task management function.
//!
//! ```text
//! off len field
//!   0   8 LUN
//!   8   1 CRN          command reference number; 0 for none
//!   9   1 1 bit 0, priority 4 bits, task attribute 3 bits
//!  10   1 task management
//!  11   1 words of a CDB behind the first 16 bytes, 6 bits; 0x02 RDDATA, 0x01 WRDATA
//!  12  16 CDB
//!  28   n the rest of the CDB
//! 28+n  4 FCP_DL       bytes of data
//! ```

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ResponseCode;
use crate::Reject;
use crate::bits::bits;
use crate::bytes::{Append, front};

/// Bytes of the CDB that are always there.
pub const CDB_LEN: usize = 16;
/// Bytes of the unit, without the rest of a longer CDB.
pub const COMMAND_LEN: usize = size_of::<Layout>() + size_of::<U32>();

bits! {
    /// Task management functions. A command has none, other requests have one. Every bit has a
    /// name: with a bit ignored, such a request would be a command.
    TaskManagement(u8) {
        /// Asks whether there are tasks of this initiator.
        QUERY_TASK_SET = 0x01;
        /// Aborts the tasks of this initiator.
        ABORT_TASK_SET = 0x02;
        /// Aborts the tasks of all initiators.
        CLEAR_TASK_SET = 0x04;
        /// Asks whether a unit attention is pending.
        QUERY_ASYNCHRONOUS_EVENT = 0x08;
        /// Resets the logical unit.
        LU_RESET = 0x10;
        /// Resets the target.
        TARGET_RESET = 0x20;
        /// Ends an auto contingent allegiance.
        CLEAR_ACA = 0x40;
        /// Ends a task. Obsolete.
        TERMINATE_TASK = 0x80;
    }
}

/// A command, or a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The logical unit (SAM-5).
    pub lun: [u8; 8],
    /// The command's reference number; 0 for none.
    pub crn: u8,
    /// The command's priority, 4 bits.
    pub priority: u8,
    /// The task attribute, 3 bits: 0 simple, 1 head of queue, 2 ordered, 4 ACA.
    pub attribute: u8,
    /// The task management functions.
    pub management: TaskManagement,
    /// Data go to the initiator.
    pub reads: bool,
    /// Data go to the target.
    pub writes: bool,
    /// The command (SPC-4, SBC-3).
    pub cdb: [u8; CDB_LEN],
    /// The rest of a longer one, a multiple of 4 bytes; never sent by us.
    pub more_cdb: &'a [u8],
    /// Bytes of data (FCP_DL).
    pub data_len: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Layout {
    lun: [u8; 8],
    crn: u8,
    task: u8,
    management: u8,
    flags: u8,
    cdb: [u8; CDB_LEN],
}

/// Offsets of fields that are patched in a prepared unit.
pub(super) const CRN_AT: usize = core::mem::offset_of!(Layout, crn);
pub(super) const FLAGS_AT: usize = core::mem::offset_of!(Layout, flags);
pub(super) const CDB_AT: usize = core::mem::offset_of!(Layout, cdb);
pub(super) const DATA_LEN_AT: usize = size_of::<Layout>();

/// Bytes of the longest rest of a CDB: the number of its words has 6 bits.
const MORE_CDB_LEN_MAX: usize = 63 * 4;
const READS: u8 = 0x02;
const WRITES: u8 = 0x01;

/// The byte with the direction of the data.
pub(super) fn flags(reads: bool, writes: bool) -> u8 {
    (READS * u8::from(reads)) | (WRITES * u8::from(writes))
}

impl<'a> Command<'a> {
    /// A command without data for a logical unit.
    pub fn new(lun: [u8; 8], cdb: [u8; CDB_LEN]) -> Self {
        Self {
            lun,
            crn: 0,
            priority: 0,
            attribute: 0,
            management: TaskManagement::EMPTY,
            reads: false,
            writes: false,
            cdb,
            more_cdb: &[],
            data_len: 0,
        }
    }

    /// Parses a payload.
    ///
    /// # Errors
    /// `Length`.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Reject> {
        let (layout, rest) = front::<Layout>(payload)?;
        let more_len = usize::from(layout.flags >> 2) * 4;
        let (more_cdb, rest) = rest.split_at_checked(more_len).ok_or(Reject::Length)?;
        let (data_len, _) = front::<U32>(rest)?;
        Ok(Self {
            lun: layout.lun,
            crn: layout.crn,
            priority: layout.task >> 3 & 0xf,
            attribute: layout.task & 7,
            management: TaskManagement::from_wire(layout.management),
            reads: layout.flags & READS != 0,
            writes: layout.flags & WRITES != 0,
            cdb: layout.cdb,
            more_cdb,
            data_len: data_len.get(),
        })
    }

    /// Checks that a target can execute it. Otherwise the code is that of the FCP_RSP.
    ///
    /// # Errors
    /// `FieldsInvalid`: a longer CDB, data in both directions, or several task management
    /// functions.
    pub fn check(&self) -> Result<(), ResponseCode> {
        let functions = self.management.to_wire().count_ones();
        if !self.more_cdb.is_empty() || (self.reads && self.writes) || functions > 1 {
            return Err(ResponseCode::FieldsInvalid);
        }
        Ok(())
    }

    /// Writes the payload; returns its length.
    ///
    /// # Panics
    /// If the buffer is shorter than [`COMMAND_LEN`] and the rest of a longer CDB; or if that rest
    /// has more than 63 words, or a part of one.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        assert!(self.more_cdb.len().is_multiple_of(4), "a CDB consists of whole words");
        assert!(self.more_cdb.len() <= MORE_CDB_LEN_MAX, "the number of words has 6 bits");
        let words = (self.more_cdb.len() / 4) as u8;
        let mut payload = Append::new(buffer);
        payload.put(&Layout {
            lun: self.lun,
            crn: self.crn,
            task: (self.priority & 0xf) << 3 | self.attribute & 7,
            management: self.management.to_wire(),
            flags: words << 2 | flags(self.reads, self.writes),
            cdb: self.cdb,
        });
        payload.put(self.more_cdb).put(&U32::new(self.data_len)).len()
    }
}
