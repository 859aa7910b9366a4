//! CDBs to commands.

use super::{
    Cdb, Command, Form, LunSelect, ModeSense, OpcodeQuery, PageControl, READ_CAPACITY_16,
    REPORT_OPCODES, Range, ReservationQuery, len_of, opcode,
};
use crate::refusal::Refusal;

/// NACA in the control byte: failures are to establish an auto contingent allegiance.
const NACA: u8 = 0x04;
/// The upper three bits of byte 1: protection information is to be checked.
const PROTECT: u8 = 0xe0;
const FUA: u8 = 0x08;

/// A CDB of the length that its operation code asks for, padded with zeroes.
struct Fields {
    bytes: [u8; Cdb::LEN_MAX],
    len: usize,
}

impl Fields {
    fn new(cdb: &[u8]) -> Result<Self, Refusal> {
        let opcode = cdb.first().ok_or(Refusal::CdbLength)?;
        let len = len_of(*opcode).ok_or(Refusal::Opcode)?;
        // What follows, as in the 16 bytes of an FCP_CMND, is padding.
        let cdb = cdb.get(..len).ok_or(Refusal::CdbLength)?;
        let mut bytes = [0; Cdb::LEN_MAX];
        bytes[..len].copy_from_slice(cdb);
        Ok(Self { bytes, len })
    }

    fn has(&self, at: usize, bits: u8) -> bool {
        self.bytes[at] & bits != 0
    }

    /// Refuses any of these bits.
    fn refuse(&self, at: u8, bits: u8) -> Result<(), Refusal> {
        if self.has(usize::from(at), bits) { Err(Refusal::CdbField(at)) } else { Ok(()) }
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|index| self.bytes[at + index])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    /// First block and number of blocks, where CDBs of this length have them.
    fn range(&self) -> Range {
        let (form, lba, blocks) = match self.len {
            6 => {
                let blocks = if self.bytes[4] == 0 { 256 } else { u32::from(self.bytes[4]) };
                (Form::Six, u64::from(self.u32(0) & 0x1f_ffff), blocks)
            }
            10 => (Form::Ten, self.u32(2).into(), self.u16(7).into()),
            12 => (Form::Twelve, self.u32(2).into(), self.u32(6)),
            _ => (Form::Sixteen, self.u64(2), self.u32(10)),
        };
        Range { form, lba, blocks }
    }

    /// The range of a command that may ask for protection information and FUA, which CDBs of 6
    /// bytes can't: their LBA begins in that byte.
    fn transfer(&self) -> Result<(Range, bool), Refusal> {
        let range = self.range();
        if range.form == Form::Six {
            return Ok((range, false));
        }
        self.refuse(1, PROTECT)?;
        Ok((range, self.has(1, FUA)))
    }

    fn read(&self) -> Result<Command, Refusal> {
        self.transfer().map(|(range, fua)| Command::Read { range, fua })
    }

    fn write(&self) -> Result<Command, Refusal> {
        self.transfer().map(|(range, fua)| Command::Write { range, fua })
    }
}

impl Command {
    /// Takes a CDB, of which more than its operation code asks for is ignored.
    ///
    /// # Errors
    /// [`Refusal::Opcode`] for all commands but ours, [`Refusal::CdbField`] for fields with values
    /// that are not supported or reserved, [`Refusal::CdbLength`] for a short CDB.
    pub fn parse(cdb: &[u8]) -> Result<Self, Refusal> {
        let fields = Fields::new(cdb)?;
        let command = match fields.len {
            6 => parse_6(&fields),
            10 => parse_10(&fields),
            12 => parse_12(&fields),
            _ => parse_16(&fields),
        };
        let control = fields.len as u8 - 1;
        match command {
            Err(Refusal::Opcode) => Err(Refusal::Opcode),
            command => fields.refuse(control, NACA).and(command),
        }
    }
}

fn parse_6(fields: &Fields) -> Result<Command, Refusal> {
    Ok(match fields.bytes[0] {
        opcode::TEST_UNIT_READY => Command::TestUnitReady,
        opcode::REQUEST_SENSE => {
            Command::RequestSense { descriptors: fields.has(1, 1), allocation: fields.bytes[4] }
        }
        opcode::READ_6 => fields.read()?,
        opcode::WRITE_6 => fields.write()?,
        opcode::INQUIRY => {
            // CMDDT, of SPC-2.
            fields.refuse(1, 2)?;
            let page = fields.has(1, 1).then_some(fields.bytes[2]);
            if page.is_none() {
                fields.refuse(2, 0xff)?;
            }
            Command::Inquiry { page, allocation: fields.u16(3) }
        }
        opcode::RESERVE_6 | opcode::RELEASE_6 => {
            // Reservations of extents, or for third parties.
            fields.refuse(1, 0x1f)?;
            let is_reserve = fields.bytes[0] == opcode::RESERVE_6;
            if is_reserve { Command::Reserve } else { Command::Release }
        }
        opcode::MODE_SENSE_6 => Command::ModeSense {
            query: mode(fields, Form::Six),
            allocation: fields.bytes[4].into(),
        },
        opcode::START_STOP_UNIT => {
            // Power conditions, and media that are loaded or ejected.
            fields.refuse(4, 0xf2)?;
            Command::StartStopUnit { immediate: fields.has(1, 1), start: fields.has(4, 1) }
        }
        _ => return Err(Refusal::Opcode),
    })
}

fn parse_10(fields: &Fields) -> Result<Command, Refusal> {
    Ok(match fields.bytes[0] {
        opcode::READ_CAPACITY_10 => Command::ReadCapacity10,
        opcode::READ_10 => fields.read()?,
        opcode::WRITE_10 => fields.write()?,
        opcode::VERIFY_10 => verify(fields)?,
        opcode::SYNCHRONIZE_CACHE_10 => synchronize(fields),
        opcode::UNMAP => {
            // ANCHOR
            fields.refuse(1, 1)?;
            Command::Unmap { len: fields.u16(7) }
        }
        opcode::MODE_SENSE_10 => {
            Command::ModeSense { query: mode(fields, Form::Ten), allocation: fields.u16(7) }
        }
        opcode::PERSISTENT_RESERVE_IN => {
            let query = match fields.bytes[1] & 0x1f {
                0 => ReservationQuery::Keys,
                1 => ReservationQuery::Reservation,
                2 => ReservationQuery::Capabilities,
                3 => ReservationQuery::FullStatus,
                _ => return Err(Refusal::CdbField(1)),
            };
            Command::PersistentReserveIn { query, allocation: fields.u16(7) }
        }
        _ => return Err(Refusal::Opcode),
    })
}

fn parse_12(fields: &Fields) -> Result<Command, Refusal> {
    Ok(match fields.bytes[0] {
        opcode::REPORT_LUNS => {
            let select = match fields.bytes[2] {
                0 => LunSelect::Ordinary,
                1 => LunSelect::WellKnown,
                2 => LunSelect::All,
                _ => return Err(Refusal::CdbField(2)),
            };
            Command::ReportLuns { select, allocation: fields.u32(6) }
        }
        opcode::MAINTENANCE_IN if fields.bytes[1] & 0x1f == REPORT_OPCODES => {
            let (opcode, action) = (fields.bytes[3], fields.u16(4));
            let query = match fields.bytes[2] & 7 {
                0 => OpcodeQuery::All,
                1 => OpcodeQuery::Opcode(opcode),
                2 => OpcodeQuery::Action(opcode, action),
                3 => OpcodeQuery::Either(opcode, action),
                _ => return Err(Refusal::CdbField(2)),
            };
            let timeouts = fields.has(2, 0x80);
            Command::ReportOpcodes { query, timeouts, allocation: fields.u32(6) }
        }
        opcode::MAINTENANCE_IN => return Err(Refusal::CdbField(1)),
        opcode::READ_12 => fields.read()?,
        opcode::WRITE_12 => fields.write()?,
        _ => return Err(Refusal::Opcode),
    })
}

fn parse_16(fields: &Fields) -> Result<Command, Refusal> {
    Ok(match fields.bytes[0] {
        opcode::READ_16 => fields.read()?,
        opcode::WRITE_16 => fields.write()?,
        opcode::VERIFY_16 => verify(fields)?,
        opcode::SYNCHRONIZE_CACHE_16 => synchronize(fields),
        opcode::WRITE_SAME_16 => {
            // Protection information, ANCHOR, and PBDATA and LBDATA of SBC-2.
            fields.refuse(1, PROTECT | 0x10 | 0x06)?;
            let Range { lba, blocks, .. } = fields.range();
            let (unmap, no_data) = (fields.has(1, 0x08), fields.has(1, 0x01));
            Command::WriteSame { lba, blocks, unmap, no_data }
        }
        opcode::SERVICE_ACTION_IN_16 if fields.bytes[1] & 0x1f == READ_CAPACITY_16 => {
            Command::ReadCapacity16 { allocation: fields.u32(10) }
        }
        opcode::SERVICE_ACTION_IN_16 => return Err(Refusal::CdbField(1)),
        _ => return Err(Refusal::Opcode),
    })
}

fn mode(fields: &Fields, form: Form) -> ModeSense {
    let control = match fields.bytes[2] >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ => PageControl::Saved,
    };
    let (page, subpage) = (fields.bytes[2] & 0x3f, fields.bytes[3]);
    ModeSense { form, no_descriptors: fields.has(1, 0x08), control, page, subpage }
}

fn verify(fields: &Fields) -> Result<Command, Refusal> {
    // BYTCHK: a comparison with data that are sent.
    fields.refuse(1, PROTECT | 0x06)?;
    Ok(Command::Verify(fields.range()))
}

fn synchronize(fields: &Fields) -> Command {
    Command::SynchronizeCache { range: fields.range(), immediate: fields.has(1, 0x02) }
}
