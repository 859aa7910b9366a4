//! The vhost-user back end, with a front end and a driver of the test's own.

#![allow(missing_docs, clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use the rest")]
mod disk;
mod guest;

use std::num::NonZeroU16;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use tyche_attach::vhost_user::VhostUserBlk;
use tyche_attach::{Attachment, Stopped};
use tyche_block::{Errno, Operation};
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::disk::{MemoryDisk, pattern};
use crate::guest::{Descriptor, FEATURE_FLUSH, Guest, IO_ERROR, OK, UNSUPPORTED};

const MIB: usize = 1 << 20;

fn start(disk: &MemoryDisk, path: &Path) -> VhostUserBlk {
    let queues = NonZeroU16::new(2).unwrap();
    VhostUserBlk::start(path, "tyche-disk", disk.dyn_disk(), queues).unwrap()
}

#[test]
fn a_guest_uses_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let disk = MemoryDisk::new(64 * MIB, 512);
    let mut attachment = start(&disk, &path);
    assert_eq!(attachment.device_path(), path);
    let mut guest = Guest::connect(&path, !0, true);
    assert_eq!(guest.config(0, 8), (131_072_u64).to_le_bytes());
    assert_eq!(guest.config(20, 4), 512_u32.to_le_bytes());
    assert_eq!(guest.config(34, 2), [2, 0]);

    for (queue, len) in [(0, 512), (1, 16 << 10), (0, 512 << 10), (1, 2 * MIB)] {
        let data = pattern(len as u8, len);
        assert_eq!(guest.write(queue, 2048, &data), OK);
        assert!(disk.read(MIB..MIB + len) == data);
        assert_eq!(guest.read(queue, 2048, len), (OK, data), "{len} bytes");
    }
    disk.take_log();
    assert_eq!(guest.flush(0), OK);
    assert_eq!(guest.range(0, guest::DISCARD, 8, 16, 0), OK);
    assert_eq!(guest.range(1, guest::WRITE_ZEROES, 64, 8, 1), OK);
    assert_eq!(
        disk.take_log(),
        [
            (Operation::Flush, 0, 0),
            (Operation::Discard, 4096, 8192),
            (Operation::WriteZeroes { fua: false, may_unmap: true }, 32768, 4096),
        ]
    );
    assert_eq!(guest.identify(1), *b"tyche-disk\0\0\0\0\0\0\0\0\0\0");

    assert_eq!(attachment.stop(false).unwrap(), Stopped::InUse);
    assert_eq!(guest.flush(0), OK, "and it goes on to work");
    drop(guest);
    disk.wait_all_buffers_back();
    assert_eq!(attachment.counts().errors, 0);
    assert_eq!(attachment.stop(true).unwrap(), Stopped::Gone);
    assert!(!path.exists());
}

#[test]
fn answers_overtake_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let disk = MemoryDisk::new(64 * MIB, 512);
    disk.write(0, &pattern(3, 64 * MIB));
    let _attachment = start(&disk, &path);
    let mut guest = Guest::connect(&path, !0, true);
    let expected = pattern(3, 64 * MIB);
    for round in 0..20 {
        let reads: Vec<_> = (0..8_usize)
            .map(|i| {
                let (sector, len) = ((round * 37 + i * 101) as u64, 512 << (i % 8));
                (sector, len, guest.submit_read(i % 2, sector, len))
            })
            .collect();
        for (sector, len, token) in reads {
            let (status, data) = guest.await_read(token, len);
            assert_eq!(status, OK);
            assert!(data == expected[sector as usize * 512..][..len], "round {round}, {len}");
        }
    }
}

#[test]
fn errors_are_those_of_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let disk = MemoryDisk::with(MIB, 4096, 4096, |geometry| geometry.read_only = true);
    let attachment = start(&disk, &path);
    let mut guest = Guest::connect(&path, !0, true);
    disk.fail(0..4096, Errno::IO);
    assert_eq!(guest.read(0, 0, 4096).0, IO_ERROR);
    assert_eq!(guest.write(0, 8, &[1; 4096]), IO_ERROR, "read-only");
    assert_eq!(guest.read(0, 8, 512).0, IO_ERROR, "not a whole block");
    assert_eq!(guest.read(0, 2048, 4096).0, IO_ERROR, "past the end");
    assert_eq!(guest.read(0, u64::MAX / 256, 4096).0, IO_ERROR, "far past the end");
    assert_eq!(guest.range(0, guest::DISCARD, 8, u32::MAX, 0), IO_ERROR);
    assert_eq!(guest.range(0, guest::WRITE_ZEROES, 8, 8, 6), UNSUPPORTED);
    assert_eq!(guest.range(0, 99, 8, 8, 0), UNSUPPORTED);
    assert_eq!(guest.read(0, 8, 4096), (OK, vec![0; 4096]));
    assert_eq!(attachment.counts().errors, 8);
}

#[test]
fn a_guest_without_flushes_gets_durable_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let disk = MemoryDisk::new(MIB, 512);
    let _attachment = start(&disk, &path);
    let mut guest = Guest::connect(&path, !FEATURE_FLUSH, true);
    assert_eq!(guest.write(0, 0, &[1; 512]), OK);
    assert_eq!(disk.take_log(), [(Operation::Write { fua: true }, 0, 512)]);
}

#[test]
fn a_hostile_guest_harms_itself_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let disk = MemoryDisk::new(MIB, 512);
    let mut attachment = start(&disk, &path);
    let header = guest::HEADER;
    let chains: [(&str, &[Descriptor]); 7] = [
        ("a loop", &[Descriptor::read(header, 16).next(0)]),
        ("nothing to write", &[Descriptor::read(header, 16)]),
        ("no header", &[Descriptor::write(header, 1)]),
        ("a short header", &[Descriptor::read(header, 8).next(1), Descriptor::write(header, 1)]),
        (
            "a header nowhere",
            &[Descriptor::read(1 << 60, 16).next(1), Descriptor::write(header, 1)],
        ),
        (
            "a status nowhere",
            &[Descriptor::read(header, 16).next(1), Descriptor::write(1 << 60, 1)],
        ),
        (
            "more than there is memory",
            &[Descriptor::read(header, 16).next(1), Descriptor::write(0, u32::MAX)],
        ),
    ];
    for (what, chain) in chains {
        let mut guest = Guest::connect(&path, !0, false);
        guest.raw(0, chain);
        assert_eq!(guest.read(0, 0, 512).0, OK, "after {what}");
    }
    let mut guest = Guest::connect(&path, !0, false);
    let before = attachment.counts().malformed;
    guest.skip_available(0, 5000);
    wait_until("the ring is refused", || attachment.counts().malformed > before);
    assert_eq!(guest.read(1, 0, 512).0, OK, "the other queue goes on");
    drop(guest);
    assert_eq!(attachment.stop(true).unwrap(), Stopped::Gone);
    disk.wait_all_buffers_back();
}

#[test]
fn requests_in_flight_are_served_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let dead = MemoryDisk::new(MIB, 512);
    dead.write(0, &pattern(5, MIB));
    let mut attachment = start(&dead, &path);
    let mut guest = Guest::connect(&path, !0, true);
    dead.hold();
    let first = guest.submit_read(0, 8, 4096);
    dead.wait_held(1);
    let second = guest.submit_write(0, 64, &pattern(7, 8192));
    dead.wait_held(2);
    // These requests are answered by this process, and must not be executed again by the next.
    dead.release();
    assert_eq!(guest.await_read(first, 4096).0, OK);
    assert_eq!(guest.await_status(second), OK);
    dead.hold();
    let waiting = [guest.submit_read(0, 128, 512), guest.submit_read(0, 16, 65536)];
    let written = guest.submit_write(1, 640, &pattern(9, 4096));
    dead.wait_held(3);
    assert_eq!(attachment.stop(true).unwrap(), Stopped::Gone);
    assert!(guest.is_disconnected());

    let disk = MemoryDisk::new(MIB, 512);
    disk.write(0, &pattern(5, MIB));
    let _attachment = start(&disk, &path);
    guest.reconnect(&path);
    let last = guest.submit_read(0, 0, 512);
    for (token, sector, len) in [(waiting[0], 128, 512), (waiting[1], 16, 65536), (last, 0, 512)] {
        let (status, data) = guest.await_read(token, len);
        assert_eq!(status, OK);
        assert!(data == pattern(5, MIB)[sector * 512..][..len], "sector {sector}");
    }
    assert_eq!(guest.await_status(written), OK);
    assert!(disk.read(640 * 512..640 * 512 + 4096) == pattern(9, 4096));
    assert_eq!(disk.take_log().len(), 4, "each is executed once");
    dead.release();
    dead.wait_all_buffers_back();
}

#[test]
fn a_front_end_may_stop_a_queue_and_leave() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let disk = MemoryDisk::new(MIB, 512);
    let attachment = start(&disk, &path);
    for round in 1..=3 {
        let mut guest = Guest::connect(&path, !0, false);
        assert_eq!(guest.write(0, 0, &[round; 512]), OK);
        disk.hold();
        let token = guest.submit_read(0, 0, 512);
        disk.wait_held(1);
        // Stopping waits for requests in flight.
        let disk_to_release = disk.clone();
        let releaser = thread::spawn(move || disk_to_release.release());
        assert_eq!(guest.stop(0), 2);
        assert_eq!(guest.await_read(token, 512), (OK, vec![round; 512]));
        releaser.join().unwrap();
        assert_eq!(attachment.counts().connected, u64::from(round));
    }
}

#[test]
fn a_queue_that_feeds_itself_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let disk = MemoryDisk::new(MIB, 512);
    let mut attachment = start(&disk, &path);
    let mut guest = Guest::connect(&path, !0, false);
    guest.feed_from_itself(0);
    let (sender, stopped) = mpsc::channel();
    thread::spawn(move || {
        let base = guest.stop(0);
        sender.send((base, attachment.stop(true).unwrap()))
    });
    assert_eq!(stopped.recv_timeout(PATIENCE), Ok((1, Stopped::Gone)));
}
