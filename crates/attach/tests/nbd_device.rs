//! The kernel's nbd devices, on a kernel that has the driver.

#![allow(missing_docs, clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests hold back and fail more")]
mod disk;
#[allow(dead_code, unused_imports, unused_macros, reason = "other tests mount more")]
mod rig;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tyche_attach::nbd::{NbdDevice, NbdDeviceOptions};
use tyche_attach::{Attachment, Stopped};
use tyche_block::{ArenaSize, Errno, Operation};
use tyche_testkit::need_root;
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::disk::{MemoryDisk, pattern};
use crate::rig::{Buffer, Rig, Server, fallocate, run};

const MIB: usize = 1 << 20;

/// Skips the test, with a message, where it can't run.
macro_rules! need_nbd {
    () => {
        let _ = Command::new("modprobe").args(["-q", "nbd"]).status();
        need_root!("/sys/module/nbd");
    };
}

fn options(identity: &str, sockets: u16) -> NbdDeviceOptions {
    let mut options = NbdDeviceOptions::new(format!("{identity}-{}", std::process::id()));
    options.sockets = NonZeroU16::new(sockets).unwrap();
    options.answer_within = Some(Duration::from_secs(5));
    options
}

fn open(device: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(device).unwrap()
}

fn queue(device: &NbdDevice, file: &str) -> String {
    let name = device.device_path().file_name().unwrap().to_str().unwrap();
    fs::read_to_string(format!("/sys/block/{name}/queue/{file}")).unwrap().trim().to_owned()
}

fn size(device: &Path) -> u64 {
    run("blockdev", &["--getsize64", device.to_str().unwrap()]).trim().parse().unwrap()
}

#[test]
fn requests_of_every_kind_reach_the_disk() {
    need_nbd!();
    for (block_size, sockets) in [(512, 1), (4096, 2)] {
        let disk = MemoryDisk::new(64 * MIB, block_size);
        let options = options("kinds", sockets);
        let mut device = NbdDevice::start(disk.dyn_disk(), &options).unwrap();
        let path = device.device_path().to_owned();
        assert_eq!(size(&path), 64 << 20);
        assert_eq!(queue(&device, "logical_block_size"), block_size.to_string());
        assert_eq!(queue(&device, "max_sectors_kb"), "4096", "a quarter of the arena");
        assert_eq!(queue(&device, "write_cache"), "write back");
        assert_eq!(queue(&device, "fua"), "1");
        assert_eq!(queue(&device, "rotational"), "0");

        let file = open(&path, libc::O_DIRECT);
        disk.take_log();
        let mut data = Buffer::new(8 * MIB);
        data.bytes().copy_from_slice(&pattern(1, 8 * MIB));
        file.write_all_at(data.bytes(), 1 << 20).unwrap();
        assert!(disk.read(MIB..9 * MIB) == data.bytes());
        let longest = disk.take_log().into_iter().map(|(_, _, len)| len).max().unwrap();
        assert!(longest > 128 << 10, "larger requests than the default, not {longest}");
        let mut back = Buffer::new(8 * MIB);
        file.read_exact_at(back.bytes(), 1 << 20).unwrap();
        assert!(back.bytes() == data.bytes());

        disk.take_log();
        file.sync_all().unwrap();
        assert_eq!(disk.take_log(), [(Operation::Flush, 0, 0)]);
        let synced = open(&path, libc::O_DIRECT | libc::O_DSYNC);
        synced.write_all_at(&data.bytes()[..4096], 4096).unwrap();
        let fua = (Operation::Write { fua: true }, 4096, 4096);
        assert!(disk.take_log().contains(&fua));

        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // Linux lets nbd devices write zeroes since 6.12.
        let zeroes = queue(&device, "write_zeroes_max_bytes") != "0";
        let punched = fallocate(&file, hole, 1 << 20, 1 << 20);
        assert_eq!(punched, if zeroes { Ok(()) } else { Err(libc::EOPNOTSUPP) });
        assert_eq!(disk.read(MIB..2 * MIB) == vec![0; MIB], zeroes);
        let name = path.to_str().unwrap();
        disk.take_log();
        run("blkdiscard", &["-o", "2097152", "-l", "1048576", name]);
        assert!(disk.take_log().contains(&(Operation::Discard, 2 << 20, 1 << 20)));

        disk.fail(0..512, Errno::IO);
        let error = file.read_at(&mut back.bytes()[..4096], 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        drop((file, synced));
        assert_eq!(device.stop(false).unwrap(), Stopped::Gone);
        assert_eq!(NbdDevice::find(&options.identity), None);
        disk.wait_all_buffers_back();
    }
}

#[test]
fn a_file_system_lives_on_it_and_keeps_it() {
    need_nbd!();
    let _ = Command::new("modprobe").args(["-q", "ext4"]).status();
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("ext4") {
        eprintln!("SKIPPED: no ext4");
        return;
    }
    let disk = MemoryDisk::new(64 * MIB, 512);
    let mut device = NbdDevice::start(disk.dyn_disk(), &options("fs", 2)).unwrap();
    let path = device.device_path().to_owned();
    run("mkfs.ext4", &["-q", path.to_str().unwrap()]);
    let rig = Rig::new();
    let mnt = rig.mount_ext4(&path);
    let data = pattern(11, 9 * MIB + 123);
    fs::write(mnt.join("file"), &data).unwrap();
    assert_eq!(device.stop(false).unwrap(), Stopped::InUse, "it is mounted");
    run("sh", &["-c", "echo 3 > /proc/sys/vm/drop_caches"]);
    assert!(fs::read(mnt.join("file")).unwrap() == data, "and goes on to work");
    rig.unmount(&mnt);
    run("e2fsck", &["-fn", path.to_str().unwrap()]);
    assert_eq!(device.stop(false).unwrap(), Stopped::Gone);
    assert_eq!(device.stop(true).unwrap(), Stopped::Gone, "again");
}

#[test]
fn a_disk_that_grows_is_seen_at_once() {
    need_nbd!();
    let disk = MemoryDisk::new(16 * MIB, 4096);
    let mut device = NbdDevice::start(disk.dyn_disk(), &options("grow", 1)).unwrap();
    let path = device.device_path().to_owned();
    let mut held = open(&path, 0);
    disk.grow(32 * MIB);
    device.resized().unwrap();
    assert_eq!(size(&path), 32 << 20);
    assert_eq!(queue(&device, "logical_block_size"), "4096");
    held.write_all_at(&pattern(3, 4096), (32 << 20) - 4096).unwrap();
    held.flush().unwrap();
    held.sync_all().unwrap();
    assert!(disk.read(32 * MIB - 4096..32 * MIB) == pattern(3, 4096));
    assert_eq!(held.read(&mut [0; 16]).unwrap(), 16);
}

#[test]
fn a_read_only_disk_is_a_read_only_device() {
    need_nbd!();
    let disk = MemoryDisk::with(16 * MIB, 512, 4096, |geometry| geometry.read_only = true);
    let device = NbdDevice::start(disk.dyn_disk(), &options("ro", 1)).unwrap();
    let name = device.device_path().to_str().unwrap();
    assert_eq!(run("blockdev", &["--getro", name]).trim(), "1");
    let file = OpenOptions::new().write(true).open(name);
    let written = file.and_then(|file| file.write_at(&[1; 512], 0).and_then(|_| file.sync_all()));
    assert!(written.is_err());
    assert!(disk.read(0..512) == [0; 512]);
}

#[test]
fn force_ends_it_though_its_disk_never_answers() {
    need_nbd!();
    for sockets in [1, 3] {
        let disk = MemoryDisk::new(64 * MIB, 512);
        let mut device = NbdDevice::start(disk.dyn_disk(), &options("force", sockets)).unwrap();
        let path = device.device_path().to_owned();
        let file = Arc::new(open(&path, libc::O_DIRECT));
        disk.hold();
        let (sender, results) = mpsc::channel();
        // More than the connections' tables and sockets hold, so that some is in transit.
        for writer in 0..8 {
            let (file, sender) = (Arc::clone(&file), sender.clone());
            thread::spawn(move || {
                let mut data = Buffer::new(4 * MIB);
                let offset = (writer * 4 * MIB) as u64;
                sender.send(file.write_all_at(data.bytes(), offset)).unwrap();
            });
        }
        disk.wait_held(2);
        assert_eq!(device.stop(true).unwrap(), Stopped::InUse);
        for _ in 0..8 {
            results.recv_timeout(PATIENCE).unwrap().unwrap_err();
        }
        drop(file);
        let number = path.file_name().unwrap().to_str().unwrap().to_owned();
        let pid = format!("/sys/block/{number}/pid");
        wait_until("the last user is gone", || !Path::new(&pid).exists());
        disk.release();
        disk.wait_all_buffers_back();
    }
}

/// The body of the killed process.
#[test]
fn serve_until_killed() {
    let Some(dir) = std::env::var_os("TYCHE_ATTACH_SERVE") else { return };
    let disk = MemoryDisk::new(64 * MIB, 512);
    disk.write(0, &pattern(9, 64 * MIB));
    let mut options = NbdDeviceOptions::new(dir.to_str().unwrap());
    options.sockets = NonZeroU16::new(dir.to_str().unwrap().len() as u16 % 2 + 1).unwrap();
    options.answer_within = Some(Duration::ZERO);
    options.dead_timeout = PATIENCE;
    let device = NbdDevice::start(disk.dyn_disk(), &options).unwrap();
    println!("serving={}", device.device_path().display());
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).unwrap() > 0 {
        match line.trim() {
            "hold" => disk.hold(),
            "wait for 2" => disk.wait_held(2),
            "wait for 8" => disk.wait_held(8),
            other => panic!("{other}"),
        }
        println!("done={}", line.trim());
        line.clear();
    }
}

#[test]
fn a_new_process_serves_what_the_dead_one_owes() {
    need_nbd!();
    for identity in ["successor", "successors"] {
        let mut dead = Server::start(identity);
        let path = dead.device.clone();
        // Waits for the kernel's partition scan, which needs answers.
        let file = Arc::new(open(&path, libc::O_DIRECT));
        dead.tell("hold");
        let requests: Vec<_> = (0..8)
            .map(|i| {
                let file = Arc::clone(&file);
                thread::spawn(move || {
                    let mut data = Buffer::new(MIB);
                    let offset = (i * MIB) as u64;
                    if i % 2 == 0 {
                        file.read_exact_at(data.bytes(), offset)?;
                    } else {
                        data.bytes().copy_from_slice(&pattern(i as u8, MIB));
                        file.write_all_at(data.bytes(), offset)?;
                    }
                    Ok::<_, std::io::Error>(data)
                })
            })
            .collect();
        dead.tell("wait for 8");
        dead.kill();

        // It would not make a device with requests of 4 MiB, as that process has.
        let size = ArenaSize { all: 4096, kept: 64 };
        let disk = MemoryDisk::with(64 * MIB, 512, size, |_| {});
        disk.write(0, &pattern(9, 64 * MIB));
        let number = NbdDevice::find(identity).expect("it has outlived its process");
        let stranger = NbdDeviceOptions::new("stranger");
        NbdDevice::recover(number, disk.dyn_disk(), &stranger).unwrap_err();
        let options = NbdDeviceOptions::new(identity);
        let mut device = NbdDevice::recover(number, disk.dyn_disk(), &options).unwrap();
        assert_eq!(device.device_path(), path);
        assert_eq!(disk.dyn_disk().arena().kept(), 4096, "enough for several of its requests");
        let busy = NbdDevice::recover(number, disk.dyn_disk(), &options).unwrap_err();
        assert_eq!(busy.kind(), std::io::ErrorKind::ResourceBusy);
        for (i, request) in requests.into_iter().enumerate() {
            let mut data = request.join().unwrap().expect("no error reaches the program");
            let expected = match i % 2 {
                0 => pattern(9, 64 * MIB)[i * MIB..][..MIB].to_vec(),
                _ => pattern(i as u8, MIB),
            };
            assert!(data.bytes() == expected, "request {i}");
            assert!(disk.read(i * MIB..(i + 1) * MIB) == expected, "request {i}");
        }
        drop(file);
        assert_eq!(device.stop(false).unwrap(), Stopped::Gone);
    }
}

#[test]
fn what_a_dead_process_has_left_can_be_taken_away() {
    need_nbd!();
    let mut dead = Server::start("departed");
    // Waits for the kernel's partition scan, which needs answers.
    drop(open(&dead.device, 0));
    dead.tell("hold");
    // Another process opens the device: the files of this process do not count as its users.
    let mut reader = Command::new("dd");
    reader.arg(format!("if={}", dead.device.display()));
    reader.args(["of=/dev/null", "bs=8M", "count=1", "iflag=direct", "status=none"]);
    let mut reader = reader.spawn().unwrap();
    dead.tell("wait for 2");
    dead.kill();
    assert_eq!(NbdDevice::remove_orphan("departed", false).unwrap(), Stopped::InUse);
    assert_eq!(NbdDevice::remove_orphan("departed", true).unwrap(), Stopped::Gone);
    assert!(!reader.wait().unwrap().success());
    wait_until("its last user is gone", || NbdDevice::find("departed").is_none());
    assert_eq!(NbdDevice::remove_orphan("departed", false).unwrap(), Stopped::Gone);
}
