//! A disk of a target used by an initiator, over links in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod losses;
mod resets;
mod rig;
mod server;
mod target;
mod threads;

use tyche_block::{Errno, Geometry, Operation};
use tyche_fcoe::Obstacle;
use tyche_fcoe::scsi::{Lun, Uuid};
use tyche_proto::{ExportState, Failure};
use tyche_remote::Notice;
use tyche_testkit::random::Random;

use rig::{Rig, SIZE};

const WRITE: Operation = Operation::Write { fua: false };

#[test]
fn blocks_of_all_lengths_are_written_and_read() {
    let rig = Rig::start(|_| {}, |_| {});
    rig.await_connected();
    let mut random = Random(1);
    for len in [512, 2048, 2112 / 512 * 512, 4096, 65536, 1 << 20] {
        let data: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let offset = random.below((SIZE - len as u64) / 512) * 512;
        rig.write(offset, &data).unwrap();
        assert!(rig.read(offset, len).unwrap() == data, "{len} bytes at {offset}");
    }
    rig.run(Operation::Flush, 0, 0).unwrap();
    let zeroes = Operation::WriteZeroes { fua: true, may_unmap: true };
    rig.run(zeroes, 0, SIZE as u32).unwrap();
    assert!(rig.read(SIZE - 4096, 4096).unwrap().iter().all(|byte| *byte == 0));
    rig.run(Operation::Discard, 4096, 8192).unwrap();
    assert_eq!(rig.run(WRITE, SIZE, 0), Err(Errno::INVAL));
    assert_eq!(rig.read(SIZE, 512), Err(Errno::INVAL));
}

#[test]
fn many_requests_at_once_share_the_exchanges() {
    let rig = Rig::start(|options| options.session.queue_size = 32, |_| {});
    rig.await_connected();
    let data = vec![7; 8192];
    let writes = (0..200).map(|at| rig.submit(WRITE, at * 8192, 8192, Some(&data)));
    let writes: Vec<_> = writes.collect();
    assert!(writes.into_iter().all(|write| write.recv().unwrap().result == Ok(())));
    let reads: Vec<_> =
        (0..200).map(|at| rig.submit(Operation::Read, at * 8192, 8192, None)).collect();
    for read in reads {
        let done = read.recv().unwrap();
        assert_eq!(done.result, Ok(()));
        assert!(done.buffer.unwrap()[..8192] == data);
    }
}

#[test]
fn a_lun_that_is_not_there_is_an_obstacle_and_those_that_are_are_named() {
    let rig = Rig::start(|options| options.lun = Lun::peripheral(5), |_| {});
    rig.await_obstacle(|obstacle| *obstacle == Obstacle::NoLun(vec![Lun::ZERO]));
}

#[test]
fn a_device_does_not_get_another_disk_than_it_had() {
    let known = ExportState {
        target: Uuid::nil(),
        uuid: Uuid::from_u128(2),
        geometry: Geometry::new(SIZE, 512),
        generation: Uuid::nil(),
    };
    let rig = Rig::start(|options| options.resumes = Some(known), |_| {});
    rig.expect(|notice| *notice == Notice::Failed(Failure::ExportChanged));
    assert_eq!(rig.read(0, 512), Err(Errno::IO));
}

#[test]
fn a_disk_that_is_used_read_only_refuses_writes() {
    let rig = Rig::start(|options| options.session.read_only = true, |_| {});
    rig.await_connected();
    assert_eq!(rig.write(0, &[1; 512]), Err(Errno::ROFS));
    assert_eq!(rig.read(0, 512), Ok(vec![0; 512]));
}

#[test]
fn another_port_than_the_target_s_is_not_waited_for_in_silence() {
    let rig = Rig::start(|options| options.target.0 += 1, |_| {});
    rig.await_obstacle(|obstacle| *obstacle == Obstacle::NotHeard);
}
