//! The initiator's search: against the device server, and against targets that are worse.

use crate::literals::hex;
use crate::target;
use crate::target::{GENERATION, UUID, unit};
use tyche_geometry::Geometry;
use tyche_scsi::cdb::Form;
use tyche_scsi::initiator::{
    CommandAnswer, Data, Discovery, DiscoveryError, Disk, Progress, Request, Scan, Translation,
};
use tyche_scsi::vpd::{Identity, TargetPort};
use tyche_scsi::{
    ANSWER_LEN_MAX, Code, Failure, Lun, LunSet, Malformed, NexusId, Operation, Reply, Sense,
    SenseKey, Server, Status, Step,
};

/// An answer of the device server: status, sense data, data.
type Served = (u8, Vec<u8>, Vec<u8>);

/// Has the device server answer a question. Its data fit in those that the initiator takes.
fn serve(server: &mut Server, nexus: NexusId, lun: Lun, request: Request) -> Served {
    let mut out = [0; ANSWER_LEN_MAX];
    let Step::Answer(reply) = server.begin(nexus, lun, request.cdb.padded(), &mut out) else {
        panic!("{request:?} is no question");
    };
    assert!(reply.len <= request.data.len() as usize, "{request:?}: {reply:?}");
    let sense = reply.sense.map_or(vec![], |sense| sense.emit().to_vec());
    (reply.status as u8, sense, out[..reply.len].to_vec())
}

/// Searches with something that answers; returns the last progress.
fn search(discovery: &mut Discovery, mut serve: impl FnMut(Request) -> Served) -> Progress {
    for _ in 0..200 {
        let request = discovery.request().unwrap();
        let (status, sense, data) = serve(request);
        match discovery.handle(CommandAnswer { status, sense: &sense, data: &data }) {
            Progress::Next | Progress::Later => {}
            end => {
                assert_eq!(discovery.request(), None);
                return end;
            }
        }
    }
    panic!("the search has no end");
}

fn check(key: SenseKey, code: Code) -> Served {
    (Status::CheckCondition as u8, Sense::new(key, code).emit().to_vec(), vec![])
}

#[test]
fn a_disk_is_found_as_it_is_exported() {
    for block_size in [512, 4096] {
        for flags in 0..16_u8 {
            let flag = |bit: u8| flags >> bit & 1 != 0;
            let geometry = Geometry {
                size: (1 << 40) + 3 * 4096,
                block_size,
                read_only: flag(0),
                write_cache: flag(1),
                discard: flag(2),
                rotational: flag(3),
            };
            let mut server = Server::new(4);
            server.add(5, unit(geometry));
            let nexus = server.login(1, TargetPort::default(), LunSet::ALL).unwrap();

            let mut scan = Scan::default();
            let (status, sense, data) = serve(&mut server, nexus, Lun::ZERO, scan.request());
            let end = scan.handle(CommandAnswer { status, sense: &sense, data: &data });
            assert_eq!((end, scan.luns()), (Progress::Done, &[Lun::peripheral(5)][..]));

            let mut discovery = Discovery::default();
            let lun = scan.luns()[0];
            let serve = |request| serve(&mut server, nexus, lun, request);
            assert_eq!(search(&mut discovery, serve), Progress::Done);
            let disk = discovery.disk().unwrap();
            assert_eq!(disk.geometry, geometry);
            assert_eq!(disk.identity, Some(Identity::Uuid(UUID)));
            assert_eq!(disk.generation, Some(GENERATION));
            assert_eq!(disk.serial.as_str(), UUID.simple().to_string());
            assert_eq!((disk.vendor.as_str(), disk.product.as_str()), ("TYCHE", "NETWORK DISK"));
            assert_eq!((disk.form, disk.fua, disk.no_data), (Form::Sixteen, true, true));
            assert_eq!((disk.write_same, disk.transfer_max), (Some(true), (1 << 20) / block_size));
            round_trip(disk, &mut server, nexus, lun);
        }
    }
}

/// Has the device server take the initiator's commands: they are the operations that they were.
fn round_trip(disk: &Disk, server: &mut Server, nexus: NexusId, lun: Lun) {
    let zeroes = |may_unmap| Operation::WriteZeroes { fua: false, may_unmap };
    let offset = disk.geometry.size - (8 << 20);
    for operation in [
        Operation::Read,
        Operation::Write { fua: false },
        Operation::Write { fua: true },
        Operation::Flush,
        Operation::Discard,
        zeroes(false),
    ] {
        let is_flush = operation == Operation::Flush;
        let (offset, len) = if is_flush { (0, 0) } else { (offset, 4 << 20) };
        let next = match disk.request(operation, offset, len) {
            Ok(Translation::Command(next)) => next,
            Ok(Translation::Nothing) => {
                assert!(is_flush && !disk.geometry.write_cache);
                continue;
            }
            Err(failure) => {
                let expected =
                    if disk.geometry.read_only { Failure::ReadOnly } else { Failure::NotSupported };
                assert_eq!(failure, expected, "{operation:?}");
                continue;
            }
        };
        let cdb = next.request.cdb.padded();
        let step = server.begin(nexus, lun, cdb, &mut []);
        let data = &next.request.data;
        assert_eq!(step.data(), (data.direction(), data.len()), "{operation:?}");
        let task = match step {
            Step::Perform(task) => task,
            Step::Collect { len } => {
                let list = match next.request.data {
                    Data::Unmap(list) => list.to_vec(),
                    Data::Zeroes(len) => vec![0; len as usize],
                    data => panic!("{data:?} is no list"),
                };
                assert_eq!(list.len(), len as usize);
                let mut tasks = server.parameters(nexus, lun, cdb, &list).unwrap();
                let task = tasks.next().unwrap();
                assert!(tasks.next().is_none());
                task
            }
            step => panic!("{operation:?}: {step:?}"),
        };
        // FUA has no effect without a cache.
        let operation = match operation {
            Operation::Write { fua } => Operation::Write { fua: fua && disk.geometry.write_cache },
            other => other,
        };
        assert_eq!((task.operation, task.offset, task.len), (operation, offset, next.covers));
    }
}

#[test]
fn a_simple_target_is_asked_in_other_ways() {
    let mut discovery = Discovery::default();
    let end = search(&mut discovery, |request| match request.cdb.as_bytes() {
        [0x12, 0, ..] => (0, vec![], hex("00 00 04 02 1f 00 00 00 41 42 43 20 20 20 20 20")),
        [0x00, ..] => (0, vec![], vec![]),
        [0x25, ..] => (0, vec![], hex("00 00 0f ff 00 00 10 00")),
        [0x1a, ..] => (0, vec![], hex("0f 00 80 00 08 0a 00 00 00 00 00 00 00 00 00 00")),
        [0x5a | 0x12 | 0xa3 | 0x9e, ..] => check(SenseKey::IllegalRequest, Code::INVALID_OPCODE),
        other => panic!("{other:02x?}"),
    });
    assert_eq!(end, Progress::Done);
    let disk = discovery.disk().unwrap();
    let geometry = Geometry { read_only: true, ..Geometry::new(16 << 20, 4096) };
    assert_eq!((disk.geometry, disk.form), (geometry, Form::Ten));
    assert_eq!((disk.vendor.as_str(), disk.identity, disk.write_same), ("ABC", None, None));
}

#[test]
fn attentions_and_pauses_do_not_end_a_search() {
    let mut server = Server::new(1);
    let geometry = Geometry::new(1 << 20, 512);
    server.add(0, unit(geometry));
    let nexus = server.login(1, TargetPort::default(), LunSet::ALL).unwrap();
    let mut discovery = Discovery::default();
    let mut turn = 0;
    let end = search(&mut discovery, |request| {
        turn += 1;
        match turn % 5 {
            1 => check(SenseKey::NotReady, Code::BECOMING_READY),
            2 => check(SenseKey::UnitAttention, Code::LUNS_CHANGED),
            3 => (Status::Busy as u8, vec![], vec![]),
            4 => check(SenseKey::AbortedCommand, Code::DATA_PHASE_ERROR),
            _ => serve(&mut server, nexus, Lun::ZERO, request),
        }
    });
    assert_eq!(end, Progress::Done);
    assert_eq!(discovery.disk().unwrap().geometry, geometry);
    // But a search has an end.
    for (key, code) in [
        (SenseKey::NotReady, Code::BECOMING_READY),
        (SenseKey::UnitAttention, Code::POWER_ON_OR_RESET),
    ] {
        let mut discovery = Discovery::default();
        let end = search(&mut discovery, |_| check(key, code));
        assert_eq!(end, Progress::Failed(DiscoveryError::NotReady));
        assert!(discovery.disk().is_none());
    }
}

#[test]
fn what_is_no_usable_disk_is_named() {
    let inquiry = "00 00 06 12 1f 00 00 00";
    let (disk, capacity) = (hex(inquiry), hex("00 00 00 00 00 00 00 ff 00 00 02 00"));
    let search_with = |inquiry: Vec<u8>, capacity: Vec<u8>, short: Vec<u8>| {
        let mut discovery = Discovery::default();
        let end = search(&mut discovery, |request| match request.cdb.as_bytes() {
            [0x12, 0, ..] => (0, vec![], inquiry.clone()),
            [0x00, ..] => (0, vec![], vec![]),
            [0x9e, ..] if !capacity.is_empty() => (0, vec![], capacity.clone()),
            [0x25, ..] => (0, vec![], short.clone()),
            _ => check(SenseKey::IllegalRequest, Code::INVALID_OPCODE),
        });
        (end, discovery.disk().copied())
    };
    let (end, found) = search_with(disk.clone(), capacity.clone(), vec![]);
    assert_eq!(end, Progress::Done);
    // Without a word about the cache there may be one.
    let expected = Geometry { write_cache: true, ..Geometry::new(1 << 17, 512) };
    assert_eq!(found.unwrap().geometry, expected);
    let none = Vec::new;
    for (inquiry, capacity, short, error) in [
        (hex("7f 00 06 12"), none(), none(), DiscoveryError::Absent),
        (hex("20 00 06 12"), none(), none(), DiscoveryError::Absent),
        (hex("05 80 06 12"), none(), none(), DiscoveryError::NotADisk(5)),
        (hex("00 00 06"), none(), none(), DiscoveryError::Malformed(Malformed::Short)),
        (hex("00 00 01 01"), none(), none(), DiscoveryError::Malformed(Malformed::Value)),
        (
            disk.clone(),
            hex("00 00 00 00 00 00 00 ff 00 00 02 08"),
            none(),
            DiscoveryError::BlockLen(520),
        ),
        (disk.clone(), hex("ff ff ff ff ff ff ff ff 00 00 02 00"), none(), DiscoveryError::Size),
        (disk.clone(), hex("7f ff ff ff ff ff ff fe 00 00 02 00"), none(), DiscoveryError::Size),
        (disk.clone(), hex("00 00"), none(), DiscoveryError::Malformed(Malformed::Short)),
        (disk.clone(), none(), hex("ff ff ff ff 00 00 02 00"), DiscoveryError::Size),
        (disk.clone(), none(), hex("00"), DiscoveryError::Malformed(Malformed::Short)),
    ] {
        let found = search_with(inquiry, capacity, short);
        assert_eq!(found, (Progress::Failed(error), None), "{error}");
    }
    let mut discovery = Discovery::default();
    let refuse = |_| check(SenseKey::IllegalRequest, Code::LOGICAL_UNIT_NOT_SUPPORTED);
    let end = search(&mut discovery, refuse);
    assert_eq!(end, Progress::Failed(DiscoveryError::Refused(Failure::Gone)));
}

/// Every cut and flipped bit of every answer: the search ends, and finds a valid disk or none.
#[test]
fn damaged_answers_do_no_harm() {
    let mut server = Server::new(1);
    server.add(0, unit(target::GEOMETRY));
    let nexus = server.login(1, TargetPort::default(), LunSet::ALL).unwrap();
    let mut found = 0;
    for turn in 0..14 {
        for damage in 0..600_usize {
            let mut discovery = Discovery::default();
            let mut at = 0;
            search(&mut discovery, |request| {
                let (status, sense, mut data) = serve(&mut server, nexus, Lun::ZERO, request);
                if at == turn && damage < data.len() * 8 {
                    data[damage / 8] ^= 1 << (damage % 8);
                } else if at == turn {
                    data.truncate(damage.saturating_sub(data.len() * 8));
                }
                at += 1;
                (status, sense, data)
            });
            if let Some(disk) = discovery.disk() {
                assert!(disk.geometry.is_valid());
                found += 1;
            }
        }
    }
    assert!(found > 6000, "{found}");
}

#[test]
fn lists_of_luns_are_bounded() {
    let answer = |data: &[u8]| {
        let mut scan = Scan::default();
        let end = scan.handle(CommandAnswer { status: 0, sense: &[], data });
        (end, scan.luns().to_vec(), scan.left_out())
    };
    let mut many = hex("00 01 00 00 00 00 00 00");
    many.resize(8 + 8 * 300, 0);
    let (end, luns, left_out) = answer(&many);
    assert_eq!((end, luns.len(), left_out), (Progress::Done, 256, 0x1_0000 / 8 - 256));
    assert_eq!(answer(&hex("00 00 00 00 00 00 00 00")), (Progress::Done, vec![], 0));
    let (end, ..) = answer(&[0; 3]);
    assert_eq!(end, Progress::Failed(DiscoveryError::Malformed(Malformed::Short)));
    // A target without the command has LUN 0; one with an attention is asked again.
    let mut scan = Scan::default();
    let mut handle = |(status, sense, data): Served| {
        scan.handle(CommandAnswer { status, sense: &sense, data: &data })
    };
    let attention = check(SenseKey::UnitAttention, Code::POWER_ON_OR_RESET);
    assert_eq!(handle(attention), Progress::Next);
    let unknown = check(SenseKey::IllegalRequest, Code::INVALID_OPCODE);
    assert_eq!(handle(unknown), Progress::Done);
    assert_eq!(scan.luns(), [Lun::ZERO]);
    assert_eq!(Reply::GOOD.sense, None);
}

#[test]
fn a_later_list_of_luns_takes_the_place_of_the_first() {
    let two = hex("00 00 00 10 00 00 00 00 00 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00");
    let one = hex("00 00 00 08 00 00 00 00 00 03 00 00 00 00 00 00");
    let mut scan = Scan::default();
    for (data, luns) in [(two, vec![1, 2]), (one, vec![3])] {
        let answer = CommandAnswer { status: 0, sense: &[], data: &data };
        assert_eq!(scan.handle(answer), Progress::Done);
        let luns: Vec<_> = luns.into_iter().map(Lun::peripheral).collect();
        assert_eq!((scan.luns(), scan.left_out()), (&luns[..], 0));
    }
}

/// It may be back for the next question: what was refused in between is no property of the disk.
#[test]
fn a_disk_that_goes_while_it_is_asked_about_is_not_taken_for_another() {
    let mut server = Server::new(1);
    server.add(0, unit(Geometry::new(1 << 20, 512)));
    let nexus = server.login(1, TargetPort::default(), LunSet::ALL).unwrap();
    let mut questions = 0;
    let end = search(&mut Discovery::default(), |request| {
        questions += 1;
        serve(&mut server, nexus, Lun::ZERO, request)
    });
    assert_eq!(end, Progress::Done);
    // The first was answered with the attention of a login.
    for gone in 1..questions {
        let mut turn = 0;
        let end = search(&mut Discovery::default(), |request| {
            turn += 1;
            if turn == gone {
                return check(SenseKey::IllegalRequest, Code::LOGICAL_UNIT_NOT_SUPPORTED);
            }
            serve(&mut server, nexus, Lun::ZERO, request)
        });
        let refused = DiscoveryError::Refused(Failure::Gone);
        assert_eq!(end, Progress::Failed(refused), "question {gone}");
    }
}
