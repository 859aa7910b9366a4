//! The ends of commands, and the commands of operations.

use crate::literals::hex;
use tyche_geometry::Geometry;
use tyche_scsi::cdb::Form;
use tyche_scsi::initiator::{Data, Disk, Translation, Verdict, classify};
use tyche_scsi::{Attention, Code, Direction, Failure, Operation, Sense, SenseKey};

const READ: Operation = Operation::Read;
const ZEROES: Operation = Operation::WriteZeroes { fua: false, may_unmap: true };

#[test]
fn every_status_and_sense_key_has_a_verdict() {
    for (status, verdict) in [
        (0x00, Verdict::Done),
        (0x04, Verdict::Done),
        (0x08, Verdict::RetryLater { full: true }),
        (0x18, Verdict::Failed(Failure::Reserved)),
        (0x28, Verdict::RetryLater { full: true }),
        (0x30, Verdict::RetryLater { full: false }),
        (0x40, Verdict::RetryNow),
        (0x10, Verdict::Failed(Failure::Io)),
        (0xff, Verdict::Failed(Failure::Io)),
        // A CHECK CONDITION without sense data.
        (0x02, Verdict::RetryNow),
    ] {
        assert_eq!(classify(status, &[], Some(READ)), verdict, "{status:#04x}");
    }
    let failed = Verdict::Failed;
    for (key, code, operation, verdict) in [
        (0x0, (0x00, 0x00), READ, Verdict::Done),
        (0x1, (0x17, 0x01), READ, Verdict::Done),
        (0x2, (0x04, 0x01), READ, Verdict::RetryLater { full: false }),
        (0x3, (0x11, 0x00), READ, failed(Failure::Io)),
        (0x4, (0x44, 0x00), READ, failed(Failure::Io)),
        (0x5, (0x20, 0x00), READ, failed(Failure::NotSupported)),
        (0x5, (0x21, 0x00), READ, failed(Failure::Invalid)),
        (0x5, (0x24, 0x00), READ, failed(Failure::Invalid)),
        (0x5, (0x24, 0x00), ZEROES, failed(Failure::NotSupported)),
        (0x5, (0x26, 0x00), Operation::Discard, failed(Failure::NotSupported)),
        (0x5, (0x25, 0x00), READ, failed(Failure::Gone)),
        (0x6, (0x29, 0x00), READ, Verdict::Attention(Attention::PowerOn)),
        (0x6, (0x29, 0x07), READ, Verdict::Attention(Attention::NexusLoss)),
        (0x6, (0x2a, 0x09), READ, Verdict::Attention(Attention::CapacityChanged)),
        (0x6, (0x3f, 0x0e), READ, Verdict::Attention(Attention::LunsChanged)),
        (0x6, (0x2a, 0x01), READ, Verdict::Attention(Attention::Other(Code(0x2a, 0x01)))),
        (0x7, (0x27, 0x00), ZEROES, failed(Failure::ReadOnly)),
        (0x7, (0x27, 0x07), ZEROES, failed(Failure::NoSpace)),
        (0xb, (0x4b, 0x00), READ, Verdict::RetryNow),
        (0xd, (0x00, 0x00), READ, failed(Failure::Io)),
        (0xe, (0x1d, 0x00), READ, failed(Failure::Io)),
    ] {
        let sense = Sense::new(SenseKey::from_bits(key), Code(code.0, code.1));
        assert_eq!(classify(2, &sense.emit(), Some(operation)), verdict, "{sense}");
        let lost = classify(2, &Sense { deferred: true, ..sense }.emit(), Some(operation));
        match key {
            0x0 | 0x1 => assert_eq!(lost, Verdict::Attention(Attention::Other(sense.code))),
            0x6 => assert_eq!(lost, verdict),
            _ => assert_eq!(lost, Verdict::Attention(Attention::LostWrite), "{sense}"),
        }
    }
}

/// A disk of 8 GiB that can do all.
fn disk() -> Disk {
    let geometry = Geometry { write_cache: true, discard: true, ..Geometry::new(8 << 30, 512) };
    Disk {
        fua: true,
        transfer_max: 2048,
        unmap_max: 1 << 21,
        write_same_max: 1 << 21,
        write_same: Some(true),
        no_data: true,
        unmap_zeroes: true,
        ..Disk::new(geometry)
    }
}

/// CDB, data, bytes covered, and whether a flush must follow.
fn command(disk: &Disk, operation: Operation, offset: u64, len: u32) -> (Vec<u8>, Data, u32, bool) {
    match disk.request(operation, offset, len) {
        Ok(Translation::Command(next)) => {
            (next.request.cdb.as_bytes().to_vec(), next.request.data, next.covers, next.flush)
        }
        other => panic!("no command: {other:?}"),
    }
}

#[test]
fn operations_become_commands() {
    let disk = disk();
    let long = "88 00 00 00 00 00 00 00 00 08 00 00 00 08 00 00";
    assert_eq!(command(&disk, READ, 4096, 4096), (hex(long), Data::In(4096), 4096, false));
    let fua = "8a 08 00 00 00 00 00 ff ff ff 00 00 00 01 00 00";
    let last = (8 << 30) - 512;
    let write = Operation::Write { fua: true };
    assert_eq!(command(&disk, write, last, 512), (hex(fua), Data::Out(512), 512, false));
    let flush = "91 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
    assert_eq!(command(&disk, Operation::Flush, 0, 0), (hex(flush), Data::None, 0, false));
    let list = "00 16 00 10 00 00 00 00 00 00 00 00 00 00 00 08 00 00 00 10 00 00 00 00";
    let list = Data::Unmap(hex(list).try_into().unwrap());
    let unmap = hex("42 00 00 00 00 00 00 00 18 00");
    assert_eq!(command(&disk, Operation::Discard, 4096, 8192), (unmap, list, 8192, false));
    assert_eq!((list.direction(), list.len()), (Direction::Out, 24));
    let same = hex("93 09 00 00 00 00 00 00 00 08 00 00 00 10 00 00");
    assert_eq!(command(&disk, ZEROES, 4096, 8192), (same, Data::None, 8192, false));
}

#[test]
fn long_operations_take_several_commands() {
    let disk = disk();
    let (_, data, covers, _) = command(&disk, READ, 0, 3 << 20);
    assert_eq!((data, covers), (Data::In(1 << 20), 1 << 20));
    let whole = 0xffff_fe00;
    for operation in [Operation::Discard, ZEROES] {
        assert_eq!(command(&disk, operation, 0, whole).2, 1 << 30);
    }
    // A target that states no limits.
    let disk = Disk { transfer_max: 0, write_same_max: 0, unmap_max: u32::MAX, ..disk };
    assert_eq!(command(&disk, READ, 0, whole).2, whole);
    assert_eq!(command(&disk, Operation::Discard, 0, whole).2, whole);
    assert_eq!(command(&disk, ZEROES, 0, whole).2, 0x7f_ffff * 512);
    let short = Disk { form: Form::Ten, ..disk };
    let (cdb, _, covers, _) = command(&short, READ, 512, whole);
    assert_eq!((cdb, covers), (hex("28 00 00 00 00 01 00 ff ff 00"), 0xffff * 512));
    // A disk whose last block has no place in ten bytes.
    let last = (1 << 41) + 512;
    let geometry = Geometry { size: last + 512, ..short.geometry };
    let past = Disk { geometry, ..short };
    assert_eq!(past.request(READ, last, 512), Err(Failure::Invalid));
}

#[test]
fn a_target_that_can_do_less_gets_other_commands() {
    let simple = Disk { fua: false, no_data: false, unmap_zeroes: false, ..disk() };
    let write = Operation::Write { fua: true };
    let cdb = hex("8a 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00");
    assert_eq!(command(&simple, write, 0, 512), (cdb.clone(), Data::Out(512), 512, true));
    let zeroes = Operation::WriteZeroes { fua: true, may_unmap: true };
    let same = hex("93 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00");
    assert_eq!(command(&simple, zeroes, 0, 512), (same, Data::Zeroes(512), 512, true));
    // Without a cache all writes are stable.
    let geometry = Geometry { write_cache: false, discard: false, ..simple.geometry };
    let through = Disk { geometry, write_same: Some(false), ..simple };
    assert_eq!(command(&through, write, 0, 512), (cdb, Data::Out(512), 512, false));
    assert_eq!(through.request(Operation::Flush, 0, 0), Ok(Translation::Nothing));
    for operation in [Operation::Discard, ZEROES, Operation::BlockStatus] {
        assert_eq!(through.request(operation, 0, 512), Err(Failure::NotSupported));
    }
}

#[test]
fn operations_that_make_no_sense_fail() {
    let disk = disk();
    let size = disk.geometry.size;
    let write = Operation::Write { fua: false };
    for (operation, offset, len, failure) in [
        (READ, 0, 0, Failure::Invalid),
        (READ, 1, 512, Failure::Invalid),
        (READ, 0, 511, Failure::Invalid),
        (READ, size, 512, Failure::Invalid),
        (READ, u64::MAX - 511, 512, Failure::Invalid),
        (write, size, 512, Failure::NoSpace),
        (ZEROES, size - 512, 1024, Failure::NoSpace),
        (Operation::Discard, size, 512, Failure::NoSpace),
    ] {
        assert_eq!(disk.request(operation, offset, len), Err(failure), "{operation:?} {offset}");
    }
    let geometry = Geometry { read_only: true, ..disk.geometry };
    let disk = Disk { geometry, ..disk };
    for operation in [write, ZEROES, Operation::Discard] {
        assert_eq!(disk.request(operation, 0, 512), Err(Failure::ReadOnly));
    }
}
