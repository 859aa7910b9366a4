//! The FUSE file and the loop device against the real kernel. Needs root and FUSE.

#![allow(missing_docs, clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use the rest")]
mod disk;
mod rig;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use disk::{MemoryDisk, pattern};
use rig::{Buffer, Map, Rig, fallocate, run};
use tyche_attach::fuse::FuseMount;
use tyche_attach::{Attachment, LoopAttachment, Stopped};
use tyche_block::{Errno, Operation};
use tyche_testkit::need_root;
use tyche_testkit::process::{Running, finish};
use tyche_testkit::wait::{PATIENCE, wait_until};

const MIB: usize = 1 << 20;

/// Makes the rig of a test. On a machine where the test cannot run, prints why and ends the test.
macro_rules! rig {
    () => {{
        need_root!("/dev/fuse", "/dev/loop-control");
        Rig::new()
    }};
}

/// Attaches a disk as a loop device, which is released with the rig at the latest.
fn attach(rig: &Rig, disk: &MemoryDisk) -> (LoopAttachment, PathBuf) {
    let attachment = LoopAttachment::start(disk.dyn_disk(), rig.name()).unwrap();
    let device = attachment.device_path().to_owned();
    rig.watch(&device);
    (attachment, device)
}

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

#[test]
fn the_file_reads_and_writes_the_disk() {
    let disk = MemoryDisk::new(8 * MIB, 512);
    let rig = rig!();
    let mut mount = FuseMount::start(&rig.dir().join("mnt"), disk.dyn_disk()).unwrap();
    let path = mount.device_path().to_owned();
    assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 20);
    let names: Vec<_> =
        fs::read_dir(rig.dir().join("mnt")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);

    // Not opened for direct I/O: the mount makes it direct.
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut data = Buffer::new(3 * MIB);
    data.bytes().copy_from_slice(&pattern(5, 3 * MIB));
    file.write_all_at(data.bytes(), 512).unwrap();
    assert!(disk.read(512..512 + 3 * MIB) == data.bytes());
    assert!(disk.take_log().iter().all(|&(_, _, len)| len <= 1 << 20));
    let mut back = Buffer::new(3 * MIB);
    file.read_exact_at(back.bytes(), 512).unwrap();
    assert!(back.bytes() == data.bytes());
    file.read_exact_at(&mut back.bytes()[77..][..512 << 10], 512).unwrap();
    assert!(back.bytes()[77..][..512 << 10] == data.bytes()[..512 << 10], "any buffer");

    assert_eq!(file.read_at(&mut [0; 512], 8 << 20).unwrap(), 0, "end of file");
    assert_eq!(file.read_at(&mut [0; 1024], (8 << 20) - 512).unwrap(), 512);
    let errno = |result: std::io::Result<usize>| result.unwrap_err().raw_os_error().unwrap();
    for offset in [8 << 20, (8 << 20) + 3, (8 << 20) - 5] {
        assert_eq!(errno(file.write_at(&[0; 512], offset)), libc::ENOSPC);
    }
    file.set_len(4096).unwrap_err();
    assert_eq!(mount.stop(false).unwrap(), Stopped::InUse);
    file.read_exact_at(&mut back.bytes()[..512], 0).unwrap();
    drop(file);
    assert_eq!(mount.stop(false).unwrap(), Stopped::Gone);
    assert!(!path.exists() && !rig.dir().join("mnt").exists());
    disk.wait_all_buffers_back();
}

#[test]
fn the_file_takes_any_offset_and_length() {
    for block_size in [512, 4096] {
        // So small an arena that memory has to be waited for.
        let disk = MemoryDisk::with(8 * MIB, block_size, 64, |_| {});
        let mut expected = pattern(3, 8 * MIB);
        disk.write(0, &expected);
        let rig = rig!();
        let mount = FuseMount::start(&rig.dir().join("mnt"), disk.dyn_disk()).unwrap();
        let path = mount.device_path();
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        for (offset, len) in [
            (0, 3),
            (1001, 3),
            (510, 4),
            (4095, 4098),
            (77, 300_000),
            (8192, 700),
            (8 * MIB - 9, 9),
        ] {
            let data = pattern(len as u8, len);
            let mut back = vec![0; len];
            file.read_exact_at(&mut back, offset as u64).unwrap();
            assert!(back == expected[offset..][..len], "{offset} {len}");
            file.write_all_at(&data, offset as u64).unwrap();
            expected[offset..][..len].copy_from_slice(&data);
            assert!(disk.read(0..8 * MIB) == expected, "{offset} {len}");
        }
        assert_eq!(file.read_at(&mut [0; 100], (8 << 20) - 9).unwrap(), 9, "end of file");
        disk.take_log();
        file.write_all_at(&[7; 3], 100).unwrap();
        let write = Operation::Write { fua: false };
        assert_eq!(disk.take_log(), [(Operation::Read, 0, block_size), (write, 0, block_size)]);
        file.write_all_at(&[7; 8192], 4096).unwrap();
        assert_eq!(disk.take_log(), [(write, 4096, 8192)], "whole blocks are not read");
        disk.fail(0..4096, Errno::IO);
        assert_eq!(file.write_at(&[7], 5).unwrap_err().raw_os_error(), Some(libc::EIO));
        drop(mount);
        disk.wait_all_buffers_back();
    }
}

#[test]
fn writes_to_parts_of_one_block_are_all_kept() {
    const THREADS: usize = 8;
    let disk = MemoryDisk::new(MIB, 4096);
    let rig = rig!();
    let mount = FuseMount::start(&rig.dir().join("mnt"), disk.dyn_disk()).unwrap();
    let file = OpenOptions::new().write(true).open(mount.device_path()).unwrap();
    let (data, file) = (pattern(21, 256 << 10), &file);
    thread::scope(|scope| {
        for first in 0..THREADS {
            let parts = data.chunks(500).enumerate().skip(first).step_by(THREADS);
            scope.spawn(move || {
                for (number, part) in parts {
                    file.write_all_at(part, number as u64 * 500).unwrap();
                }
            });
        }
    });
    assert!(disk.read(0..256 << 10) == data);
}

#[test]
fn the_file_can_be_mapped() {
    let disk = MemoryDisk::new(MIB, 512);
    disk.write(0, &pattern(23, MIB));
    let rig = rig!();
    let mut mount = FuseMount::start(&rig.dir().join("mnt"), disk.dyn_disk()).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mount.device_path()).unwrap();
    let map = match Map::shared(&file, MIB) {
        Ok(map) => map,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
            return println!("SKIPPED: before Linux 6.6, no file with direct I/O is mapped");
        }
    };
    assert!(map.read(0, MIB) == pattern(23, MIB));
    map.write(5000, b"map");
    let mut back = [0; 3];
    file.read_exact_at(&mut back, 5000).unwrap();
    assert_eq!(&back, b"map", "a read sees what was written to the map");
    file.write_all_at(b"file", 5003).unwrap();
    assert_eq!(map.read(5000, 7), b"mapfile", "and the map what was written");
    map.write(MIB - 1, &[99]);
    drop(file);
    assert_eq!(mount.stop(false).unwrap(), Stopped::InUse, "it is mapped");
    drop(map);
    assert_eq!(disk.read(5000..5007), b"mapfile");
    assert_eq!(disk.read(MIB - 1..MIB), [99]);
    assert_eq!(mount.stop(false).unwrap(), Stopped::Gone);
}

#[test]
fn force_ends_a_write_that_waits_for_its_block() {
    let disk = MemoryDisk::new(MIB, 512);
    let rig = rig!();
    let mut mount = FuseMount::start(&rig.dir().join("mnt"), disk.dyn_disk()).unwrap();
    let file = OpenOptions::new().write(true).open(mount.device_path()).unwrap();
    disk.hold();
    let writer = thread::spawn(move || file.write_at(b"abc", 1001).unwrap_err());
    disk.wait_held(1);
    let start = Instant::now();
    assert_eq!(mount.stop(true).unwrap(), Stopped::Gone);
    assert!(start.elapsed() < PATIENCE / 2, "stopping took {:?}", start.elapsed());
    writer.join().unwrap();
    disk.release();
    disk.wait_all_buffers_back();
}

#[test]
fn sync_and_fallocate_reach_the_disk() {
    let disk = MemoryDisk::new(8 * MIB, 4096);
    disk.write(0, &pattern(9, 8 * MIB));
    let rig = rig!();
    let mount = FuseMount::start(&rig.dir().join("mnt"), disk.dyn_disk()).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mount.device_path()).unwrap();
    disk.take_log();

    file.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.take_log(), [(Operation::Flush, 0, 0); 2]);
    disk.fail_flushes(Some(Errno::IO));
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    disk.take_log();

    let keep = libc::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | keep, 4096, 8192).unwrap();
    fallocate(&file, libc::FALLOC_FL_ZERO_RANGE | keep, 16384, 4096).unwrap();
    assert_eq!(
        disk.take_log(),
        [
            (Operation::WriteZeroes { fua: false, may_unmap: true }, 4096, 8192),
            (Operation::WriteZeroes { fua: false, may_unmap: false }, 16384, 4096),
        ]
    );
    assert_eq!(disk.read(4096..12288), vec![0; 8192]);
    let refused = |mode, offset, len| fallocate(&file, mode, offset, len).unwrap_err();
    assert_eq!(refused(0, 0, 4096), libc::EOPNOTSUPP);
    assert_eq!(refused(libc::FALLOC_FL_PUNCH_HOLE | keep, 100, 4096), libc::EINVAL);
    assert_eq!(refused(libc::FALLOC_FL_PUNCH_HOLE | keep, 8 << 20, 4096), libc::EINVAL);
    disk.fail(0..4096, Errno::IO);
    assert_eq!(refused(libc::FALLOC_FL_ZERO_RANGE | keep, 0, 8192), libc::EIO);

    let path = mount.device_path();
    let synced = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(path).unwrap();
    disk.take_log();
    synced.write_all_at(&[1; 4096], 8192).unwrap();
    assert_eq!(disk.take_log()[0], (Operation::Write { fua: true }, 8192, 4096));
}

#[test]
fn a_file_system_lives_on_the_loop_device() {
    for block_size in [512, 4096] {
        let disk = MemoryDisk::new(64 * MIB, block_size);
        let rig = rig!();
        let (mut attachment, device) = attach(&rig, &disk);
        let name = device.to_str().unwrap();
        assert_eq!(run("blockdev", &["--getss", name]).trim(), block_size.to_string());
        assert_eq!(run("blockdev", &["--getsize64", name]).trim(), (64 * MIB).to_string());

        run("mkfs.ext4", &["-q", name]);
        let mnt = rig.mount_ext4(&device);
        let data = pattern(11, 9 * MIB + 123);
        fs::write(mnt.join("file"), &data).unwrap();
        fs::create_dir(mnt.join("dir")).unwrap();
        for i in 0..100 {
            fs::write(mnt.join(format!("dir/{i}")), &data[..i * 100]).unwrap();
        }
        disk.take_log();
        File::open(mnt.join("file")).unwrap().sync_all().unwrap();
        assert!(disk.take_log().iter().any(|&(operation, _, _)| operation == Operation::Flush));

        assert_eq!(attachment.stop(false).unwrap(), Stopped::InUse, "it is mounted");
        assert!(fs::read(mnt.join("file")).unwrap() == data, "and goes on to work");
        rig.unmount(&mnt);
        run("fsck.ext4", &["-f", "-n", name]);

        let mnt = rig.mount_ext4(&device);
        assert!(fs::read(mnt.join("file")).unwrap() == data);
        for i in 0..100 {
            assert!(fs::read(mnt.join(format!("dir/{i}"))).unwrap() == data[..i * 100]);
        }
        rig.unmount(&mnt);
        assert_eq!(attachment.stop(false).unwrap(), Stopped::Gone);
        assert!(!rig.is_bound(&device), "{name} is still bound");
        assert!(!rig.dir().join("run").exists());
        disk.wait_all_buffers_back();
    }
}

#[test]
fn direct_io_discard_and_zeroes_on_the_loop_device() {
    let disk = MemoryDisk::new(32 * MIB, 512);
    let content = pattern(13, 32 * MIB);
    disk.write(0, &content);
    let rig = rig!();
    let (_attachment, device) = attach(&rig, &disk);
    let name = device.to_str().unwrap();

    let copy = rig.dir().join("copy");
    let of = format!("of={}", copy.display());
    let input = format!("if={name}");
    run("dd", &[&input, &of, "bs=1M", "iflag=direct", "status=none"]);
    assert!(fs::read(&copy).unwrap() == content);
    let changed = pattern(17, 32 * MIB);
    fs::write(&copy, &changed).unwrap();
    let (input, of) = (format!("if={}", copy.display()), format!("of={name}"));
    disk.take_log();
    run("dd", &[&input, &of, "bs=1M", "oflag=direct", "conv=fsync,notrunc", "status=none"]);
    assert!(disk.read(0..32 * MIB) == changed);
    let log = disk.take_log();
    assert!(log.contains(&(Operation::Flush, 0, 0)));
    assert!(log.iter().any(|&(_, _, len)| len == 512 << 10), "large requests stay large");

    run("blkdiscard", &["-o", "1M", "-l", "2M", name]);
    let discarded = (Operation::WriteZeroes { fua: false, may_unmap: true }, MIB as u64, 2 << 20);
    assert!(disk.take_log().contains(&discarded));
    assert_eq!(disk.read(MIB..3 * MIB), vec![0; 2 * MIB]);
    assert!(disk.read(0..MIB) == changed[..MIB]);
    run("blkdiscard", &["-z", "-o", "4M", "-l", "1M", name]);
    assert_eq!(disk.read(4 * MIB..5 * MIB), vec![0; MIB]);
    assert!(disk.take_log().iter().all(|(operation, ..)| {
        *operation == Operation::WriteZeroes { fua: false, may_unmap: false }
            || *operation == Operation::Read
    }));

    disk.fail(10 << 20..(10 << 20) + 4096, Errno::IO);
    let file = direct(&device);
    let mut buffer = Buffer::new(4096);
    let errno = |result: std::io::Result<usize>| result.unwrap_err().raw_os_error();
    assert_eq!(errno(file.read_at(buffer.bytes(), 10 << 20)), Some(libc::EIO));
    assert_eq!(errno(file.write_at(buffer.bytes(), 10 << 20)), Some(libc::EIO));
    file.read_exact_at(buffer.bytes(), 11 << 20).unwrap();
    disk.fail_flushes(Some(Errno::IO));
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
}

#[test]
fn direct_io_with_buffers_that_begin_anywhere() {
    let disk = MemoryDisk::new(16 * MIB, 4096);
    let rig = rig!();
    let (_attachment, device) = attach(&rig, &disk);
    let file = direct(&device);
    let mut buffer = Buffer::new(5 * MIB);
    for skip in [0, 512, 2048, 3584] {
        let data = pattern(skip as u8, 4 * MIB);
        let part = &mut buffer.bytes()[skip..][..4 * MIB];
        part.copy_from_slice(&data);
        file.write_all_at(part, MIB as u64).unwrap();
        assert!(disk.read(MIB..5 * MIB) == data);
        part.fill(0);
        file.read_exact_at(part, MIB as u64).unwrap();
        assert!(part == data);
    }
    // Many small pieces of memory for one large request.
    let data = pattern(99, MIB);
    let mut parts: Vec<Buffer> = (0..256).map(|_| Buffer::new(8192)).collect();
    let slices: Vec<_> = parts
        .iter_mut()
        .zip(data.chunks(4096))
        .map(|(part, chunk)| {
            let bytes = &mut part.bytes()[512..][..4096];
            bytes.copy_from_slice(chunk);
            std::io::IoSlice::new(bytes)
        })
        .collect();
    assert_eq!(rustix::io::pwritev(&file, &slices, 8 << 20).unwrap(), MIB);
    assert!(disk.read(8 * MIB..9 * MIB) == data);
}

#[test]
fn a_disk_without_discard_is_zeroed_by_writing() {
    let disk = MemoryDisk::with(4 * MIB, 512, 4096, |geometry| geometry.discard = false);
    let content = pattern(1, 4 * MIB);
    disk.write(0, &content);
    let rig = rig!();
    let (_attachment, device) = attach(&rig, &disk);
    let name = device.to_str().unwrap();
    // The kernel accepts the first discard, which did nothing, and then offers no more.
    run("blkdiscard", &[name]);
    assert!(disk.read(0..4 * MIB) == content);
    let done = finish(Command::new("blkdiscard").arg(name), PATIENCE);
    assert!(!done.success(), "{done:?}");
    run("blkdiscard", &["-z", name]);
    assert_eq!(disk.read(0..4 * MIB), vec![0; 4 * MIB]);
}

#[test]
fn read_only_disks_cannot_be_written() {
    let disk = MemoryDisk::with(4 * MIB, 512, 4096, |geometry| geometry.read_only = true);
    let rig = rig!();
    let (_attachment, device) = attach(&rig, &disk);
    assert_eq!(run("blockdev", &["--getro", device.to_str().unwrap()]).trim(), "1");
    let error = OpenOptions::new().write(true).open(&device).and_then(|f| f.write_at(&[0; 512], 0));
    assert!(matches!(error.unwrap_err().raw_os_error(), Some(libc::EPERM | libc::EACCES)));
    let mut bytes = vec![1; 4096];
    File::open(&device).unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, vec![0; 4096]);
    assert!(disk.take_log().iter().all(|&(operation, ..)| !operation.modifies()));
}

#[test]
fn a_grown_disk_is_a_grown_device() {
    let disk = MemoryDisk::new(4 * MIB, 512);
    let rig = rig!();
    let (mut attachment, device) = attach(&rig, &disk);
    disk.grow(6 * MIB);
    attachment.resized().unwrap();
    let size = run("blockdev", &["--getsize64", device.to_str().unwrap()]);
    assert_eq!(size.trim(), (6 * MIB).to_string());
    let file = direct(&device);
    let mut buffer = Buffer::new(4096);
    buffer.bytes().fill(0x77);
    file.write_all_at(buffer.bytes(), 5 << 20).unwrap();
    assert_eq!(disk.read(5 * MIB..5 * MIB + 4096), vec![0x77; 4096]);
}

#[test]
fn cached_writes_reach_the_disk_before_the_device_goes() {
    let disk = MemoryDisk::new(4 * MIB, 512);
    let rig = rig!();
    let (mut attachment, device) = attach(&rig, &disk);
    let data = pattern(19, 2 * MIB);
    OpenOptions::new().write(true).open(&device).unwrap().write_all(&data).unwrap();
    assert_eq!(attachment.stop(false).unwrap(), Stopped::Gone);
    assert!(disk.read(0..2 * MIB) == data);
}

#[test]
fn force_ends_a_disk_that_does_not_answer() {
    let disk = MemoryDisk::new(4 * MIB, 512);
    let rig = rig!();
    let (mut attachment, device) = attach(&rig, &disk);
    // A cached write that delays the last close, and a reader that waits.
    OpenOptions::new().write(true).open(&device).unwrap().write_all(&[1; 4096]).unwrap();
    let file = direct(&device);
    disk.hold();
    let (sender, result) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut buffer = Buffer::new(4096);
        sender.send(file.read_at(buffer.bytes(), MIB as u64)).unwrap();
    });
    disk.wait_held(1);
    let start = Instant::now();
    let _ = attachment.stop(true).unwrap();
    assert!(start.elapsed() < PATIENCE / 2, "stopping took {:?}", start.elapsed());
    let error = result.recv_timeout(PATIENCE).expect("the reader gets an answer").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    reader.join().unwrap();
    wait_until("the device is gone", || !rig.is_bound(&device));
    assert_eq!(attachment.stop(true).unwrap(), Stopped::Gone);
    disk.release();
    disk.wait_all_buffers_back();
}

#[test]
fn force_on_a_mounted_device_leaves_errors_and_then_nothing() {
    let disk = MemoryDisk::new(64 * MIB, 4096);
    let rig = rig!();
    let (mut attachment, device) = attach(&rig, &disk);
    run("mkfs.ext4", &["-q", device.to_str().unwrap()]);
    let mnt = rig.mount_ext4(&device);
    assert_eq!(attachment.stop(true).unwrap(), Stopped::InUse);
    assert!(rig.is_bound(&device));
    let mut buffer = Buffer::new(4096);
    direct(&device).read_at(buffer.bytes(), 0).unwrap_err();
    rig.unmount(&mnt);
    wait_until("the device is gone", || !rig.is_bound(&device));
}

#[test]
fn mounts_are_replaced_only_when_dead() {
    let disk = MemoryDisk::new(MIB, 512);
    let rig = rig!();
    let path = rig.dir().join("mnt");
    let mount = FuseMount::start(&path, disk.dyn_disk()).unwrap();
    assert!(!FuseMount::clean_stale(&path).unwrap());
    let error = FuseMount::start(&path, disk.dyn_disk()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("unmount"), "{error}");
    assert!(!FuseMount::clean_stale(&rig.dir().join("no such directory")).unwrap());
    drop(mount);
    assert!(!path.exists());
}

/// A process in a mount namespace of its own has a copy of each mount, until it ends.
#[test]
fn a_copy_of_the_mount_elsewhere_holds_up_nothing() {
    let disk = MemoryDisk::new(MIB, 512);
    let rig = rig!();
    let path = rig.dir().join("mnt");
    for force in [false, true] {
        let mut mount = FuseMount::start(&path, disk.dyn_disk()).unwrap();
        let _elsewhere = Running::with_copied_mounts("exec sleep 600");
        let start = Instant::now();
        assert_eq!(mount.stop(force).unwrap(), Stopped::Gone);
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
        assert!(!path.exists());
    }
}

#[test]
fn a_file_that_is_open_elsewhere_is_in_use_and_force_ends_it() {
    let disk = MemoryDisk::new(MIB, 512);
    let rig = rig!();
    let path = rig.dir().join("mnt");
    let mut mount = FuseMount::start(&path, disk.dyn_disk()).unwrap();
    let script = format!("exec 7<{}/disk; echo open; read -r end; cat <&7", path.display());
    let mut elsewhere = Running::with_copied_mounts(&script);
    assert_eq!(elsewhere.line(), "open\n");
    assert_eq!(mount.stop(false).unwrap(), Stopped::InUse);
    assert!(path.join("disk").exists(), "nothing has changed");
    assert_eq!(mount.stop(true).unwrap(), Stopped::Gone);
    assert!(!elsewhere.end().success(), "the file can't be read any more");
}

/// The body of the unprivileged process.
#[test]
fn start_without_privileges() {
    if std::env::var_os("TYCHE_ATTACH_UNPRIVILEGED").is_none() {
        return;
    }
    let disk = MemoryDisk::new(MIB, 512);
    let error = LoopAttachment::start(disk.dyn_disk(), "disk").unwrap_err();
    println!("error={error}");
}

#[test]
fn without_root_the_error_says_so() {
    need_root!("/dev/fuse", "/dev/loop-control");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "start_without_privileges", "--nocapture"])
        .env("TYCHE_ATTACH_UNPRIVILEGED", "1")
        .uid(65534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("run as root"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// The body of the killed process: see the tests below.
#[test]
fn serve_until_killed() {
    let Ok(name) = std::env::var("TYCHE_ATTACH_SERVE") else { return };
    let disk = MemoryDisk::new(64 * MIB, 512);
    let attachment = LoopAttachment::start(disk.dyn_disk(), &name).unwrap();
    let device = attachment.device_path().to_str().unwrap().to_owned();
    println!("serving={device}");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).unwrap() > 0 {
        match line.trim() {
            "hold" => disk.hold(),
            "wait" => disk.wait_held(1),
            other => panic!("{other}"),
        }
        println!("done={}", line.trim());
        line.clear();
    }
}

#[test]
fn a_killed_process_leaves_nobody_waiting() {
    let rig = rig!();
    for busy in [false, true] {
        let mut server = rig::Server::start(rig.name());
        let device = server.device.clone();
        rig.watch(&device);
        // Dirty pages in the cache of the device, whose last close is that of the dying process.
        let mut cached = OpenOptions::new().write(true).open(&device).unwrap();
        cached.write_all(&[1; 1 << 20]).unwrap();
        drop(cached);
        let reader = busy.then(|| {
            server.tell("hold");
            let arg = format!("if={}", device.display());
            let reader = Command::new("dd")
                .args([&arg, "of=/dev/null", "bs=4096", "count=1", "iflag=direct"])
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            server.tell("wait");
            reader
        });
        server.kill();
        if let Some(mut reader) = reader {
            let mut status = None;
            wait_until("the reader gets an answer", || {
                status = reader.try_wait().unwrap();
                status.is_some()
            });
            assert!(!status.unwrap().success());
        }
        wait_until("the device is gone", || !rig.is_bound(&device));
    }
}

#[test]
fn a_process_killed_below_a_mounted_file_system_leaves_nobody_waiting() {
    let rig = rig!();
    let mut server = rig::Server::start(rig.name());
    let device = server.device.clone();
    rig.watch(&device);
    run("mkfs.ext4", &["-q", device.to_str().unwrap()]);
    let mnt = rig.mount_ext4(&device);
    fs::write(mnt.join("file"), vec![1; 8 * MIB]).unwrap();
    server.kill();
    let _ = File::create(mnt.join("other")).and_then(|file| file.sync_all()).unwrap_err();
    rig.unmount(&mnt);
    wait_until("the device is gone", || !rig.is_bound(&device));
}
