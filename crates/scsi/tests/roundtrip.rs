//! Any value survives emission and parsing, and any bytes are read without a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tyche_scsi::cdb::{
    Form, LunSelect, ModeSense, OpcodeQuery, PageControl, Range, ReservationQuery,
};
use tyche_scsi::vpd::{
    Characteristics, Designators, Identity, Limits, Pages, Provisioning, Serial, TargetPort,
};
use tyche_scsi::{
    Capacity, Code, Command, Commands, Field, Inquiry, Label, Lun, LunList, Mode, Sense, SenseKey,
    Support, UnmapLimits, UnmapRanges, Uuid, emit_luns, emit_unmap,
};

fn range() -> impl Strategy<Value = Range> {
    prop_oneof![
        (0..1_u64 << 21, 1..=256_u32).prop_map(|(lba, blocks)| (Form::Six, lba, blocks)),
        (0..1_u64 << 32, 0..=0xffff_u32).prop_map(|(lba, blocks)| (Form::Ten, lba, blocks)),
        (0..1_u64 << 32, any::<u32>()).prop_map(|(lba, blocks)| (Form::Twelve, lba, blocks)),
        (any::<u64>(), any::<u32>()).prop_map(|(lba, blocks)| (Form::Sixteen, lba, blocks)),
    ]
    .prop_map(|(form, lba, blocks)| Range { form, lba, blocks })
}

/// Of commands without the forms of 6 and 12 bytes.
fn ten_or_sixteen() -> impl Strategy<Value = Range> {
    range().prop_filter("form", |range| matches!(range.form, Form::Ten | Form::Sixteen))
}

fn mode_sense() -> impl Strategy<Value = Command> {
    let controls =
        [PageControl::Current, PageControl::Changeable, PageControl::Default, PageControl::Saved];
    let form = any::<(bool, u16)>();
    (form, any::<bool>(), select(controls.to_vec()), 0..=0x3f_u8, any::<u8>()).prop_map(
        |((is_long, allocation), no_descriptors, control, page, subpage)| {
            let form = if is_long { Form::Ten } else { Form::Six };
            let query = ModeSense { form, no_descriptors, control, page, subpage };
            let allocation = if is_long { allocation } else { allocation & 0xff };
            Command::ModeSense { query, allocation }
        },
    )
}

fn command() -> impl Strategy<Value = Command> {
    let selects = [LunSelect::Ordinary, LunSelect::WellKnown, LunSelect::All];
    let reservations = [
        ReservationQuery::Keys,
        ReservationQuery::Reservation,
        ReservationQuery::Capabilities,
        ReservationQuery::FullStatus,
    ];
    let query = prop_oneof![
        Just(OpcodeQuery::All),
        any::<u8>().prop_map(OpcodeQuery::Opcode),
        any::<(u8, u16)>().prop_map(|(opcode, action)| OpcodeQuery::Action(opcode, action)),
        any::<(u8, u16)>().prop_map(|(opcode, action)| OpcodeQuery::Either(opcode, action)),
    ];
    let few = select(vec![
        Command::TestUnitReady,
        Command::Reserve,
        Command::Release,
        Command::ReadCapacity10,
    ]);
    // A transfer of 6 bytes has no FUA.
    let transfer = (range(), any::<bool>()).prop_map(|(it, fua)| (it, fua && it.form != Form::Six));
    prop_oneof![
        few,
        mode_sense(),
        any::<(bool, u8)>().prop_map(|(descriptors, allocation)| Command::RequestSense {
            descriptors,
            allocation
        }),
        any::<(Option<u8>, u16)>()
            .prop_map(|(page, allocation)| Command::Inquiry { page, allocation }),
        any::<(bool, bool)>()
            .prop_map(|(immediate, start)| Command::StartStopUnit { immediate, start }),
        any::<u32>().prop_map(|allocation| Command::ReadCapacity16 { allocation }),
        (transfer, any::<bool>()).prop_map(|((range, fua), is_read)| if is_read {
            Command::Read { range, fua }
        } else {
            Command::Write { range, fua }
        }),
        ten_or_sixteen().prop_map(Command::Verify),
        (ten_or_sixteen(), any::<bool>())
            .prop_map(|(range, immediate)| Command::SynchronizeCache { range, immediate }),
        any::<(u64, u32, bool, bool)>().prop_map(|(lba, blocks, unmap, no_data)| {
            Command::WriteSame { lba, blocks, unmap, no_data }
        }),
        any::<u16>().prop_map(|len| Command::Unmap { len }),
        (select(selects.to_vec()), any::<u32>())
            .prop_map(|(select, allocation)| Command::ReportLuns { select, allocation }),
        (query, any::<bool>(), any::<u32>()).prop_map(|(query, timeouts, allocation)| {
            Command::ReportOpcodes { query, timeouts, allocation }
        }),
        (select(reservations.to_vec()), any::<u16>())
            .prop_map(|(query, allocation)| Command::PersistentReserveIn { query, allocation }),
    ]
}

fn label<const N: usize>() -> impl Strategy<Value = Label<N>> {
    vec(any::<u8>(), 0..=N + 4).prop_map(|bytes| Label::from_field(&bytes))
}

fn sense() -> impl Strategy<Value = Sense> {
    let field = any::<Option<(bool, u16)>>();
    (select(SenseKey::ALL.to_vec()), any::<(u8, u8)>(), field, any::<(bool, Option<u128>)>())
        .prop_map(|(key, (code, qualifier), field, (deferred, generation))| {
            let generation = generation.map(Uuid::from_u128);
            let field = field.filter(|_| key == SenseKey::IllegalRequest);
            let field = field.map(|(in_cdb, byte)| Field { in_cdb, byte });
            Sense { field, deferred, generation, ..Sense::new(key, Code(code, qualifier)) }
        })
}

fn limits() -> impl Strategy<Value = Limits> {
    let alignment = proptest::option::of(0..1_u32 << 31);
    (any::<(bool, u16, [u32; 5], u64)>(), alignment).prop_map(
        |((no_zero_write_same, granularity, counts, write_same_max), unmap_alignment)| {
            let [
                transfer_max,
                transfer_optimal,
                unmap_blocks_max,
                unmap_descriptors_max,
                unmap_granularity,
            ] = counts;
            Limits {
                no_zero_write_same,
                granularity,
                transfer_max,
                transfer_optimal,
                unmap_blocks_max,
                unmap_descriptors_max,
                unmap_granularity,
                unmap_alignment,
                write_same_max,
            }
        },
    )
}

proptest! {
    #[test]
    fn commands(command in command()) {
        let cdb = command.emit().unwrap();
        prop_assert_eq!(Command::parse(cdb.as_bytes()), Ok(command));
        prop_assert_eq!(Command::parse(cdb.padded()), Ok(command));
    }

    #[test]
    fn cdbs_of_any_bytes(bytes in vec(any::<u8>(), 0..20)) {
        if let Ok(command) = Command::parse(&bytes) {
            let cdb = command.emit().unwrap();
            prop_assert_eq!(Command::parse(cdb.as_bytes()), Ok(command));
        }
    }

    #[test]
    fn sense_data(sense in sense(), len in 0..=18_usize) {
        let bytes = sense.emit();
        prop_assert_eq!(Sense::parse(&bytes), Ok(sense));
        if len >= 3 {
            let cut = Sense::parse(&bytes[..len]).unwrap();
            prop_assert_eq!((cut.key, cut.deferred), (sense.key, sense.deferred));
        }
    }

    #[test]
    fn inquiry_data(
        kind in (0..8_u8, 0..32_u8, any::<u8>()),
        (vendor, product, revision) in (label(), label(), label()),
    ) {
        let (qualifier, device_type, version) = kind;
        let inquiry = Inquiry { qualifier, device_type, version, vendor, product, revision };
        let mut out = [0xa5; 66];
        prop_assert_eq!(inquiry.emit(&mut out), 66);
        prop_assert_eq!(Inquiry::parse(&out), Ok(inquiry));
    }

    #[test]
    fn pages(numbers in vec(any::<u8>(), 0..20)) {
        let pages = numbers.iter().fold(Pages::default(), |pages, page| pages.with(*page));
        let mut out = [0xa5; 260];
        let len = pages.emit(&mut out);
        prop_assert!(out[4..len].is_sorted());
        prop_assert_eq!(Pages::parse(&out[..len]), Ok(pages));
        prop_assert!(numbers.iter().all(|page| pages.has(*page)));
    }

    #[test]
    fn serial_numbers(serial in label().prop_map(Serial)) {
        let mut out = [0xa5; 80];
        let len = serial.emit(&mut out);
        prop_assert_eq!(Serial::parse(&out[..len]), Ok(serial));
    }

    #[test]
    fn block_limits(limits in limits()) {
        let mut out = [0xa5; 64];
        prop_assert_eq!(limits.emit(&mut out), 64);
        prop_assert_eq!(Limits::parse(&out), Ok(limits));
    }

    #[test]
    fn short_pages(flags in any::<[bool; 4]>(), rotational in any::<Option<bool>>()) {
        let [unmap, write_same, reads_zeroes, thin] = flags;
        let provisioning = Provisioning { unmap, write_same, reads_zeroes, thin };
        let characteristics = Characteristics { rotational };
        let mut out = [0xa5; 64];
        prop_assert_eq!(provisioning.emit(&mut out), 8);
        prop_assert_eq!(Provisioning::parse(&out[..8]), Ok(provisioning));
        prop_assert_eq!(characteristics.emit(&mut out), 64);
        prop_assert_eq!(Characteristics::parse(&out), Ok(characteristics));
    }

    #[test]
    fn names(uuid in any::<u128>().prop_map(Uuid::from_u128), room in 0..=84_usize) {
        let mut out = [0xa5; 84];
        let port = TargetPort { name: 0x2000_0200_5e10_0001, number: 2 };
        prop_assert_eq!(Identity::emit(uuid, port, &mut out), 84);
        let identity = Identity::best(Designators::parse(&out).unwrap());
        prop_assert_eq!(identity, Some(Identity::Uuid(uuid)));
        // Cut anywhere it has our name, or none.
        let mut cut = [0xa5; 84];
        prop_assert_eq!(Identity::emit(uuid, port, &mut cut[..room]), room);
        prop_assert_eq!(&cut[..room], &out[..room]);
        if let Ok(names) = Designators::parse(&cut[..room]) {
            let identity = Identity::best(names);
            prop_assert!(identity.is_none() || identity == Some(Identity::Uuid(uuid)));
        }
    }

    #[test]
    fn capacities(last in any::<u64>(), block_len in any::<u32>(), flags in any::<[bool; 2]>()) {
        let [provisioned, reads_zeroes] = flags;
        let capacity = Capacity { last, block_len, provisioned, reads_zeroes };
        let mut out = [0xa5; 32];
        prop_assert_eq!(capacity.emit_16(&mut out), 32);
        prop_assert_eq!(Capacity::parse_16(&out), Ok(capacity));
        let bytes = (u128::from(last) + 1) * u128::from(block_len);
        prop_assert_eq!(capacity.bytes(), u64::try_from(bytes).ok());
        prop_assert_eq!(capacity.emit_10(&mut out), 8);
        let short = Capacity { provisioned: false, reads_zeroes: false, ..capacity };
        let short = Capacity { last: last.min(u32::MAX.into()), ..short };
        prop_assert_eq!(Capacity::parse_10(&out[..8]), Ok(short));
    }

    #[test]
    fn lists_of_luns(luns in vec(any::<[u8; 8]>().prop_map(Lun), 0..40), room in 0..400_usize) {
        let mut out = vec![0xa5; room];
        let len = emit_luns(luns.iter().copied(), &mut out);
        prop_assert_eq!(len, room.min(8 + 8 * luns.len()));
        if let Ok(list) = LunList::parse(&out[..len]) {
            prop_assert_eq!(list.total(), luns.len());
            let fitting = len.saturating_sub(8) / 8;
            prop_assert!(list.iter().eq(luns.iter().copied().take(fitting)));
        } else {
            prop_assert!(len < 4);
        }
    }

    #[test]
    fn unmap_lists(lba in any::<u64>(), blocks in any::<u32>()) {
        let limits =
            UnmapLimits { disk_blocks: u64::MAX, descriptors_max: 1, blocks_max: u64::MAX };
        let list = emit_unmap(lba, blocks);
        let ranges = UnmapRanges::parse(&list, limits).map(|mut ranges| ranges.next());
        let fits = lba.checked_add(blocks.into()).is_some();
        prop_assert_eq!(ranges.ok(), fits.then_some(Some((lba, blocks))));
    }

    #[test]
    fn modes(flags in any::<[bool; 3]>(), command in mode_sense(), room in 0..64_usize) {
        let [read_only, fua, cache] = flags;
        let mode = Mode { read_only, fua, write_cache: Some(cache) };
        let Command::ModeSense { query, .. } = command else { unreachable!() };
        let mut out = [0xa5; 64];
        if let Ok(len) = mode.emit(&query, &mut out) {
            let read = Mode::parse(query.form, &out[..len]).unwrap();
            prop_assert_eq!((read.read_only, read.fua), (read_only, fua));
            let has_page = query.page != 0x0a;
            let is_mask = query.control == PageControl::Changeable;
            prop_assert_eq!(read.write_cache, has_page.then_some(cache && !is_mask));
            // Cut anywhere it says the same, or nothing about the cache.
            if let Ok(cut) = Mode::parse(query.form, &out[..room.min(len)]) {
                prop_assert_eq!((cut.read_only, cut.fua), (read_only, fua));
                prop_assert!(cut.write_cache.is_none() || cut.write_cache == read.write_cache);
            }
        }
    }

    #[test]
    fn operation_codes(opcode in any::<u8>(), action in 0..0x20_u16, unmap in any::<bool>()) {
        let mut out = [0xa5; 64];
        let query = OpcodeQuery::Either(opcode, action);
        let len = Commands { unmap }.emit(query, false, &mut out).unwrap();
        let mut cdb = [0; 16];
        [cdb[0], cdb[1]] = [opcode, (action & 0x1f) as u8];
        let parsed = Command::parse(&cdb);
        match Support::parse(&out[..len]).unwrap() {
            Support::Yes(usage) => {
                prop_assert_eq!(usage[0], opcode);
                prop_assert_ne!(parsed, Err(tyche_scsi::Refusal::Opcode));
            }
            Support::No => prop_assert!(parsed.is_err() || opcode == 0x42 && !unmap),
            Support::Unknown => prop_assert!(false),
        }
    }
}
