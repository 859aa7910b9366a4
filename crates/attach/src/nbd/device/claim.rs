//! Opening a device that this very process serves.
//!
//! That can mean waiting for I/O which the process answers, so it is done by threads with [file
//! descriptors of their own](crate::descriptors): if the process dies meanwhile, its sockets are
//! closed all the same. They do nothing else, least of all logging.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing::warn;

use crate::{Error, descriptors};

/// How long writing out what the kernel has cached may take.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps everybody else from mounting the device, until it is released.
#[derive(Debug)]
pub(super) struct Claim {
    release: Sender<()>,
    holder: JoinHandle<()>,
}

impl Claim {
    /// Claims the device, and writes out what the kernel has cached of it. `None` if somebody
    /// else has a claim, a mounted file system most often.
    pub(super) fn take(device: &Path) -> Result<Option<Self>, Error> {
        let explain = |error| Error::new(format!("claim {}", device.display()), error);
        let (sender, claimed) = mpsc::sync_channel(1);
        let (release, released) = mpsc::channel();
        let path = device.to_owned();
        let hold = move || hold(&path, &sender, &released);
        let holder =
            thread::Builder::new().name("nbd-claim".into()).spawn(hold).map_err(explain)?;
        match claimed.recv_timeout(SYNC_TIMEOUT) {
            Ok(Ok(())) => Ok(Some(Self { release, holder })),
            Ok(Err(error)) if error.kind() == ErrorKind::ResourceBusy => Ok(None),
            Ok(Err(error)) => Err(explain(error)),
            Err(_) => Err(explain(ErrorKind::TimedOut.into())
                .remedy("its disk does not answer: restore the connection, or use force")),
        }
    }

    /// Lets go, once the device is closed.
    pub(super) fn release(self) {
        drop(self.release);
        if self.holder.join().is_err() {
            warn!("the thread that claimed an nbd device had panicked");
        }
    }
}

fn hold(device: &Path, claimed: &mpsc::SyncSender<io::Result<()>>, released: &Receiver<()>) {
    let file = open_privately(device, libc::O_EXCL).and_then(|file| {
        file.sync_all()?;
        Ok(file)
    });
    let (file, result) = match file {
        Ok(file) => (Some(file), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // Whoever asked may have given up waiting; then there is nothing to hold.
    if claimed.send(result).is_ok() {
        // Nothing is ever sent: this ends when the other side is dropped.
        let _ = released.recv();
    }
    drop(file);
}

/// Lets the kernel read the partition table, which it does when a device is opened that has got
/// a disk.
pub(super) fn scan_partitions(device: &Path) {
    let path: PathBuf = device.to_owned();
    let scan = move || drop(open_privately(&path, 0));
    if let Err(error) = thread::Builder::new().name("nbd-scan".into()).spawn(scan) {
        warn!(%error, "no thread to look for partitions");
    }
}

/// To be called by threads that were started for nothing else.
fn open_privately(device: &Path, flags: i32) -> io::Result<File> {
    // SAFETY: the threads above own nothing but channels and a path, and use only files that
    // they open themselves, after this.
    unsafe { descriptors::make_private()? };
    OpenOptions::new().read(true).custom_flags(flags).open(device)
}
