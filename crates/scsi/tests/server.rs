//! The device server: literal answers, attentions, the right to write, and refusals.

use crate::literals;
use crate::literals::{ANSWERS, hex};
use crate::target::{CONFLICT, GEOMETRY, GOOD, PORT, Target, code, unit};
use tyche_geometry::Geometry;
use tyche_scsi::cdb::{Form, Range};
use tyche_scsi::vpd::TargetPort;
use tyche_scsi::{
    ANSWER_LEN_MAX, Code, Command, Direction, Failure, Lun, LunSet, NoRoom, Operation, Refusal,
    Reply, Sense, SenseKey, Server, Status, Step, TRANSFER_LEN_MAX, Task, UNMAP_LEN_MAX, Unit,
    Uuid, WRITE_ZEROES_LEN_MAX, emit_unmap,
};

fn range(lba: u64, blocks: u32) -> Range {
    Range { form: Form::Sixteen, lba, blocks }
}

fn read(lba: u64, blocks: u32) -> Command {
    Command::Read { range: range(lba, blocks), fua: false }
}

fn write(lba: u64, blocks: u32) -> Command {
    Command::Write { range: range(lba, blocks), fua: false }
}

fn task(operation: Operation, offset: u64, len: u32) -> Step {
    Step::Perform(Task { unit: 0, operation, offset, len })
}

fn stable(offset: u64, len: u32, is_sent: bool) -> Step {
    let task = Task { unit: 0, operation: Operation::Read, offset, len };
    Step::PerformStable { task, is_sent }
}

#[test]
fn questions_have_literal_answers_cut_at_the_allocation_length() {
    let disk = unit(Geometry { rotational: true, ..GEOMETRY });
    let mut target = Target::new(disk);
    target.server.add(7, disk);
    let nexus = target.login(1);
    // LUN 7 is new to the initiator, and the list of LUNs is.
    for (cdb, answer) in ANSWERS {
        let (cdb, answer) = (hex(cdb), hex(answer));
        let step = target.begin(nexus, Lun::ZERO, &cdb);
        assert_eq!(step, Step::Answer(Reply { len: answer.len(), ..Reply::GOOD }), "{cdb:02x?}");
        assert_eq!(target.answer, answer, "{cdb:02x?}");
        // Every shorter allocation length cuts the same answer. READ CAPACITY(10) has none.
        let at = match cdb[0] {
            0x12 => 4,
            0x1a => 4,
            0x5a | 0x5e => 8,
            0xa0 | 0xa3 => 9,
            0x9e => 13,
            _ => continue,
        };
        for len in 0..answer.len().min(255) {
            let mut short = cdb.clone();
            short[at - 1] = 0;
            if at > 4 {
                short[at - 2..at].fill(0);
            }
            short[at] = len as u8;
            if cdb[0] == 0x1a || cdb[0] == 0x12 {
                short[3] = 0;
            }
            target.begin(nexus, Lun::ZERO, &short);
            assert_eq!(target.answer, answer[..len], "{short:02x?}");
        }
    }
    assert_eq!(code(target.begin(nexus, Lun::peripheral(7), &[0; 6])), Code::POWER_ON_OR_RESET);
}

#[test]
fn the_list_of_operation_codes_is_the_commands_that_are_served() {
    let mut target = Target::new(unit(GEOMETRY));
    let nexus = target.login(1);
    let all = hex("a3 0c 00 00 00 00 00 00 ff ff 00 00");
    target.begin(nexus, Lun::ZERO, &all);
    let list = target.answer.clone();
    assert_eq!(list[..4], (list.len() as u32 - 4).to_be_bytes());
    let mut opcodes: Vec<_> = list[4..].chunks(8).map(|descriptor| descriptor[0]).collect();
    assert!(opcodes.is_sorted());
    opcodes.dedup();
    let mut literal: Vec<_> = literals::cdbs().iter().map(|(cdb, _)| hex(cdb)[0]).collect();
    literal.dedup();
    assert_eq!(opcodes, literal);
    for descriptor in list[4..].chunks(8) {
        // Asked alone, with its service action if it has one, each is supported.
        let with_action = descriptor[5] & 1;
        let query = [0xa3, 0x0c, 1 + with_action, descriptor[0], descriptor[2], descriptor[3]];
        let query = [&query[..], &[0, 0, 0, 64, 0, 0]].concat();
        target.begin(nexus, Lun::ZERO, &query);
        assert_eq!(target.answer[1], 3, "{query:02x?}");
        assert_eq!(target.answer[2..4], descriptor[6..8]);
        let usage = target.answer[4..].to_vec();
        assert_eq!((usage.len(), usage[0]), (usize::from(descriptor[7]), descriptor[0]));
        // Asked the other way the question is wrong.
        let mut wrong = query.clone();
        wrong[2] = 2 - with_action;
        assert_eq!(code(target.begin(nexus, Lun::ZERO, &wrong)), Code::INVALID_FIELD_IN_CDB);
    }
    // With times.
    target.begin(nexus, Lun::ZERO, &hex("a3 0c 80 00 00 00 00 00 ff ff 00 00"));
    assert_eq!(target.answer.len() - 4, (list.len() - 4) / 8 * 20);
    // Without discard there is no UNMAP, and no UNMAP in WRITE SAME.
    target.server.add(0, unit(Geometry { discard: false, ..GEOMETRY }));
    let nexus = target.login(2);
    target.begin(nexus, Lun::ZERO, &all);
    assert_eq!(target.answer.len(), list.len() - 8);
    target.begin(nexus, Lun::ZERO, &hex("a3 0c 01 42 00 00 00 00 01 00 00 00"));
    assert_eq!(target.answer, hex("00 01 00 00"));
    target.begin(nexus, Lun::ZERO, &hex("a3 0c 01 93 00 00 00 00 01 00 00 00"));
    assert_eq!(target.answer[4..6], hex("93 01"));
}

#[test]
fn commands_become_operations() {
    let mut target = Target::new(unit(GEOMETRY));
    let nexus = target.login(1);
    for (command, step) in [
        (read(2, 3), task(Operation::Read, 1024, 1536)),
        (read(0, 2048), task(Operation::Read, 0, 1 << 20)),
        (read(2048, 0), GOOD),
        (write(2047, 1), task(Operation::Write { fua: false }, 2047 * 512, 512)),
        (
            Command::Write { range: range(0, 1), fua: true },
            task(Operation::Write { fua: true }, 0, 512),
        ),
        (
            Command::Read { range: Range { form: Form::Six, lba: 0, blocks: 256 }, fua: false },
            task(Operation::Read, 0, 256 * 512),
        ),
        (
            Command::SynchronizeCache { range: range(0, 0), immediate: true },
            task(Operation::Flush, 0, 0),
        ),
        (
            Command::WriteSame { lba: 1, blocks: 2, unmap: true, no_data: true },
            task(Operation::WriteZeroes { fua: false, may_unmap: true }, 512, 1024),
        ),
        (
            Command::WriteSame { lba: 1, blocks: 2, unmap: false, no_data: false },
            Step::Collect { len: 512 },
        ),
        (Command::Unmap { len: 24 }, Step::Collect { len: 24 }),
        (Command::Unmap { len: 0 }, GOOD),
        (Command::Verify(range(0, 0)), GOOD),
        (Command::Verify(range(1, 2047)), stable(512, 2047 * 512, false)),
        (Command::Read { range: range(1, 1), fua: true }, stable(512, 512, true)),
        (Command::StartStopUnit { immediate: false, start: true }, GOOD),
        (Command::TestUnitReady, GOOD),
    ] {
        assert_eq!(target.command(nexus, command), step, "{command:?}");
    }
    let inquiry = target.command(nexus, Command::Inquiry { page: None, allocation: 36 });
    for (step, data) in [
        (inquiry, (Direction::In, 36)),
        (GOOD, (Direction::None, 0)),
        (task(Operation::Read, 0, 512), (Direction::In, 512)),
        (task(Operation::Write { fua: true }, 0, 512), (Direction::Out, 512)),
        (task(Operation::Discard, 0, 512), (Direction::None, 0)),
        (Step::Collect { len: 24 }, (Direction::Out, 24)),
        (stable(0, 512, true), (Direction::In, 512)),
    ] {
        assert_eq!((step.data(), step.memory_len()), (data, data.1), "{step:?}");
    }
    let verifies = stable(0, 512, false);
    assert_eq!((verifies.data(), verifies.memory_len()), ((Direction::None, 0), 512));
}

#[test]
fn lists_become_operations() {
    let mut target = Target::new(unit(GEOMETRY));
    let nexus = target.login(1);
    let cdb = |command: Command| command.emit().unwrap();
    let two = hex("00 36 00 30 00 00 00 00
         00 00 00 00 00 00 00 01 00 00 00 02 00 00 00 00
         00 00 00 00 00 00 00 09 00 00 00 00 00 00 00 00
         00 00 00 00 00 00 07 ff 00 00 00 01 00 00 00 00");
    let unmap = cdb(Command::Unmap { len: two.len() as u16 });
    let mut parameters = |cdb: tyche_scsi::Cdb, list: &[u8]| {
        let tasks = target.server.parameters(nexus, Lun::ZERO, cdb.padded(), list);
        tasks.map(|tasks| tasks.map(|it| (it.operation, it.offset, it.len)).collect::<Vec<_>>())
    };
    let discards = [(Operation::Discard, 512, 1024), (Operation::Discard, 2047 * 512, 512)];
    assert_eq!(parameters(unmap, &two), Ok(discards.into()));
    let refused = |refusal: Refusal| Err(Reply::from(refusal));
    assert_eq!(parameters(unmap, &two[..55]), refused(Refusal::ListLength));
    let unmap = cdb(Command::Unmap { len: 24 });
    assert_eq!(parameters(unmap, &emit_unmap(2047, 2)), refused(Refusal::OutOfRange));
    let same = Command::WriteSame { lba: 0, blocks: 2048, unmap: false, no_data: false };
    let zeroes = Operation::WriteZeroes { fua: false, may_unmap: false };
    assert_eq!(parameters(cdb(same), &[0; 512]), Ok(vec![(zeroes, 0, 1 << 20)]));
    let mut block = [0; 512];
    block[511] = 1;
    assert_eq!(parameters(cdb(same), &block), refused(Refusal::ListField(511)));
    assert_eq!(parameters(cdb(same), &block[..511]), refused(Refusal::ListLength));
    // A command without a list.
    assert_eq!(parameters(cdb(read(0, 1)), &[]), refused(Refusal::Opcode));
    assert_eq!(parameters(cdb(Command::TestUnitReady), &[]), refused(Refusal::Opcode));
    // The disk has become read-only.
    target.server.add(0, unit(Geometry { read_only: true, ..GEOMETRY }));
    let tasks = target.server.parameters(nexus, Lun::ZERO, cdb(same).padded(), &[0; 512]);
    assert_eq!(tasks.err(), Some(Refusal::WriteProtected.into()));
}

#[test]
fn what_is_not_possible_is_refused() {
    let huge = unit(Geometry { size: 1 << 45, discard: false, ..GEOMETRY });
    let mut target = Target::new(huge);
    let nexus = target.login(1);
    let blocks = (1_u64 << 45) / 512;
    let same = |lba, blocks, unmap| Command::WriteSame { lba, blocks, unmap, no_data: true };
    for (command, expected) in [
        (read(blocks, 1), Code::LBA_OUT_OF_RANGE),
        (read(blocks - 1, 2), Code::LBA_OUT_OF_RANGE),
        (read(u64::MAX, 1), Code::LBA_OUT_OF_RANGE),
        (read(blocks + 1, 0), Code::LBA_OUT_OF_RANGE),
        (write(u64::MAX, u32::MAX), Code::LBA_OUT_OF_RANGE),
        (Command::Verify(range(blocks, 1)), Code::LBA_OUT_OF_RANGE),
        (Command::Verify(range(0, TRANSFER_LEN_MAX / 512 + 1)), Code::INVALID_FIELD_IN_CDB),
        (Command::StartStopUnit { immediate: true, start: false }, Code::INVALID_FIELD_IN_CDB),
        (
            Command::SynchronizeCache { range: range(blocks, 1), immediate: false },
            Code::LBA_OUT_OF_RANGE,
        ),
        (read(0, TRANSFER_LEN_MAX / 512 + 1), Code::INVALID_FIELD_IN_CDB),
        (write(0, u32::MAX), Code::INVALID_FIELD_IN_CDB),
        (same(0, WRITE_ZEROES_LEN_MAX / 512 + 1, false), Code::INVALID_FIELD_IN_CDB),
        (same(0, 0, false), Code::INVALID_FIELD_IN_CDB),
        (same(0, 1, true), Code::INVALID_FIELD_IN_CDB),
        (same(blocks, 1, false), Code::LBA_OUT_OF_RANGE),
        (Command::Unmap { len: 24 }, Code::INVALID_OPCODE),
        (Command::RequestSense { descriptors: true, allocation: 18 }, Code::INVALID_FIELD_IN_CDB),
        (Command::Inquiry { page: Some(0xb9), allocation: 255 }, Code::INVALID_FIELD_IN_CDB),
    ] {
        assert_eq!(code(target.command(nexus, command)), expected, "{command:?}");
    }
    for (cdb, expected) in [
        // LOG SENSE, PERSISTENT RESERVE OUT, 32 bytes.
        ("4d 00 40 00 00 00 00 00 04 00", Code::INVALID_OPCODE),
        ("5f 00 00 00 00 00 00 00 18 00", Code::INVALID_OPCODE),
        ("7f 00 00 00 00 00 00 18 00 09 00 00 00 00 00 00", Code::INVALID_OPCODE),
        // A power condition, a medium that is to be ejected, a comparison.
        ("1b 00 00 00 11 00", Code::INVALID_FIELD_IN_CDB),
        ("1b 00 00 00 02 00", Code::INVALID_FIELD_IN_CDB),
        ("2f 02 00 00 00 00 00 00 01 00", Code::INVALID_FIELD_IN_CDB),
        // Saved values, another page, another subpage.
        ("1a 00 c8 00 ff 00", Code::SAVING_NOT_SUPPORTED),
        ("1a 00 1c 00 ff 00", Code::INVALID_FIELD_IN_CDB),
        ("5a 00 08 01 00 00 00 00 ff 00", Code::INVALID_FIELD_IN_CDB),
        ("a0 00 03 00 00 00 00 00 10 00 00 00", Code::INVALID_FIELD_IN_CDB),
    ] {
        assert_eq!(code(target.begin(nexus, Lun::ZERO, &hex(cdb))), expected, "{cdb}");
    }
    assert_eq!(target.command(nexus, same(0, WRITE_ZEROES_LEN_MAX / 512, false)), {
        task(Operation::WriteZeroes { fua: false, may_unmap: false }, 0, WRITE_ZEROES_LEN_MAX)
    });
    // Too long a list is refused before it is sent.
    target.server.add(0, unit(GEOMETRY));
    let nexus = target.login(2);
    let len = UNMAP_LEN_MAX as u16;
    assert_eq!(target.command(nexus, Command::Unmap { len }), Step::Collect { len: len.into() });
    let longer = Command::Unmap { len: len + 1 };
    assert_eq!(code(target.command(nexus, longer)), Code::PARAMETER_LIST_LENGTH_ERROR);
    // A disk that is too large for the short answer.
    target.server.add(0, huge);
    let nexus = target.login(3);
    target.command(nexus, Command::ReadCapacity10);
    assert_eq!(target.answer, hex("ff ff ff ff 00 00 02 00"));
}

#[test]
fn a_read_only_disk_refuses_what_modifies() {
    let mut target = Target::new(unit(Geometry { read_only: true, ..GEOMETRY }));
    let nexus = target.login(1);
    let same = Command::WriteSame { lba: 0, blocks: 1, unmap: false, no_data: true };
    for command in [write(0, 1), write(u64::MAX, 1), same, Command::Unmap { len: 24 }] {
        let Step::Answer(reply) = target.command(nexus, command) else { panic!("{command:?}") };
        let sense = Sense::new(SenseKey::DataProtect, Code::WRITE_PROTECTED);
        assert_eq!(reply.sense, Some(sense), "{command:?}");
    }
    assert_eq!(target.command(nexus, read(0, 1)), task(Operation::Read, 0, 512));
    let flush = Command::SynchronizeCache { range: range(0, 0), immediate: false };
    assert_eq!(target.command(nexus, flush), task(Operation::Flush, 0, 0));
}

#[test]
fn one_initiator_writes_unless_the_disk_is_shared() {
    let mut target = Target::new(unit(GEOMETRY));
    let (one, other) = (target.login(1), target.login(2));
    let writes = task(Operation::Write { fua: false }, 0, 512);
    // A write that is refused gives no right.
    assert_eq!(code(target.command(other, write(2048, 1))), Code::LBA_OUT_OF_RANGE);
    assert_eq!(target.command(one, write(0, 1)), writes);
    let same = Command::WriteSame { lba: 0, blocks: 1, unmap: false, no_data: true };
    for command in [write(0, 1), write(0, 0), same, Command::Unmap { len: 24 }] {
        assert_eq!(target.command(other, command), CONFLICT, "{command:?}");
    }
    let cdb = Command::Unmap { len: 24 }.emit().unwrap();
    let list = emit_unmap(0, 1);
    let tasks = target.server.parameters(other, Lun::ZERO, cdb.padded(), &list);
    assert_eq!(tasks.err().map(|reply| reply.status), Some(Status::ReservationConflict));
    assert_eq!(target.command(other, read(0, 1)), task(Operation::Read, 0, 512));
    assert_eq!(target.command(one, write(0, 1)), writes);
    // The right ends with the login, also with a new one.
    target.server.logout(one);
    assert_eq!(target.command(other, write(0, 1)), writes);
    let one = target.server.login(1, PORT, LunSet::ALL).unwrap();
    assert_eq!(code(target.command(one, Command::TestUnitReady)), Code::NEXUS_LOSS);
    assert_eq!(target.command(one, write(0, 1)), CONFLICT);
    target.server.login(2, PORT, LunSet::ALL).unwrap();
    assert_eq!(target.command(one, write(0, 1)), writes);

    let mut target = Target::new(Unit { shared: true, ..unit(GEOMETRY) });
    for nexus in [target.login(1), target.login(2)] {
        assert_eq!(target.command(nexus, write(0, 1)), writes);
    }
}

#[test]
fn what_is_granted_is_what_the_server_would_perform() {
    let mut target = Target::new(unit(GEOMETRY));
    let (one, other) = (target.login(1), target.login(2));
    let begin = |target: &Target, nexus, command: Command| {
        let grant = target.server.grant(nexus, Lun::ZERO).unwrap();
        grant.begin(command.emit().unwrap().padded()).map(Step::Perform)
    };
    let writes = task(Operation::Write { fua: false }, 0, 512);
    assert_eq!(begin(&target, one, write(0, 1)), None, "the server has to know of the writer");
    assert_eq!(target.command(one, write(0, 1)), writes);
    assert_eq!(begin(&target, one, write(0, 1)), Some(writes));
    assert_eq!(begin(&target, other, write(0, 1)), None);
    assert_eq!(begin(&target, other, read(1, 1)), Some(task(Operation::Read, 512, 512)));
    for refused in [read(2048, 1), read(0, 0), Command::TestUnitReady, Command::Unmap { len: 24 }] {
        assert_eq!(begin(&target, one, refused), None, "{refused:?}");
    }
    let granted = target.server.changes();
    target.server.resize(0, 2 << 20);
    assert_ne!(target.server.changes(), granted);
    assert_eq!(target.server.grant(one, Lun::ZERO), None, "an attention is pending");
    assert_eq!(target.server.grant(one, Lun::peripheral(1)), None);
    target.server.logout(one);
    assert_eq!(target.server.grant(one, Lun::ZERO), None);
}

#[test]
fn a_reservation_keeps_others_out() {
    let mut target = Target::new(Unit { shared: true, ..unit(GEOMETRY) });
    let (one, other) = (target.login(1), target.login(2));
    let read = read(0, 1);
    assert_eq!(target.command(one, Command::Reserve), GOOD);
    assert_eq!(target.command(one, Command::Reserve), GOOD);
    for command in [Command::Reserve, Command::TestUnitReady, read, write(0, 1)] {
        assert_eq!(target.command(other, command), CONFLICT, "{command:?}");
    }
    let inquiry = Command::Inquiry { page: None, allocation: 36 };
    assert_eq!(target.command(other, inquiry), Step::Answer(Reply { len: 36, ..Reply::GOOD }));
    // A release by another has no effect.
    assert_eq!(target.command(other, Command::Release), GOOD);
    assert_eq!(target.command(other, read), CONFLICT);
    assert_eq!(target.command(one, Command::Release), GOOD);
    assert_eq!(target.command(other, read), task(Operation::Read, 0, 512));
    // A reset ends it; the others are told.
    assert_eq!(target.command(one, Command::Reserve), GOOD);
    target.server.reset(0, other);
    assert_eq!(target.command(other, read), task(Operation::Read, 0, 512));
    assert_eq!(code(target.command(one, read)), Code::BUS_DEVICE_RESET);
    assert_eq!(target.command(one, read), task(Operation::Read, 0, 512));
    // So does a logout.
    assert_eq!(target.command(one, Command::Reserve), GOOD);
    target.server.logout(one);
    assert_eq!(target.command(other, read), task(Operation::Read, 0, 512));
}

#[test]
fn who_may_not_write_reserves_nothing() {
    let mut target = Target::new(unit(GEOMETRY));
    let (one, other) = (target.login(1), target.login(2));
    let writes = task(Operation::Write { fua: false }, 0, 512);
    assert_eq!(target.command(one, write(0, 1)), writes);
    assert_eq!(target.command(other, Command::Reserve), CONFLICT);
    assert_eq!(target.command(one, write(0, 1)), writes);
    assert_eq!(target.command(one, Command::Reserve), GOOD);

    let mut target = Target::new(unit(Geometry { read_only: true, ..GEOMETRY }));
    let (one, other) = (target.login(1), target.login(2));
    assert_eq!(code(target.command(other, Command::Reserve)), Code::WRITE_PROTECTED);
    assert_eq!(target.command(one, read(0, 1)), task(Operation::Read, 0, 512));
}

#[test]
fn a_read_of_stable_storage_is_not_granted_where_there_is_a_cache() {
    for write_cache in [true, false] {
        let mut target = Target::new(unit(Geometry { write_cache, ..GEOMETRY }));
        let nexus = target.login(1);
        let fua = Command::Read { range: range(0, 1), fua: true };
        let grant = target.server.grant(nexus, Lun::ZERO).unwrap();
        assert_eq!(grant.begin(fua.emit().unwrap().padded()).is_none(), write_cache);
        let read = task(Operation::Read, 0, 512);
        let expected = if write_cache { stable(0, 512, true) } else { read };
        assert_eq!(target.command(nexus, fua), expected);
    }
}

#[test]
fn attentions_are_told_to_each_initiator_once() {
    let mut target = Target::new(unit(GEOMETRY));
    let (one, other) = (target.login(1), target.login(2));
    target.server.resize(0, 2 << 20);
    target.server.add(3, unit(GEOMETRY));
    for nexus in [one, other] {
        assert_eq!(code(target.command(nexus, Command::TestUnitReady)), Code::CAPACITY_CHANGED);
    }
    target.command(one, read(0, 1));
    assert_eq!(target.command(one, read(2048, 1)), task(Operation::Read, 1 << 20, 512));
    // The list of LUNs tells as much as the attention; INQUIRY tells nothing.
    let inquiry = Command::Inquiry { page: None, allocation: 0 };
    assert_eq!(target.command(other, inquiry), GOOD);
    target.begin(other, Lun::ZERO, &hex("a0 00 00 00 00 00 00 00 10 00 00 00"));
    assert_eq!(target.answer.len(), 8 + 2 * 8);
    assert_eq!(target.command(other, Command::TestUnitReady), GOOD);
    // An attention goes before everything but the three.
    target.server.renew(0, Uuid::from_u128(2));
    target.server.renew(0, Uuid::from_u128(2));
    assert_eq!(code(target.begin(one, Lun::ZERO, &[0xff; 16])), Code::INQUIRY_CHANGED);
    assert_eq!(code(target.begin(one, Lun::ZERO, &[0xff; 16])), Code::INVALID_OPCODE);
    // REQUEST SENSE takes it as data.
    let sense = Command::RequestSense { descriptors: false, allocation: 34 };
    target.command(other, sense);
    let generation = Some(Uuid::from_u128(2));
    let told = Sense::new(SenseKey::UnitAttention, Code::INQUIRY_CHANGED);
    let told = Sense { generation, ..told };
    assert_eq!(Sense::parse(&target.answer), Ok(told));
    target.command(other, sense);
    assert_eq!(Sense::parse(&target.answer), Ok(Sense::new(SenseKey::NoSense, Code::NONE)));
    // One that was away is told later, and that its nexus was lost, but of no power on.
    target.server.logout(other);
    target.server.resize(0, 1 << 20);
    target.server.remove(3);
    let other = target.server.login(2, PORT, LunSet::ALL).unwrap();
    for expected in [Code::NEXUS_LOSS, Code::CAPACITY_CHANGED, Code::LUNS_CHANGED] {
        assert_eq!(code(target.command(other, Command::TestUnitReady)), expected);
    }
    assert_eq!(target.command(other, Command::TestUnitReady), GOOD);
}

#[test]
fn there_is_an_answer_where_no_logical_unit_is() {
    let mut target = Target::new(unit(GEOMETRY));
    let nexus = target.login(1);
    target.server.remove(0);
    target.server.add(9, unit(GEOMETRY));
    let luns = hex("a0 00 00 00 00 00 00 00 10 00 00 00");
    for lun in [Lun::ZERO, Lun::peripheral(1), Lun([0x40, 1, 0, 0, 0, 0, 0, 0]), Lun([0xc1; 8])] {
        target.begin(nexus, lun, &hex("12 00 00 00 ff 00"));
        assert_eq!((target.answer.len(), target.answer[0]), (66, 0x7f), "{lun}");
        target.begin(nexus, lun, &hex("03 00 00 00 12 00"));
        assert_eq!(target.answer[..], Refusal::LogicalUnit.sense().emit()[..]);
        for cdb in ["00 00 00 00 00 00", "12 01 00 00 ff 00", "ff 00", "03 01 00 00 12 00"] {
            let step = target.begin(nexus, lun, &hex(cdb));
            assert_eq!(code(step), Code::LOGICAL_UNIT_NOT_SUPPORTED, "{lun} {cdb}");
        }
        // Only LUN 0 has the list.
        target.begin(nexus, lun, &luns);
        assert_eq!(target.answer.len(), if lun == Lun::ZERO { 16 } else { 0 }, "{lun}");
    }
    // The flat form of a LUN that is there.
    target.begin(nexus, Lun([0x40, 9, 0, 0, 0, 0, 0, 0]), &hex("12 00 00 00 ff 00"));
    assert_eq!(target.answer[0], 0);
    // A stranger sees nothing.
    let stranger = target.server.login(2, PORT, LunSet::NONE).unwrap();
    target.begin(stranger, Lun::ZERO, &luns);
    assert_eq!(target.answer, [0; 8]);
    let step = target.begin(stranger, Lun::peripheral(9), &[0; 6]);
    assert_eq!(code(step), Code::LOGICAL_UNIT_NOT_SUPPORTED);
    // One that is not logged in.
    target.server.logout(stranger);
    let step = target.begin(stranger, Lun::ZERO, &luns);
    assert_eq!(code(step), Code::LOGICAL_UNIT_NOT_SUPPORTED);
    // A disk without blocks.
    target.server.add(0, unit(Geometry::new(0, 4096)));
    let nexus = target.login(3);
    assert_eq!(code(target.command(nexus, Command::TestUnitReady)), Code::MEDIUM_NOT_PRESENT);
    assert_eq!(code(target.command(nexus, Command::ReadCapacity10)), Code::MEDIUM_NOT_PRESENT);
}

#[test]
fn all_logical_units_fit_in_the_longest_answer() {
    let mut target = Target::new(unit(GEOMETRY));
    (0..=255).for_each(|number| target.server.add(number, unit(GEOMETRY)));
    let nexus = target.login(1);
    target.begin(nexus, Lun::ZERO, &hex("a0 00 00 00 00 00 ff ff ff ff 00 00"));
    assert_eq!(target.answer.len(), ANSWER_LEN_MAX);
    assert_eq!(target.answer[ANSWER_LEN_MAX - 8..], Lun::peripheral(255).0);
}

#[test]
fn the_longest_away_makes_room_for_a_new_initiator() {
    let mut server = Server::new(2);
    let one = server.login(1, PORT, LunSet::ALL).unwrap();
    let two = server.login(2, PORT, LunSet::ALL).unwrap();
    assert_eq!(server.login(3, PORT, LunSet::ALL), Err(NoRoom));
    server.logout(two);
    server.logout(one);
    // A second logout makes nobody younger.
    server.logout(two);
    assert_eq!(server.login(3, PORT, LunSet::ALL), Ok(two));
    assert_eq!(server.login(1, PORT, LunSet::ALL), Ok(one));
    assert_eq!(server.login(2, PORT, LunSet::ALL), Err(NoRoom));
}

#[test]
fn failures_of_the_disk_have_sense_data() {
    for (failure, operation, expected) in [
        (Failure::Io, Operation::Read, "3 11 00"),
        (Failure::Io, Operation::Write { fua: false }, "3 0c 00"),
        (Failure::Io, Operation::Flush, "3 0c 00"),
        (Failure::NoSpace, Operation::Write { fua: false }, "7 27 07"),
        (Failure::ReadOnly, Operation::Discard, "7 27 00"),
        (Failure::NotSupported, Operation::Discard, "5 20 00"),
        (Failure::Invalid, Operation::Read, "5 24 00"),
        (Failure::Gone, Operation::Read, "4 44 00"),
    ] {
        let reply = Reply::of(operation, Err(failure));
        let sense = reply.sense.unwrap();
        let shown = format!("{:x} {:02x} {:02x}", sense.key as u8, sense.code.0, sense.code.1);
        assert_eq!((shown.as_str(), reply.status), (expected, Status::CheckCondition));
    }
    assert_eq!(Reply::of(Operation::Flush, Ok(())), Reply::GOOD);
    assert!(Failure::ALL.iter().all(|it| Failure::from_errno(it.errno()) == *it));
    assert_eq!(Failure::from_errno(12), Failure::Io);
    // ENODEV, ESHUTDOWN, ENOMEDIUM.
    assert!([19, 108, 123].into_iter().all(|errno| Failure::from_errno(errno) == Failure::Gone));
}

#[test]
fn a_unit_that_is_not_visible_any_more_is_gone_with_its_reservation() {
    let mut target = Target::new(unit(GEOMETRY));
    let (one, two) = (target.login(1), target.login(2));
    assert_eq!(target.command(one, Command::Reserve), GOOD);
    assert_eq!(target.command(two, read(0, 1)), CONFLICT);
    target.server.show(|initiator| if initiator == 1 { LunSet::NONE } else { LunSet::ALL });
    for command in [read(0, 1), write(0, 1), Command::TestUnitReady] {
        assert_eq!(code(target.command(one, command)), Code::LOGICAL_UNIT_NOT_SUPPORTED);
    }
    assert_eq!(code(target.command(two, read(0, 1))), Code::LUNS_CHANGED, "it is told");
    assert_eq!(target.command(two, read(0, 1)), task(Operation::Read, 0, 512));
    target.server.show(|_| LunSet::ALL);
    assert_eq!(code(target.command(one, read(0, 1))), Code::LUNS_CHANGED);
    assert_eq!(target.command(one, read(0, 1)), task(Operation::Read, 0, 512));
}

#[test]
fn an_initiator_has_a_nexus_at_each_port() {
    let mut target = Target::new(unit(GEOMETRY));
    let one = target.login(1);
    let write = Command::Write { range: range(0, 1), fua: false };
    let done = target.command(one, write);
    assert_eq!(done, task(Operation::Write { fua: false }, 0, 512));
    // It looks at the other port, too, and leaves that.
    let port = TargetPort { name: PORT.name + 1, number: 3 };
    let other = target.server.login(1, port, LunSet::ALL).unwrap();
    assert_ne!(one, other);
    assert_eq!(target.command(one, write), done, "it has the right to write");
    assert_eq!(code(target.command(other, write)), Code::POWER_ON_OR_RESET);
    target.server.logout(other);
    assert_eq!(target.command(one, write), done);
}
