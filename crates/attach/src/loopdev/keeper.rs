//! The keeper: the thread that holds a loop device open.
//!
//! The kernel unbinds a loop device marked `AUTOCLEAR` at its last close. So the keeper holds it
//! open. The device exists while this process lives; when the process ends, however it ends, the
//! device is unbound as soon as its last user has closed it.
//!
//! Opening and closing the device and its file waits for I/O that *this process* answers. That
//! takes a thread with [file descriptors of its own](crate::descriptors). The thread does nothing
//! else and, in particular, does not log: a log file's descriptor might have the loop device's
//! number here.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use super::sys::{self, Backing};
use crate::claim::{BUSY_RETRY, is_mounted};
use crate::{Error, Stopped, descriptors};

/// The most attempts to bind a device: other processes may take the free one just found.
const ATTEMPTS_MAX: usize = 64;

/// Commands to the keeper. It answers each.
pub(super) enum Command {
    /// Give the device the present size of the file.
    Resize(SyncSender<Result<(), Error>>),
    /// Release the device, unless others have it open for longer than `patience`.
    Release { patience: Duration, answer: SyncSender<Result<Stopped, Error>> },
}

/// Parameters of a binding.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) file: PathBuf,
    pub(super) block_size: u32,
    pub(super) read_only: bool,
    pub(super) rotational: bool,
}

impl Binding {
    /// The name that users see.
    fn name(&self) -> &OsStr {
        self.file.file_name().unwrap_or_default()
    }
}

/// The keeper's thread: binds a device and reports it, then executes commands until the release, or
/// until the other side of the channel is gone.
pub(super) fn run(
    binding: &Binding,
    bound: &SyncSender<Result<PathBuf, Error>>,
    commands: &Receiver<Command>,
) {
    // SAFETY: this thread was started for this function alone. It has only channels and paths, and
    // uses only files that it opens itself below.
    let private = unsafe { descriptors::make_private() };
    let held = private
        .map_err(|error| {
            Error::new("close_range", error).remedy("a kernel of version 5.11 or later is needed")
        })
        .and_then(|()| Held::bind(binding));
    let mut held = match held {
        Ok(held) => held,
        Err(error) => {
            // Here and below, the receiver may have stopped waiting.
            let _ = bound.send(Err(error));
            return;
        }
    };
    if bound.send(Ok(held.path.clone())).is_err() {
        return;
    }
    while let Ok(command) = commands.recv() {
        match command {
            Command::Resize(answer) => {
                let _ = answer.send(held.resize(&binding.file));
            }
            Command::Release { patience, answer } => match held.release(patience) {
                Ok(None) => {
                    let _ = answer.send(Ok(Stopped::Gone));
                    return;
                }
                Ok(Some(still_held)) => {
                    held = still_held;
                    let _ = answer.send(Ok(Stopped::InUse));
                }
                Err(error) => {
                    let _ = answer.send(Err(error));
                    return;
                }
            },
        }
    }
}

/// A loop device that is bound and open.
struct Held {
    path: PathBuf,
    /// Open for reading only: some kernels allow no other writers beside a mounted file system.
    device: File,
    backing: Backing,
}

impl Held {
    fn bind(binding: &Binding) -> Result<Self, Error> {
        let control = open("/dev/loop-control".as_ref(), true)?;
        let file = open(&binding.file, !binding.read_only)?;
        for _ in 0..ATTEMPTS_MAX {
            let number = sys::free_number(&control).map_err(|error| {
                Error::new("find a free loop device", error)
                    .remedy("detach some that are not needed (losetup -a shows them)")
            })?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = open(&path, true)?;
            let &Binding { block_size, read_only, .. } = binding;
            match sys::configure(&device, &file, binding.name(), block_size, read_only) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => continue,
                result => result.map_err(|error| explain("bind", &path, error))?,
            }
            tune(number, binding.rotational);
            let reader = open(&path, false)?;
            let backing =
                sys::backing(&reader).map_err(|error| explain("look at", &path, error))?;
            let gone = || explain("look at", &path, ErrorKind::NotFound.into());
            let backing = backing.ok_or_else(gone)?;
            return Ok(Self { path, device: reader, backing });
        }
        let error = Error::new("bind a loop device", ErrorKind::ResourceBusy);
        Err(error.remedy("others take them faster: try again"))
    }

    fn resize(&self, file: &Path) -> Result<(), Error> {
        let explain = |error| explain("resize", &self.path, error);
        // Makes the kernel ask the file system for the size, which not every version does below.
        fs::metadata(file).map_err(explain)?;
        sys::update_capacity(&self.device).map_err(explain)
    }

    /// Closes the device, and opens it again if others use it, so that it is still bound. The
    /// device's cache is written out before, as at every last close.
    fn release(self, patience: Duration) -> Result<Option<Self>, Error> {
        let Self { path, device, backing } = self;
        let patience = if is_mounted(&device) { Duration::ZERO } else { patience };
        drop(device);
        let deadline = Instant::now() + patience;
        loop {
            let device = match File::open(&path) {
                Ok(device) => device,
                // Unbound, and then removed by another process.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
                Err(error) => return Err(explain("reopen", &path, error)),
            };
            match sys::backing(&device) {
                // It may be bound to a file of another process by now.
                Ok(found) if found != Some(backing) => return Ok(None),
                Err(error) => return Err(explain("look at", &path, error)),
                Ok(_) if Instant::now() >= deadline => {
                    return Ok(Some(Self { path, device, backing }));
                }
                Ok(_) => {}
            }
            drop(device);
            thread::sleep(BUSY_RETRY);
        }
    }
}

/// The longest request of a device, in KiB.
///
/// FUSE takes 256 pages at once. A request may have 128 segments, each of which may begin in the
/// middle of a page, so only half of the 256 is sure to be whole. The excess is cut off at a byte,
/// not at a block, and refused as misaligned.
const REQUEST_KIB: u32 = 512;

/// Sets queue attributes that the block layer can't derive from a file. Where `/sys` is read-only
/// (in some containers), direct I/O with odd buffers of 1 MiB and more may fail.
fn tune(number: u32, rotational: bool) {
    let queue = PathBuf::from(format!("/sys/block/loop{number}/queue"));
    let _ = fs::write(queue.join("max_sectors_kb"), REQUEST_KIB.to_string());
    let _ = fs::write(queue.join("rotational"), if rotational { "1" } else { "0" });
}

fn open(path: &Path, write: bool) -> Result<File, Error> {
    OpenOptions::new().read(true).write(write).open(path).map_err(|error| {
        let error = explain("open", path, error);
        match error.kind() {
            ErrorKind::PermissionDenied => error.remedy("run as root"),
            ErrorKind::NotFound => error.remedy(
                "load the kernel module (modprobe loop); in a container, make the device's node",
            ),
            _ => error,
        }
    })
}

fn explain(action: &str, path: &Path, error: io::Error) -> Error {
    Error::new(format!("{action} {}", path.display()), error)
}
