//! A block device: a loop device over a temporary file. Needs root.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tempfile::NamedTempFile;
use tyche_block::Operation;
use tyche_store::file::{Direct, FileOptions, FileStore, OpenError};
use tyche_store::{BackingError, ResizeError, Store};
use tyche_testkit::needs::missing;
use tyche_testkit::wait::wait_until;

use crate::drive::{Driver, WRITE, WRITE_FUA};
use crate::file::temporary;
use crate::model;

/// A loop device, detached when dropped.
struct Loop {
    device: PathBuf,
}

impl Loop {
    fn attach(file: &Path, arguments: &[&str]) -> Option<Self> {
        if let Some(reason) = missing(&["/dev/loop-control"]) {
            println!("SKIPPED: {reason}");
            return None;
        }
        let output =
            Command::new("losetup").args(["--find", "--show"]).args(arguments).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap().trim().into();
                Some(Self { device })
            }
            other => {
                println!("SKIPPED: no loop device: {other:?}");
                None
            }
        }
    }

    fn open(&self, options: &FileOptions) -> Result<FileStore, OpenError> {
        FileStore::open(&self.device, options)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(detached.is_ok_and(|status| status.success()), "{} stays", self.device.display());
    }
}

fn image() -> NamedTempFile {
    temporary(model::SIZE)
}

fn at_once() -> FileOptions {
    FileOptions { lock_wait: Duration::ZERO, ..FileOptions::default() }
}

#[test]
fn a_block_device_is_a_disk() {
    let mut seed = 300;
    for sector in ["512", "4096"] {
        for direct in [Direct::Auto, Direct::Off] {
            let file = image();
            let arguments = ["--sector-size", sector];
            let Some(device) = Loop::attach(file.path(), &arguments) else { return };
            let options = FileOptions { direct, ..FileOptions::default() };
            let oracle = {
                let store = device.open(&options).unwrap();
                println!("{store:?}");
                assert_eq!(store.geometry().block_size.to_string(), sector);
                assert!(direct == Direct::Off || store.is_direct());
                model::run(&store, seed, seed % 2 == 0, 30)
            };
            seed += 1;
            oracle.check(0, &fs::read(&device.device).unwrap());
        }
    }
}

#[test]
fn blocks_smaller_than_sectors_or_unfit_for_the_size_are_refused() {
    let file = image();
    let small = FileOptions { block_size: Some(512), ..at_once() };
    {
        let Some(device) = Loop::attach(file.path(), &["--sector-size", "4096"]) else { return };
        let error = device.open(&small).expect_err("sectors are larger");
        assert!(matches!(error, OpenError::BelowSector { sector: 4096, .. }), "{error}");
    }
    file.as_file().set_len(model::SIZE + 512).unwrap();
    let Some(device) = Loop::attach(file.path(), &[]) else { return };
    let large = FileOptions { block_size: Some(4096), ..at_once() };
    let error = device.open(&large).expect_err("the last sectors would be cut off");
    assert!(matches!(error, OpenError::Indivisible { .. }), "{error}");
    assert_eq!(device.open(&small).unwrap().geometry().size, model::SIZE + 512);
}

#[test]
fn a_block_device_has_one_user() {
    let file = image();
    let Some(device) = Loop::attach(file.path(), &[]) else { return };
    let store = device.open(&FileOptions::default()).unwrap();
    let error = device.open(&at_once()).expect_err("one writer");
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    drop(store);
    // An exclusive claim without a lock, as a mount has it.
    let claim = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let claimed = rustix::fs::open(&device.device, claim, Mode::empty()).unwrap();
    let error = device.open(&at_once()).expect_err("claimed");
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    device.open(&FileOptions { read_only: true, ..at_once() }).unwrap();
    drop(claimed);
    device.open(&FileOptions::default()).unwrap();
}

#[test]
fn a_write_protected_device_can_be_exported_read_only() {
    let file = image();
    let Some(device) = Loop::attach(file.path(), &["--read-only"]) else { return };
    let error = device.open(&at_once()).expect_err("write-protected");
    assert!(error.to_string().contains("export it read-only"), "{error}");
    let store = device.open(&FileOptions { read_only: true, ..at_once() }).unwrap();
    assert!(!store.geometry().discard);
    assert_eq!(Driver::new(&store, 1).read(0, 4096), [0; 4096]);
}

#[test]
fn a_rotational_disk_is_reported_as_such() {
    let file = image();
    let Some(device) = Loop::attach(file.path(), &[]) else { return };
    let name = device.device.file_name().unwrap();
    let turns = Path::new("/sys/block").join(name).join("queue/rotational");
    for (flag, rotational) in [("0", false), ("1", true)] {
        if let Err(error) = fs::write(&turns, flag) {
            println!("SKIPPED: {}: {error}", turns.display());
            return;
        }
        assert_eq!(device.open(&at_once()).unwrap().geometry().rotational, rotational);
    }
}

#[test]
fn a_discard_reaches_the_medium() {
    let file = image();
    let Some(device) = Loop::attach(file.path(), &[]) else { return };
    let store = device.open(&FileOptions::default()).unwrap();
    if !store.geometry().discard {
        println!("SKIPPED: the loop device does not discard");
        return;
    }
    let mut driver = Driver::new(&store, 1);
    driver.write(WRITE, 0, &vec![1; 2 << 20]).unwrap();
    let allocated = || {
        file.as_file().sync_all().unwrap();
        file.as_file().metadata().unwrap().blocks() * 512
    };
    let full = allocated();
    driver.run(Operation::Discard, 0, 1 << 20).result.unwrap();
    assert!(allocated() <= full - (1 << 20));
}

#[test]
fn the_identity_follows_the_medium_not_the_device_number() {
    let (file, other) = (image(), image());
    let seed = |file: &NamedTempFile| {
        let device = Loop::attach(file.path(), &[])?;
        Some(device.open(&FileOptions::default()).unwrap().identity().unwrap().to_owned())
    };
    let Some(first) = seed(&file) else { return };
    println!("{first}");
    let Some(_in_between) = Loop::attach(other.path(), &[]) else { return };
    assert_eq!(seed(&file).as_ref(), Some(&first));
    assert_ne!(seed(&other), Some(first));
}

/// A file system that accepts writes and can't store them: the file below its device is on a full
/// file system.
struct FullDisk {
    /// Unmounted in this order.
    mounts: [PathBuf; 2],
    device: Option<Loop>,
    dir: tempfile::TempDir,
}

impl FullDisk {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounts = [dir.path().join("fs"), dir.path().join("room")];
        mounts.iter().for_each(|path| fs::create_dir(path).unwrap());
        let mut disk = Self { mounts, device: None, dir };
        let [fs, room] = &disk.mounts;
        let image = room.join("image");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(room))?;
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let device = Loop::attach(&image, &[])?;
        // A journal would stop the file system at the first error.
        let mkfs = ["-q", "-F", "-O", "^has_journal", "-E", "nodiscard"];
        run(Command::new("mkfs.ext4").args(mkfs).arg(&device.device))?;
        run(Command::new("mount").arg(&device.device).arg(fs))?;
        disk.device = Some(device);
        Some(disk)
    }

    fn fill(&self) {
        let mut filler = File::create(self.mounts[1].join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let mounted = fs::read_to_string("/proc/self/mounts").unwrap();
        for (index, path) in self.mounts.iter().enumerate() {
            if index == 1 {
                self.device = None;
            }
            if mounted.contains(path.to_str().unwrap()) {
                assert!(
                    run(Command::new("umount").arg(path)).is_some(),
                    "{} stays",
                    self.dir.path().display()
                );
            }
        }
    }
}

fn run(command: &mut Command) -> Option<()> {
    match command.output() {
        Ok(output) if output.status.success() => Some(()),
        other => {
            println!("SKIPPED: {command:?}: {other:?}");
            None
        }
    }
}

/// The kernel has failed to write back completed writes, and says so once. The FUA write asks
/// first; the flush of another queue is not told of the same loss again.
#[test]
fn a_loss_is_counted_once_whichever_queue_asks() {
    let Some(disk) = FullDisk::new() else { return };
    let path = disk.mounts[0].join("disk");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let options = FileOptions { write_back: true, direct: Direct::Off, ..at_once() };
    let store = FileStore::open(&path, &options).unwrap();
    let (mut one, mut other) = (Driver::new(&store, 1), Driver::new(&store, 1));
    one.write(WRITE, 0, &[1; 4096]).unwrap();
    one.flush().unwrap();
    disk.fill();
    one.write(WRITE, 8 << 20, &vec![1; 4 << 20]).unwrap();
    let written_back = File::open(&path).unwrap().sync_all();
    println!("writing back: {written_back:?}");
    written_back.unwrap_err();
    assert_eq!(store.losses(), 0, "nobody has asked");
    // This write has room; the sync after it finds the loss.
    other.write(WRITE_FUA, 0, &[2; 4096]).unwrap_err();
    assert_eq!(store.losses(), 1);
    one.flush().unwrap();
    other.flush().unwrap();
    assert_eq!(store.losses(), 1);
}

#[test]
fn a_device_is_only_measured_again() {
    let file = image();
    let Some(device) = Loop::attach(file.path(), &[]) else { return };
    let store = device.open(&FileOptions::default()).unwrap();
    let (now, more) = (model::SIZE, model::SIZE + (1 << 20));
    assert_eq!(store.resize(None).unwrap(), now);
    let refused = store.resize(Some(more)).unwrap_err();
    assert!(matches!(refused, ResizeError::Device { now: n } if n == now), "{refused}");

    file.as_file().set_len(more).unwrap();
    let enlarged = Command::new("losetup").arg("--set-capacity").arg(&device.device).status();
    assert!(enlarged.unwrap().success());
    assert_eq!(store.geometry().size, now, "not as yet");
    assert_eq!(store.resize(Some(more)).unwrap(), more);
    assert_eq!(Driver::new(&store, 1).read(more - 512, 512), [0; 512]);
}

#[test]
fn a_device_that_shrank_or_went_away_is_not_called_healthy() {
    let file = image();
    let Some(device) = Loop::attach(file.path(), &[]) else { return };
    let store = device.open(&at_once()).unwrap();
    assert_eq!(store.check_backing(), Ok(()));
    let size = store.geometry().size;
    for (now, wrong) in
        [(4096, BackingError::Shrunk { now: 4096, size }), (0, BackingError::Removed)]
    {
        file.as_file().set_len(now).unwrap();
        let shrunk = Command::new("losetup").arg("--set-capacity").arg(&device.device).status();
        assert!(shrunk.unwrap().success());
        assert_eq!(store.check_backing(), Err(wrong));
        assert!(matches!(store.resize(None), Err(ResizeError::Backing(_))));
    }
}

#[test]
fn a_file_behind_a_loop_device_is_not_exported_for_writing() {
    let image = image();
    let Some(device) = Loop::attach(image.path(), &[]) else { return };
    let open = |read_only| {
        FileStore::open(image.path(), &FileOptions { read_only, ..FileOptions::default() })
    };
    let error = open(false).expect_err("two would write");
    let shown = device.device.display().to_string();
    let OpenError::Busy { occupant, .. } = &error else { panic!("{error}") };
    assert_eq!(*occupant, format!("as {shown}"));
    assert!(error.to_string().contains(&shown), "{error}");
    open(true).expect("a reader changes nothing");
    drop(device);
    // Whoever looks at a new device, such as udev, keeps it for a moment.
    wait_until("the device has let go", || open(false).is_ok());
}
