//! The commands that are served: REPORT SUPPORTED OPERATION CODES (SPC-4, 6.35).
//!
//! For each command there is a CDB in which the bits are set that have an effect.
//!
//! ```text
//! all commands                          one command
//! off len field                         off len field
//!   0   4 length of all that follows      1   1 CTDP 0x80, 1: not supported, 3: supported
//!   4   1 operation code                  2   2 length of the CDB
//!   6   2 service action                  4   . the CDB with the bits that have an effect
//!   9   1 CTDP 0x02, SERVACTV 0x01        .  12 times, with CTDP
//!  10   2 length of the CDB
//!  12  12 times, with CTDP
//! ```

use crate::bytes::{Writer, array_at, bit_if};
use crate::cdb::{Cdb, OpcodeQuery, READ_CAPACITY_16, REPORT_OPCODES, len_of, opcode};
use crate::malformed::Malformed;
use crate::refusal::Refusal;

/// A command: the CDB with the bits that have an effect, and its service action.
struct Served {
    usage: [u8; Cdb::LEN_MAX],
    action: Option<u16>,
}

/// DPO, which is ignored, and FUA.
const FUA: u8 = 0x18;
/// UNMAP in WRITE SAME(16).
const WRITE_SAME_UNMAP: u8 = 0x08;
/// Times of a command: as many bytes follow, and none of them is known.
const TIMES: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Descriptors have times.
const CTDP: u8 = 0x80;

/// A command in whose CDB these bits have an effect, from an offset on.
const fn served<const N: usize>(opcode: u8, at: usize, bits: [u8; N]) -> Served {
    let mut usage = [0; Cdb::LEN_MAX];
    usage[0] = opcode;
    let mut index = 0;
    while index < N {
        usage[at + index] = bits[index];
        index += 1;
    }
    Served { usage, action: None }
}

/// A command with first block and number of blocks, and these flags.
const fn ranged(opcode: u8, flags: u8) -> Served {
    let mut usage = match len_of(opcode) {
        Some(10) => served(opcode, 2, [0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff]),
        Some(12) => served(opcode, 2, [0xff; 8]),
        _ => served(opcode, 2, [0xff; 12]),
    };
    usage.usage[1] = flags;
    usage
}

/// A command with a service action, and an allocation length of `N` bytes.
const fn action<const N: usize>(opcode: u8, action: u8, allocation_at: usize) -> Served {
    let mut usage = served(opcode, allocation_at, [0xff; N]);
    usage.usage[1] = action;
    usage.action = Some(action as u16);
    usage
}

const fn report_opcodes() -> Served {
    let mut usage = action::<8>(opcode::MAINTENANCE_IN, REPORT_OPCODES, 2);
    usage.usage[2] = 0x87;
    usage
}

/// All commands, in the order of their operation codes.
const SERVED: [Served; 30] = [
    served(opcode::TEST_UNIT_READY, 1, [0]),
    served(opcode::REQUEST_SENSE, 4, [0xff]),
    served(opcode::READ_6, 1, [0x1f, 0xff, 0xff, 0xff]),
    served(opcode::WRITE_6, 1, [0x1f, 0xff, 0xff, 0xff]),
    served(opcode::INQUIRY, 1, [0x01, 0xff, 0xff, 0xff]),
    served(opcode::RESERVE_6, 1, [0]),
    served(opcode::RELEASE_6, 1, [0]),
    served(opcode::MODE_SENSE_6, 1, [0x08, 0xff, 0xff, 0xff]),
    served(opcode::START_STOP_UNIT, 1, [0, 0, 0, 0x01]),
    served(opcode::READ_CAPACITY_10, 1, [0]),
    ranged(opcode::READ_10, FUA),
    ranged(opcode::WRITE_10, FUA),
    ranged(opcode::VERIFY_10, 0x10),
    ranged(opcode::SYNCHRONIZE_CACHE_10, 0x02),
    served(opcode::UNMAP, 7, [0xff, 0xff]),
    served(opcode::MODE_SENSE_10, 1, [0x08, 0xff, 0xff, 0, 0, 0, 0xff, 0xff]),
    action::<2>(opcode::PERSISTENT_RESERVE_IN, 0, 7),
    action::<2>(opcode::PERSISTENT_RESERVE_IN, 1, 7),
    action::<2>(opcode::PERSISTENT_RESERVE_IN, 2, 7),
    action::<2>(opcode::PERSISTENT_RESERVE_IN, 3, 7),
    ranged(opcode::READ_16, FUA),
    ranged(opcode::WRITE_16, FUA),
    ranged(opcode::VERIFY_16, 0x10),
    ranged(opcode::SYNCHRONIZE_CACHE_16, 0x02),
    ranged(opcode::WRITE_SAME_16, WRITE_SAME_UNMAP | 0x01),
    action::<4>(opcode::SERVICE_ACTION_IN_16, READ_CAPACITY_16, 10),
    served(opcode::REPORT_LUNS, 2, [0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
    report_opcodes(),
    ranged(opcode::READ_12, FUA),
    ranged(opcode::WRITE_12, FUA),
];

impl Served {
    fn opcode(&self) -> u8 {
        self.usage[0]
    }

    fn len(&self) -> usize {
        len_of(self.opcode()).unwrap_or(Cdb::LEN_MAX)
    }
}

/// The commands of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Blocks can be deallocated: there are UNMAP, and WRITE SAME with UNMAP.
    pub unmap: bool,
}

impl Commands {
    fn served(self) -> impl Iterator<Item = &'static Served> + Clone {
        SERVED.iter().filter(move |served| self.unmap || served.opcode() != opcode::UNMAP)
    }

    /// Writes the answer to a REPORT SUPPORTED OPERATION CODES, as much of it as fits; returns how
    /// much.
    ///
    /// # Errors
    /// [`Refusal::CdbField`] for a question with a service action about a command that has none,
    /// and the other way round.
    pub fn emit(
        self,
        query: OpcodeQuery,
        timeouts: bool,
        out: &mut [u8],
    ) -> Result<usize, Refusal> {
        let (opcode, action) = match query {
            OpcodeQuery::All => return Ok(self.emit_all(timeouts, out)),
            OpcodeQuery::Opcode(opcode) => (opcode, None),
            OpcodeQuery::Action(opcode, action) | OpcodeQuery::Either(opcode, action) => {
                (opcode, Some(action))
            }
        };
        let mut found = self.served().filter(|served| served.opcode() == opcode).peekable();
        let has_actions = found.peek().map(|served| served.action.is_some());
        match (query, has_actions) {
            (OpcodeQuery::Opcode(_), Some(true)) | (OpcodeQuery::Action(..), Some(false)) => {
                return Err(Refusal::CdbField(2));
            }
            _ => {}
        }
        let action = if has_actions == Some(true) { action } else { None };
        let found = found.find(|served| served.action == action);
        Ok(self.emit_one(found, timeouts, out))
    }

    fn emit_all(self, timeouts: bool, out: &mut [u8]) -> usize {
        let times: &[u8] = if timeouts { &TIMES } else { &[] };
        let len = self.served().count() * (8 + times.len());
        let mut writer = Writer::new(out);
        writer.u32(len as u32);
        for served in self.served() {
            let flags = u8::from(timeouts) << 1 | u8::from(served.action.is_some());
            writer.u8(served.opcode()).u8(0).u16(served.action.unwrap_or(0));
            writer.u8(0).u8(flags).u16(served.len() as u16).bytes(times);
        }
        writer.kept()
    }

    fn emit_one(self, served: Option<&Served>, timeouts: bool, out: &mut [u8]) -> usize {
        let mut writer = Writer::new(out);
        let Some(served) = served else {
            return writer.u8(0).u8(NOT_SUPPORTED).zeroes(2).kept();
        };
        let mut usage = served.usage;
        if served.opcode() == opcode::WRITE_SAME_16 && !self.unmap {
            usage[1] &= !WRITE_SAME_UNMAP;
        }
        let (len, flags) = (served.len(), bit_if(timeouts, CTDP));
        writer.u8(0).u8(flags | SUPPORTED).u16(len as u16).bytes(&usage[..len]);
        if timeouts {
            writer.bytes(&TIMES);
        }
        writer.kept()
    }
}

/// The command is not supported.
const NOT_SUPPORTED: u8 = 1;
/// The command is supported, as in a standard.
const SUPPORTED: u8 = 3;

/// A target's answer about one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support<'a> {
    /// The target does not know, or not yet.
    Unknown,
    /// It does not support the command.
    No,
    /// It does. In this CDB the bits are set that have an effect.
    Yes(&'a [u8]),
}

impl<'a> Support<'a> {
    /// Reads the answer about one command.
    ///
    /// # Errors
    /// If it has reserved values, or ends before the CDB does.
    pub fn parse(answer: &'a [u8]) -> Result<Self, Malformed> {
        let [_, support, high, low] = array_at(answer, 0).ok_or(Malformed::Short)?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        match support & 7 {
            0 => Ok(Self::Unknown),
            NOT_SUPPORTED => Ok(Self::No),
            // 5: in a way of the vendor's.
            SUPPORTED | 5 => answer.get(4..4 + len).map(Self::Yes).ok_or(Malformed::Short),
            _ => Err(Malformed::Value),
        }
    }
}
