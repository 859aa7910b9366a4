//! Claims of block devices that this process serves: finds their users, and keeps new ones away.
//!
//! Mounted file systems, swap and device mappers *claim* a device: then nobody else can open it
//! with `O_EXCL`. Programs that only have it open do not; they are found among the open files of
//! all processes.
//!
//! Opening and closing such a device can wait for I/O that this very process answers, and a thread
//! that waits for that can't be killed. So a [helper process](serve_claims), the same program
//! started again, opens and closes the device. If this process is killed meanwhile, nothing of it
//! stays. A waiting thread would keep its memory alive, and with it the ublk driver's mapping: from
//! Linux 6.15 on the driver would take the server for alive.
//!
//! A program that can't start itself as this helper uses a thread with [file descriptors of its
//! own](crate::descriptors), which does nothing else and, in particular, does not log. That is
//! enough for all but ublk.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::{Error, descriptors};

/// The time that an unmounted device must stay open to count as in use. `udev` opens devices that
/// change for some milliseconds; a program started in a mount namespace of its own (`ip netns
/// exec`) keeps a copy of an unmounted file system until it ends.
pub(crate) const BUSY_GRACE: Duration = Duration::from_secs(3);

/// The interval between two checks.
pub(crate) const BUSY_RETRY: Duration = Duration::from_millis(20);

/// The longest wait for the kernel to write out its cache.
const SYNC_TIMEOUT: Duration = Duration::from_secs(300);

/// The name of the helper process. Because of the `@`, systemd does not kill it in a shutdown, like
/// the daemon.
const HELPER: &str = "@tyche-claim";

/// Whether this program can be started as the helper.
static CAN_START_HELPER: AtomicBool = AtomicBool::new(false);

/// Must be called first in a program. Started as the helper, it claims a device for another process
/// and exits. Otherwise it enables this program to start itself as the helper.
pub fn serve_claims() {
    let mut args = std::env::args_os();
    if args.next().as_deref() != Some(OsStr::new(HELPER)) {
        CAN_START_HELPER.store(true, Ordering::Relaxed);
        return;
    }
    // Signals that stop a service are not for the helper: it ends when it is released.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // The name in a list of processes.
    let _ = rustix::thread::set_name(c"tyche-claim");
    // SAFETY: nothing was opened yet.
    let private = unsafe { descriptors::close_inherited() };
    let device = args.next().unwrap_or_default();
    let cache = if args.next().is_some() { Cache::GivenUp } else { Cache::Written };
    let file = private.and_then(|()| claim_and_sync(Path::new(&device), parent_id(), cache));
    // The reader of the answer may be gone.
    let _ = writeln!(io::stdout(), "{}", file.as_ref().err().map_or(0, errno));
    // Nothing is ever sent: the read ends when the other side is closed.
    let _ = io::stdin().read(&mut [0]);
    drop(file);
    std::process::exit(0);
}

/// The end of the kernel's cache of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cache {
    /// It is written out; the device stays if that fails.
    #[default]
    Written,
    /// It is given up, because the disk has failed for good.
    GivenUp,
}

/// A claimed block device: nobody else uses it, and nobody can mount it until the release.
#[derive(Debug)]
pub(crate) struct Claim {
    release: Sender<()>,
    holder: JoinHandle<()>,
}

impl Claim {
    /// Claims the device and writes out the kernel's cache of it, unless that is given up. `None`
    /// if it is mounted, or stays in use for [`BUSY_GRACE`].
    pub(crate) fn take(device: &Path, cache: Cache) -> Result<Option<Self>, Error> {
        let explain = |error| Error::new(format!("claim {}", device.display()), error);
        let (sender, claimed) = mpsc::sync_channel(1);
        let (release, released) = mpsc::channel();
        let path = device.to_owned();
        let hold = move || hold((&path, cache), &sender, &released);
        let holder =
            thread::Builder::new().name("device-claim".into()).spawn(hold).map_err(explain)?;
        match claimed.recv_timeout(SYNC_TIMEOUT) {
            Ok(Ok(())) => Ok(Some(Self { release, holder })),
            Ok(Err(error)) if error.kind() == ErrorKind::ResourceBusy => Ok(None),
            Ok(Err(error)) => Err(explain(error)),
            Err(_) => Err(explain(ErrorKind::TimedOut.into())
                .remedy("its disk does not answer: restore the connection, or use force")),
        }
    }

    /// Releases the claim, and waits until the device is closed.
    pub(crate) fn release(self) {
        drop(self.release);
        if self.holder.join().is_err() {
            warn!("the thread that claimed a device had panicked");
        }
    }
}

/// The body of a claim's thread.
fn hold(
    (device, cache): (&Path, Cache),
    claimed: &SyncSender<io::Result<()>>,
    released: &Receiver<()>,
) {
    if CAN_START_HELPER.load(Ordering::Relaxed) {
        return hold_by_process((device, cache), claimed, released);
    }
    // SAFETY: this thread owns nothing but channels and a path, and uses only files that it opens
    // itself afterwards.
    let private = unsafe { descriptors::make_private() };
    let file = private.and_then(|()| claim_and_sync(device, std::process::id(), cache));
    let (_file, result) = match file {
        Ok(file) => (Some(file), Ok(())),
        Err(error) => (None, Err(error)),
    };
    report_and_wait(result, claimed, released);
}

/// Claims a device as [`hold`] does, in a helper process.
fn hold_by_process(
    (device, cache): (&Path, Cache),
    claimed: &SyncSender<io::Result<()>>,
    released: &Receiver<()>,
) {
    let mut helper = Command::new("/proc/self/exe");
    // In a process group of its own, where Ctrl-C does not reach it.
    helper.arg0(HELPER).arg(device).process_group(0);
    if cache == Cache::GivenUp {
        helper.arg("given-up");
    }
    helper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut helper = match helper.spawn() {
        Ok(helper) => helper,
        Err(error) => {
            let error = io::Error::other(format!("start {HELPER}: {error}"));
            return report_and_wait(Err(error), claimed, released);
        }
    };
    let (mut said, stdout) = (String::new(), helper.stdout.take().expect("it is a pipe"));
    let result =
        BufReader::new(stdout).read_line(&mut said).and_then(|_| match said.trim().parse() {
            Ok(0) => Ok(()),
            Ok(code) => Err(io::Error::from_raw_os_error(code)),
            Err(_) => Err(io::Error::other(format!("{HELPER} died"))),
        });
    report_and_wait(result, claimed, released);
    drop(helper.stdin.take());
    let _ = helper.wait();
}

/// Reports the result of a claim, and waits for the release.
fn report_and_wait(
    result: io::Result<()>,
    claimed: &SyncSender<io::Result<()>>,
    released: &Receiver<()>,
) {
    // The receiver may have given up waiting; then there is nothing to hold.
    if claimed.send(result).is_ok() {
        // Nothing is ever sent: the call ends when the other side is dropped.
        let _ = released.recv();
    }
}

fn errno(error: &io::Error) -> i32 {
    match error.kind() {
        ErrorKind::ResourceBusy => libc::EBUSY,
        _ => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Claims a device and writes out the kernel's cache of it, unless that is given up; waits while
/// the device does not answer.
fn claim_and_sync(device: &Path, server: u32, cache: Cache) -> io::Result<File> {
    let file = claim(device, server)?;
    match cache {
        Cache::Written => file.sync_all()?,
        Cache::GivenUp => {}
    }
    Ok(file)
}

fn claim(device: &Path, server: u32) -> io::Result<File> {
    let file = open(device, 0)?;
    let patience = if is_mounted(&file) { Duration::ZERO } else { BUSY_GRACE };
    drop(file);
    let deadline = Instant::now() + patience;
    loop {
        let error = match open(device, libc::O_EXCL) {
            Ok(file) if is_open_elsewhere(&file, server)? => ErrorKind::ResourceBusy.into(),
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::ResourceBusy || Instant::now() >= deadline {
            return Err(error);
        }
        thread::sleep(BUSY_RETRY);
    }
}

/// Whether a device is mounted, claimed or opened by others. The open may wait for the disk, so
/// this process must either not serve the device or answer its every request.
pub(crate) fn is_in_use(device: &Path) -> io::Result<bool> {
    match open(device, libc::O_EXCL) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(true),
        Err(error) => Err(error),
        Ok(device) => is_open_elsewhere(&device, std::process::id()),
    }
}

fn open(device: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags).open(device)
}

/// Opens a device. Must be called in a thread that was started for nothing else.
pub(crate) fn open_privately(device: &Path, flags: i32) -> io::Result<File> {
    // SAFETY: such threads own nothing but channels and a path, and use only files that they open
    // themselves afterwards.
    unsafe { descriptors::make_private()? };
    open(device, flags)
}

/// Whether a file system on the device is mounted in this mount namespace; the device is then not
/// expected to be released soon. False for file systems that do not name their device.
pub(crate) fn is_mounted(device: &File) -> bool {
    let Ok(number) = device.metadata().map(|it| it.rdev()) else { return false };
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|mount| mount.split(' ').nth(2) == Some(&number))
}

/// Whether a process other than this one and the device's server has the device, or a partition of
/// it, open. Processes that end or close it meanwhile do not count.
fn is_open_elsewhere(device: &File, server: u32) -> io::Result<bool> {
    let devices = with_partitions(device.metadata()?.rdev());
    let own = [std::process::id(), server].map(|it| it.to_string());
    for process in fs::read_dir("/proc")?.flatten() {
        let name = process.file_name();
        let is_process = name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        if !is_process || own.contains(&name.to_string_lossy().into_owned()) {
            continue;
        }
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        for file in files.flatten() {
            let found = fs::metadata(file.path());
            if found
                .is_ok_and(|it| it.file_type().is_block_device() && devices.contains(&it.rdev()))
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The numbers of a device and of its partitions.
fn with_partitions(device: u64) -> Vec<u64> {
    let dir = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let partitions = fs::read_dir(dir).into_iter().flatten().flatten();
    let number = |text: String| {
        let (major, minor) = text.trim().split_once(':')?;
        Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let partitions = partitions
        .filter(|it| it.path().join("partition").exists())
        .filter_map(|it| number(fs::read_to_string(it.path().join("dev")).ok()?));
    partitions.chain([device]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_device_can_be_claimed_and_a_missing_one_cannot() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_in_use(file.path()).unwrap());
        let take = |path: &str| Claim::take(Path::new(path), Cache::Written);
        let path = file.path().to_str().unwrap();
        take(path).unwrap().expect("a file is nobody's device").release();
        assert!(is_in_use(Path::new("/no/such/device")).is_err());
        assert!(take("/no/such/device").is_err());
    }

    #[test]
    fn a_device_that_takes_no_writes_can_be_claimed_once_its_cache_is_given_up() {
        // A device without fsync.
        let take = |cache| Claim::take(Path::new("/dev/zero"), cache);
        assert!(take(Cache::Written).is_err());
        take(Cache::GivenUp).unwrap().expect("it is nobody's disk").release();
    }
}
