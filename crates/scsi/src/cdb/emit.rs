//! Commands to CDBs.

use super::{
    Cdb, Command, Form, ModeSense, OpcodeQuery, READ_CAPACITY_16, REPORT_OPCODES, Range, len_of,
    opcode,
};
use crate::bytes::bit_if;

/// The CDB of an operation code, all else zero.
fn blank(opcode: u8) -> Cdb {
    let mut bytes = [0; Cdb::LEN_MAX];
    bytes[0] = opcode;
    Cdb { bytes, len: len_of(opcode).unwrap_or(Cdb::LEN_MAX) as u8 }
}

impl Cdb {
    fn with<const N: usize>(mut self, at: usize, field: [u8; N]) -> Self {
        self.bytes[at..at + N].copy_from_slice(&field);
        self
    }

    fn flag(mut self, at: usize, bit: u8, is_set: bool) -> Self {
        self.bytes[at] |= bit_if(is_set, bit);
        self
    }

    /// With first block and number of blocks, if they fit.
    fn range(self, range: Range) -> Option<Self> {
        let Range { form, lba, blocks } = range;
        let short = u32::try_from(lba).ok();
        match form {
            Form::Six => {
                let [0, high @ 0..=0x1f, middle, low] = short?.to_be_bytes() else { return None };
                let blocks = match blocks {
                    1..=255 => blocks as u8,
                    256 => 0,
                    _ => return None,
                };
                Some(self.with(1, [high, middle, low, blocks]))
            }
            Form::Ten => {
                let blocks = u16::try_from(blocks).ok()?;
                Some(self.with(2, short?.to_be_bytes()).with(7, blocks.to_be_bytes()))
            }
            Form::Twelve => Some(self.with(2, short?.to_be_bytes()).with(6, blocks.to_be_bytes())),
            Form::Sixteen => Some(self.with(2, lba.to_be_bytes()).with(10, blocks.to_be_bytes())),
        }
    }

    fn mode(self, query: ModeSense) -> Self {
        let page = (query.control as u8) << 6 | query.page & 0x3f;
        self.flag(1, 0x08, query.no_descriptors).with(2, [page, query.subpage])
    }
}

impl Command {
    /// The CDB; `None` if a value does not fit in it, or the command has no CDB of that form.
    pub fn emit(&self) -> Option<Cdb> {
        let cdb = match *self {
            Self::Read { range, fua } => {
                let opcodes = [opcode::READ_6, opcode::READ_10, opcode::READ_12, opcode::READ_16];
                return transfer(opcodes, range, fua);
            }
            Self::Write { range, fua } => {
                let opcodes =
                    [opcode::WRITE_6, opcode::WRITE_10, opcode::WRITE_12, opcode::WRITE_16];
                return transfer(opcodes, range, fua);
            }
            Self::Verify(range) => {
                return blank(two(range.form, opcode::VERIFY_10, opcode::VERIFY_16)?).range(range);
            }
            Self::SynchronizeCache { range, immediate } => {
                let (ten, sixteen) = (opcode::SYNCHRONIZE_CACHE_10, opcode::SYNCHRONIZE_CACHE_16);
                let cdb = blank(two(range.form, ten, sixteen)?).flag(1, 0x02, immediate);
                return cdb.range(range);
            }
            Self::WriteSame { lba, blocks, unmap, no_data } => {
                let cdb = blank(opcode::WRITE_SAME_16).flag(1, 0x08, unmap).flag(1, 0x01, no_data);
                return cdb.range(Range { form: Form::Sixteen, lba, blocks });
            }
            Self::ModeSense { query, allocation } => return mode_sense(query, allocation),
            Self::TestUnitReady => blank(opcode::TEST_UNIT_READY),
            Self::RequestSense { descriptors, allocation } => {
                blank(opcode::REQUEST_SENSE).flag(1, 1, descriptors).with(4, [allocation])
            }
            Self::Inquiry { page, allocation } => blank(opcode::INQUIRY)
                .flag(1, 1, page.is_some())
                .with(2, [page.unwrap_or(0)])
                .with(3, allocation.to_be_bytes()),
            Self::Reserve => blank(opcode::RESERVE_6),
            Self::Release => blank(opcode::RELEASE_6),
            Self::StartStopUnit { immediate, start } => {
                blank(opcode::START_STOP_UNIT).flag(1, 1, immediate).flag(4, 1, start)
            }
            Self::ReadCapacity10 => blank(opcode::READ_CAPACITY_10),
            Self::ReadCapacity16 { allocation } => blank(opcode::SERVICE_ACTION_IN_16)
                .with(1, [READ_CAPACITY_16])
                .with(10, allocation.to_be_bytes()),
            Self::Unmap { len } => blank(opcode::UNMAP).with(7, len.to_be_bytes()),
            Self::ReportLuns { select, allocation } => {
                blank(opcode::REPORT_LUNS).with(2, [select as u8]).with(6, allocation.to_be_bytes())
            }
            Self::ReportOpcodes { query, timeouts, allocation } => {
                report_opcodes(query).flag(2, 0x80, timeouts).with(6, allocation.to_be_bytes())
            }
            Self::PersistentReserveIn { query, allocation } => {
                let cdb = blank(opcode::PERSISTENT_RESERVE_IN).with(1, [query as u8]);
                cdb.with(7, allocation.to_be_bytes())
            }
        };
        Some(cdb)
    }
}

/// The CDB of a command with a form of each length.
fn transfer(opcodes: [u8; 4], range: Range, fua: bool) -> Option<Cdb> {
    if range.form == Form::Six && fua {
        return None;
    }
    blank(opcodes[range.form as usize]).flag(1, 0x08, fua).range(range)
}

/// The operation code of a command that has CDBs of 10 and 16 bytes.
fn two(form: Form, ten: u8, sixteen: u8) -> Option<u8> {
    match form {
        Form::Ten => Some(ten),
        Form::Sixteen => Some(sixteen),
        Form::Six | Form::Twelve => None,
    }
}

fn mode_sense(query: ModeSense, allocation: u16) -> Option<Cdb> {
    match query.form {
        Form::Six => {
            let allocation = u8::try_from(allocation).ok()?;
            Some(blank(opcode::MODE_SENSE_6).mode(query).with(4, [allocation]))
        }
        Form::Ten => {
            Some(blank(opcode::MODE_SENSE_10).mode(query).with(7, allocation.to_be_bytes()))
        }
        Form::Twelve | Form::Sixteen => None,
    }
}

fn report_opcodes(query: OpcodeQuery) -> Cdb {
    let (option, opcode, action) = match query {
        OpcodeQuery::All => (0, 0, 0),
        OpcodeQuery::Opcode(opcode) => (1, opcode, 0),
        OpcodeQuery::Action(opcode, action) => (2, opcode, action),
        OpcodeQuery::Either(opcode, action) => (3, opcode, action),
    };
    let cdb = blank(opcode::MAINTENANCE_IN).with(1, [REPORT_OPCODES, option, opcode]);
    cdb.with(4, action.to_be_bytes())
}
