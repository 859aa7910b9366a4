//! Literal bytes, from the standards' tables and from public captures of sg3_utils.

#![allow(dead_code, reason = "each test uses a part")]

use tyche_scsi::cdb::{
    Form, LunSelect, ModeSense, OpcodeQuery, PageControl, Range, ReservationQuery,
};
use tyche_scsi::{ALL_PAGES, CACHING, CONTROL, Command};

use Command::{
    Inquiry, PersistentReserveIn, Read, ReadCapacity10, ReadCapacity16, Release, ReportLuns,
    ReportOpcodes, RequestSense, Reserve, StartStopUnit, SynchronizeCache, TestUnitReady, Unmap,
    Verify, Write, WriteSame,
};
use Form::{Six, Sixteen, Ten, Twelve};

/// Bytes from hexadecimal digits with any spaces.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

const fn mode(form: Form, page: u8) -> ModeSense {
    let control = PageControl::Current;
    ModeSense { form, no_descriptors: true, control, page, subpage: 0 }
}

const fn range(form: Form, lba: u64, blocks: u32) -> Range {
    Range { form, lba, blocks }
}

const fn mode_sense(query: ModeSense, allocation: u16) -> Command {
    Command::ModeSense { query, allocation }
}

/// Block addresses of four and eight bytes.
const SHORT: u64 = 0x1234_5678;
const LONG: u64 = 0x0102_0304_0506_0708;

/// A CDB of each command in each form, as far as they are the only encoding.
pub(crate) fn cdbs() -> Vec<(&'static str, Command)> {
    CDBS.to_vec()
}

const CDBS: &[(&str, Command)] = &[
    ("00 00 00 00 00 00", TestUnitReady),
    ("03 00 00 00 12 00", RequestSense { descriptors: false, allocation: 18 }),
    ("03 01 00 00 fc 00", RequestSense { descriptors: true, allocation: 252 }),
    ("08 1f ff fe 08 00", Read { range: range(Six, 0x1f_fffe, 8), fua: false }),
    ("08 00 00 00 00 00", Read { range: range(Six, 0, 256), fua: false }),
    ("0a 01 02 03 01 00", Write { range: range(Six, 0x1_0203, 1), fua: false }),
    ("12 00 00 00 24 00", Inquiry { page: None, allocation: 36 }),
    ("12 01 83 01 00 00", Inquiry { page: Some(0x83), allocation: 256 }),
    ("12 01 00 00 fc 00", Inquiry { page: Some(0), allocation: 252 }),
    ("16 00 00 00 00 00", Reserve),
    ("17 00 00 00 00 00", Release),
    ("1a 08 08 00 fc 00", mode_sense(mode(Six, CACHING), 252)),
    (
        "1a 00 4a ff c0 00",
        mode_sense(
            ModeSense {
                form: Six,
                no_descriptors: false,
                control: PageControl::Changeable,
                page: CONTROL,
                subpage: 0xff,
            },
            192,
        ),
    ),
    ("1b 00 00 00 01 00", StartStopUnit { immediate: false, start: true }),
    ("1b 01 00 00 00 00", StartStopUnit { immediate: true, start: false }),
    ("25 00 00 00 00 00 00 00 00 00", ReadCapacity10),
    ("28 08 12 34 56 78 00 01 00 00", Read { range: range(Ten, SHORT, 256), fua: true }),
    ("2a 00 12 34 56 78 00 00 08 00", Write { range: range(Ten, SHORT, 8), fua: false }),
    ("2a 08 12 34 56 78 00 ff ff 00", Write { range: range(Ten, SHORT, 0xffff), fua: true }),
    ("2f 00 12 34 56 78 00 00 01 00", Verify(range(Ten, SHORT, 1))),
    (
        "35 00 00 00 00 00 00 00 00 00",
        SynchronizeCache { range: range(Ten, 0, 0), immediate: false },
    ),
    ("42 00 00 00 00 00 00 00 18 00", Unmap { len: 24 }),
    ("5a 08 3f 00 00 00 00 02 00 00", mode_sense(mode(Ten, ALL_PAGES), 512)),
    (
        "5e 00 00 00 00 00 00 00 08 00",
        PersistentReserveIn { query: ReservationQuery::Keys, allocation: 8 },
    ),
    (
        "5e 02 00 00 00 00 00 10 00 00",
        PersistentReserveIn { query: ReservationQuery::Capabilities, allocation: 4096 },
    ),
    (
        "88 00 01 02 03 04 05 06 07 08 00 00 08 00 00 00",
        Read { range: range(Sixteen, LONG, 2048), fua: false },
    ),
    (
        "8a 08 01 02 03 04 05 06 07 08 00 00 00 01 00 00",
        Write { range: range(Sixteen, LONG, 1), fua: true },
    ),
    ("8f 00 01 02 03 04 05 06 07 08 00 01 00 00 00 00", Verify(range(Sixteen, LONG, 0x1_0000))),
    (
        "91 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        SynchronizeCache { range: range(Sixteen, 0, 0), immediate: true },
    ),
    (
        "93 08 01 02 03 04 05 06 07 08 00 7f ff ff 00 00",
        WriteSame { lba: LONG, blocks: 0x7f_ffff, unmap: true, no_data: false },
    ),
    (
        "93 01 00 00 00 00 00 00 00 00 00 00 00 10 00 00",
        WriteSame { lba: 0, blocks: 16, unmap: false, no_data: true },
    ),
    ("9e 10 00 00 00 00 00 00 00 00 00 00 00 20 00 00", ReadCapacity16 { allocation: 32 }),
    (
        "a0 00 00 00 00 00 00 00 10 00 00 00",
        ReportLuns { select: LunSelect::Ordinary, allocation: 4096 },
    ),
    ("a0 00 02 00 00 00 00 00 00 10 00 00", ReportLuns { select: LunSelect::All, allocation: 16 }),
    (
        "a3 0c 01 93 00 00 00 00 02 00 00 00",
        ReportOpcodes { query: OpcodeQuery::Opcode(0x93), timeouts: false, allocation: 512 },
    ),
    (
        "a3 0c 80 00 00 00 00 00 20 00 00 00",
        ReportOpcodes { query: OpcodeQuery::All, timeouts: true, allocation: 8192 },
    ),
    (
        "a3 0c 03 9e 00 10 00 00 00 40 00 00",
        ReportOpcodes { query: OpcodeQuery::Either(0x9e, 0x10), timeouts: false, allocation: 64 },
    ),
    (
        "a8 00 12 34 56 78 00 01 00 00 00 00",
        Read { range: range(Twelve, SHORT, 0x1_0000), fua: false },
    ),
    ("aa 08 12 34 56 78 00 00 00 08 00 00", Write { range: range(Twelve, SHORT, 8), fua: true }),
];

/// VPD B0 of sg3_utils' inhex/vpd_bl.hex, which has two more bytes than SBC-3.
pub(crate) const VPD_LIMITS: &str = "
    00 b0 00 3e 00 00 00 08  00 00 ff ff 00 00 00 00
    00 00 00 00 00 06 00 00  00 00 02 00 00 00 00 08
    00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00
    00 14";

/// REPORT LUNS of sg3_utils' inhex/luns_wlun.hex.
pub(crate) const LUNS: &str = "
    00 00 00 40 00 00 00 00
    00 01 00 00 00 00 00 00  03 08 02 04 01 02 00 01
    c1 01 00 00 00 00 00 00  52 34 00 00 00 00 00 00
    81 44 00 00 00 00 00 00  03 09 d2 77 88 99 00 00
    e2 77 88 99 aa bb 00 00  ff ff ff ff ff ff ff ff";

/// The parameter list of sg3_utils' examples/sg_unmap_example.txt.
pub(crate) const UNMAP: &str = "
    00 56 00 50 00 00 00 00  00 00 00 00 12 34 56 77
    00 00 00 01 00 00 00 00  00 00 00 00 12 34 56 78
    00 00 00 02 00 00 00 00  00 00 00 00 12 34 00 00
    00 00 0d 05 00 00 00 00  00 00 00 5a 5a 5a 5a 5a
    00 00 00 00 00 00 00 00  00 00 00 00 00 a5 a5 a5
    00 00 00 07 00 00 00 00";

/// Sense data of the same example: the operation code is invalid.
pub(crate) const SENSE: &str = "70 00 05 00 00 00 00 0a 00 00 00 00 20 00 00 00 00 00";

/// Names of a logical unit, of its port, and once more of the logical unit.
pub(crate) const VPD_NAMES: &str = "
    00 83 00 2c
    02 01 00 0c 4c 49 4f 2d 4f 52 47 20 61 62 63 64
    61 94 00 04 00 00 00 01
    01 03 00 10 60 01 40 51 23 45 67 89 ab cd ef 01 23 45 67 89";

/// MODE SENSE(10): a block descriptor, then the caching page with WCE, then the control page.
pub(crate) const MODE_10: &str = "
    00 2e 00 10 00 00 00 08  00 00 10 00 00 00 02 00
    88 12 04 00 ff ff 00 00  ff ff ff ff 80 14 00 00 00 00 00 00
    8a 0a 02 10 00 00 00 00  ff ff 00 1e";

/// All answers and lists above, and those of a disk of ours.
pub(crate) fn all() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = [VPD_LIMITS, LUNS, UNMAP, SENSE, VPD_NAMES, MODE_10].map(hex).into();
    all.extend(ANSWERS.map(|(_, answer)| hex(answer)));
    all.extend(cdbs().iter().map(|(cdb, _)| hex(cdb)));
    all
}

/// The answers of the device server for a disk of 1 MiB with blocks of 512 bytes, a cache and
/// discard, on disks that turn; by CDB.
pub(crate) const ANSWERS: [(&str, &str); 21] = [
    (
        "12 00 00 00 ff 00",
        "00 00 06 12 3d 00 00 02 54 59 43 48 45 20 20 20
         4e 45 54 57 4f 52 4b 20 44 49 53 4b 20 20 20 20 31 20 20 20
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
         00 a0 0a 40 04 60 04 c0",
    ),
    ("12 00 00 00 05 00", "00 00 06 12 3d"),
    ("12 01 00 00 ff 00", "00 00 00 07 00 80 83 b0 b1 b2 c0"),
    (
        "12 01 80 00 ff 00",
        "00 80 00 20 30 30 31 31 32 32 33 33 34 34 35 35 36 36 37 37
         38 38 39 39 61 61 62 62 63 63 64 64 65 65 66 66",
    ),
    (
        "12 01 83 00 ff 00",
        "00 83 00 50 02 01 00 2c 54 59 43 48 45 20 20 20
         30 30 31 31 32 32 33 33 2d 34 34 35 35 2d 36 36 37 37 2d 38 38 39 39 2d
         61 61 62 62 63 63 64 64 65 65 66 66
         01 03 00 08 38 99 aa bb cc dd ee ff
         01 93 00 08 20 00 02 00 5e 10 00 01 01 94 00 04 00 00 00 02",
    ),
    (
        "12 01 b0 00 ff 00",
        "00 b0 00 3c 01 00 00 08 00 00 08 00 00 00 08 00 00 00 00 00
         00 20 00 00 00 00 00 20 00 00 00 08 00 00 00 00 00 00 00 00 00 20 00 00
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    ),
    ("12 01 b1 00 08 00", "00 b1 00 3c 1c 20 00 00"),
    ("12 01 b2 00 ff 00", "00 b2 00 04 00 c0 02 00"),
    ("12 01 c0 00 ff 00", "00 c0 00 10 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01"),
    ("25 00 00 00 00 00 00 00 00 00", "00 00 07 ff 00 00 02 00"),
    (
        "9e 10 00 00 00 00 00 00 00 00 00 00 00 20 00 00",
        "00 00 00 00 00 00 07 ff 00 00 02 00 00 00 80 00
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    ),
    ("9e 10 00 00 00 00 00 00 00 00 00 00 00 0c 00 00", "00 00 00 00 00 00 07 ff 00 00 02 00"),
    (
        "1a 08 08 00 ff 00",
        "17 00 10 00 08 12 04 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    ),
    (
        "5a 00 0a 00 00 00 00 00 ff 00",
        "00 12 00 10 00 00 00 00 0a 0a 02 10 00 40 00 00 00 00 00 00",
    ),
    // All pages, and the bits that can be changed.
    (
        "1a 00 7f 00 ff 00",
        "23 00 10 00 08 12 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
         0a 0a 00 00 00 00 00 00 00 00 00 00",
    ),
    (
        "a0 00 00 00 00 00 00 00 10 00 00 00",
        "00 00 00 10 00 00 00 00
         00 00 00 00 00 00 00 00 00 07 00 00 00 00 00 00",
    ),
    ("a0 00 01 00 00 00 00 00 10 00 00 00", "00 00 00 00 00 00 00 00"),
    (
        "a3 0c 01 93 00 00 00 00 01 00 00 00",
        "00 03 00 10 93 09 ff ff ff ff ff ff ff ff ff ff ff ff 00 00",
    ),
    ("a3 0c 01 41 00 00 00 00 01 00 00 00", "00 01 00 00"),
    // With times.
    (
        "a3 0c 82 9e 00 10 00 00 01 00 00 00",
        "00 83 00 10 9e 10 00 00 00 00 00 00 00 00 ff ff ff ff 00 00
         00 0a 00 00 00 00 00 00 00 00 00 00",
    ),
    ("5e 02 00 00 00 00 00 10 00 00", "00 08 00 00 00 00 00 00"),
];
