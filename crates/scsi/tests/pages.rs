//! Pages, lists and sense data: literal bytes, and every cut and flipped bit of them.

use crate::literals::{LUNS, MODE_10, SENSE, UNMAP, VPD_LIMITS, VPD_NAMES, all, hex};
use tyche_scsi::cdb::Form;
use tyche_scsi::initiator::classify;
use tyche_scsi::vpd::{
    Association, Characteristics, CodeSet, DesignatorKind, Designators, Identity, Limits, Pages,
    Provisioning, Serial,
};
use tyche_scsi::{
    Capacity, Code, Command, Field, Inquiry, Label, Lun, LunList, Malformed, Mode, Refusal, Sense,
    SenseFault, SenseKey, Support, UnmapLimits, UnmapRanges, Uuid, emit_unmap,
};

const UNMAP_LIMITS: UnmapLimits =
    UnmapLimits { disk_blocks: 1 << 40, descriptors_max: 8, blocks_max: 1 << 20 };

/// Gives bytes to all that read some.
fn read_all(bytes: &[u8]) {
    let _ = Command::parse(bytes);
    let _ = Sense::parse(bytes);
    let _ = Inquiry::parse(bytes);
    let _ = Pages::parse(bytes);
    let _ = Serial::parse(bytes);
    let _ = Limits::parse(bytes);
    let _ = Characteristics::parse(bytes);
    let _ = Provisioning::parse(bytes);
    let _ = Capacity::parse_10(bytes).map(|capacity| capacity.bytes());
    let _ = Capacity::parse_16(bytes).map(|capacity| capacity.bytes());
    let _ = Support::parse(bytes);
    for form in [Form::Six, Form::Ten] {
        let _ = Mode::parse(form, bytes);
    }
    if let Ok(names) = Designators::parse(bytes) {
        let _ = Identity::best(names).map(|identity| format!("{identity:?}"));
    }
    if let Ok(luns) = LunList::parse(bytes) {
        assert!(luns.iter().count() <= luns.total());
        luns.iter().for_each(|lun| drop(lun.to_string()));
    }
    if let Ok(ranges) = UnmapRanges::parse(bytes, UNMAP_LIMITS) {
        let blocks: u64 = ranges.clone().map(|(_, blocks)| u64::from(blocks)).sum();
        assert!(ranges.count() <= 8 && blocks <= UNMAP_LIMITS.blocks_max);
    }
    let _ = classify(2, bytes, None);
}

#[test]
fn cuts_and_flipped_bits_of_every_literal_are_harmless() {
    for mut bytes in all() {
        for len in 0..=bytes.len() {
            read_all(&bytes[..len]);
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            read_all(&bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for at in 0..bytes.len() {
            for value in 0..=0xff {
                let before = std::mem::replace(&mut bytes[at], value);
                read_all(&bytes);
                bytes[at] = before;
            }
        }
    }
}

#[test]
fn block_limits_of_others_are_read() {
    let limits = Limits {
        no_zero_write_same: false,
        granularity: 8,
        transfer_max: 0xffff,
        transfer_optimal: 0,
        unmap_blocks_max: 0x6_0000,
        unmap_descriptors_max: 0x200,
        unmap_granularity: 8,
        unmap_alignment: None,
        write_same_max: 0,
    };
    let page = hex(VPD_LIMITS);
    assert_eq!(Limits::parse(&page), Ok(limits));
    // SBC-2 has 16 bytes.
    let short = [&hex("00 b0 00 0c")[..], &page[4..16]].concat();
    let of_sbc_2 =
        Limits { unmap_blocks_max: 0, unmap_descriptors_max: 0, unmap_granularity: 0, ..limits };
    assert_eq!(Limits::parse(&short), Ok(of_sbc_2));
    assert_eq!(Limits::parse(&short[..15]), Err(Malformed::Short));
    assert_eq!(Serial::parse(&page), Err(Malformed::Page(0xb0)));
    let aligned = Limits { unmap_alignment: Some(7), ..limits };
    let mut out = [0; 64];
    assert_eq!(aligned.emit(&mut out), 64);
    assert_eq!((&out[32..36], Limits::parse(&out)), (&hex("80 00 00 07")[..], Ok(aligned)));
}

#[test]
fn lists_of_luns_have_any_form() {
    let list = hex(LUNS);
    let luns = LunList::parse(&list).unwrap();
    let numbers: Vec<_> = luns.iter().map(Lun::number).collect();
    assert_eq!(numbers, [Some(1), None, None, Some(0x1234), None, None, None, None]);
    assert_eq!(luns.iter().nth(2), Some(Lun([0xc1, 1, 0, 0, 0, 0, 0, 0])));
    // Cut at an allocation length within a LUN.
    let cut = LunList::parse(&list[..20]).unwrap();
    assert_eq!((cut.iter().count(), cut.total()), (1, 8));
    assert_eq!(LunList::parse(&hex("00 00 00 09 00 00 00 00")).err(), Some(Malformed::Length));
    assert_eq!(LunList::parse(&list[..3]).err(), Some(Malformed::Short));
}

#[test]
fn the_list_of_an_unmap_is_taken_whole_or_not() {
    let list = hex(UNMAP);
    let ranges = [
        (0x1234_5677, 1),
        (0x1234_5678, 2),
        (0x1234_0000, 3333),
        (0x5a_5a5a_5a5a, 0),
        (0xa5_a5a5, 7),
    ];
    assert!(UnmapRanges::parse(&list, UNMAP_LIMITS).unwrap().eq(ranges));
    let parse = |list: &[u8], limits| UnmapRanges::parse(list, limits).map(Iterator::count);
    assert_eq!(parse(&[], UNMAP_LIMITS), Ok(0));
    for len in 1..list.len() {
        assert_eq!(parse(&list[..len], UNMAP_LIMITS), Err(Refusal::ListLength), "{len}");
    }
    // A descriptor that is not whole does not count.
    let mut odd = list.clone();
    odd[3] -= 1;
    assert_eq!(parse(&odd, UNMAP_LIMITS), Ok(4));
    let few = UnmapLimits { descriptors_max: 4, ..UNMAP_LIMITS };
    assert_eq!(parse(&list, few), Err(Refusal::ListField(2)));
    let small = UnmapLimits { disk_blocks: 0x5a_5a5a_5a59, ..UNMAP_LIMITS };
    assert_eq!(parse(&list, small), Err(Refusal::OutOfRange));
    let exact = UnmapLimits { disk_blocks: 0x5a_5a5a_5a5a, ..UNMAP_LIMITS };
    assert_eq!(parse(&list, exact), Ok(5));
    let short = UnmapLimits { blocks_max: 3335, ..UNMAP_LIMITS };
    assert_eq!(parse(&list, short), Err(Refusal::ListField(8 + 2 * 16 + 8)));
    let past = emit_unmap(u64::MAX, 1);
    assert_eq!(parse(&past, UNMAP_LIMITS), Err(Refusal::OutOfRange));
    assert_eq!(
        emit_unmap(0x0102_0304_0506_0708, 0x1000)[..],
        hex("00 16 00 10 00 00 00 00 01 02 03 04 05 06 07 08 00 00 10 00 00 00 00 00")
    );
}

#[test]
fn sense_data_have_two_formats() {
    let invalid = Sense::new(SenseKey::IllegalRequest, Code::INVALID_OPCODE);
    assert_eq!(Sense::parse(&hex(SENSE)), Ok(invalid));
    assert_eq!(invalid.emit()[..], hex(SENSE));
    // Invalid field in the CDB, byte 2, bit 5.
    let pointing = Sense {
        field: Some(Field { in_cdb: true, byte: 2 }),
        ..Sense::new(SenseKey::IllegalRequest, Code::INVALID_FIELD_IN_CDB)
    };
    let fixed = hex("70 00 05 00 00 00 00 0a 00 00 00 00 24 00 00 cd 00 02");
    assert_eq!(Sense::parse(&fixed), Ok(pointing));
    assert_eq!(pointing.emit()[12..], hex("24 00 00 c0 00 02"));
    // Information, then the same pointer.
    let descriptors =
        hex("72 05 24 00 00 00 00 14 00 0a 80 00 00 00 00 00 00 00 00 01 02 06 00 00 cd 00 02 00");
    assert_eq!(Sense::parse(&descriptors), Ok(pointing));
    let deferred = Sense { deferred: true, ..Sense::new(SenseKey::MediumError, Code::WRITE_ERROR) };
    assert_eq!(Sense::parse(&hex("73 03 0c 00")), Ok(deferred));
    assert_eq!(Sense::parse(&deferred.emit()), Ok(deferred));
    // Ours has the generation behind it.
    let generation = Some(Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff));
    let key = Sense::new(SenseKey::HardwareError, Code::WRITE_ERROR);
    let lost = Sense { generation, ..key };
    let bytes = hex("70 00 04 00 00 00 00 1a 00 00 00 00 0c 00 00 00 00 00
        00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff");
    assert_eq!((Sense::parse(&bytes), &*lost.emit()), (Ok(lost), &bytes[..]));
    assert_eq!(Sense::parse(&bytes[..33]), Ok(key), "cut");
    // Cut before the code.
    let cut = Sense::new(SenseKey::UnitAttention, Code::NONE);
    assert_eq!(Sense::parse(&hex("f0 00 06")), Ok(cut));
    // The additional length ends before the code.
    assert_eq!(Sense::parse(&hex("70 00 06 00 00 00 00 00 00 00 00 00 29 00")), Ok(cut));
    assert_eq!(Sense::parse(&[]), Err(SenseFault::Short));
    assert_eq!(Sense::parse(&hex("70 00")), Err(SenseFault::Short));
    assert_eq!(Sense::parse(&hex("7f 00 05")), Err(SenseFault::Format(0x7f)));
}

#[test]
fn every_refusal_has_its_sense_data() {
    for (refusal, sense) in [
        (Refusal::Opcode, "5 20 00"),
        (Refusal::CdbLength, "5 24 00"),
        (Refusal::CdbField(7), "5 24 00"),
        (Refusal::LogicalUnit, "5 25 00"),
        (Refusal::ListLength, "5 1a 00"),
        (Refusal::ListField(9), "5 26 00"),
        (Refusal::OutOfRange, "5 21 00"),
        (Refusal::Saving, "5 39 00"),
        (Refusal::WriteProtected, "7 27 00"),
        (Refusal::NoMedium, "2 3a 00"),
    ] {
        let bytes = refusal.sense().emit();
        let shown = format!("{:x} {:02x} {:02x}", bytes[2], bytes[12], bytes[13]);
        assert_eq!(shown, sense, "{refusal:?}");
        assert_eq!(Sense::parse(&bytes), Ok(refusal.sense()));
    }
    assert_eq!(Refusal::ListField(9).sense().emit()[15..], hex("80 00 09"));
}

#[test]
fn the_best_name_is_found_among_others() {
    let page = hex(VPD_NAMES);
    let names: Vec<_> = Designators::parse(&page).unwrap().collect();
    assert_eq!(names.len(), 3);
    assert_eq!((names[0].kind, names[0].code_set), (DesignatorKind::T10Vendor, CodeSet::Ascii));
    assert_eq!(names[1].association, Association::TargetPort);
    let best = Identity::best(Designators::parse(&page).unwrap()).unwrap();
    assert_eq!(best.as_bytes(), hex("6001405123456789abcdef0123456789"));
    // Cut within the last name.
    let cut = Identity::best(Designators::parse(&page[..40]).unwrap()).unwrap();
    assert_eq!(cut.as_bytes(), b"LIO-ORG abcd");
    assert_eq!(Designators::parse(&page[..4]).unwrap().count(), 0);
}

#[test]
fn modes_of_others_may_have_block_descriptors() {
    let answer = hex(MODE_10);
    let mode = Mode { read_only: false, fua: true, write_cache: Some(true) };
    assert_eq!(Mode::parse(Form::Ten, &answer), Ok(mode));
    // A subpage in front of the caching page, read-only.
    let subpage = hex("0d 00 80 00 4a 01 00 02 00 00 08 03 00 00");
    let mode = Mode { read_only: true, fua: false, write_cache: Some(false) };
    assert_eq!(Mode::parse(Form::Six, &subpage), Ok(mode));
    let none = Mode { read_only: true, fua: false, write_cache: None };
    assert_eq!(Mode::parse(Form::Six, &hex("03 00 80 00")), Ok(none));
    assert_eq!(Mode::parse(Form::Six, &hex("03 00 80 08")), Err(Malformed::Length));
    assert_eq!(Mode::parse(Form::Ten, &hex("00 06 00 80")), Err(Malformed::Short));
}

#[test]
fn inquiry_data_of_others_may_be_short() {
    let disk = Inquiry::disk("VENDOR", "a product", "0.1");
    let mut out = [0xa5; 96];
    assert_eq!(disk.emit(&mut out), 66);
    assert_eq!(Inquiry::parse(&out[..66]), Ok(disk));
    let cut = Inquiry { product: Label::from_field(b"a pr"), revision: Label::EMPTY, ..disk };
    assert_eq!(Inquiry::parse(&out[..20]), Ok(cut));
    assert_eq!(Inquiry::parse(&out[..3]), Err(Malformed::Short));
    out[3] = 0x11;
    assert_eq!(Inquiry::parse(&out), Err(Malformed::Value));
    assert!(disk.is_disk() && !disk.absent().is_disk());
}
