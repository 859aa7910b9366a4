//! Where running targets and sessions keep what others need to find and steer them.
//!
//! ```text
//! /run/tyche/targets/NAME/    lock, control.sock
//! /run/tyche/sessions/UUID/   lock, session.json, control.sock, the attachment's own
//! /run/tyche/sockets/         those that others are told of: EXPORT.sock
//! /run/tyche/state/TARGET/    which version of what it keeps on disk is the last, by export
//! /run/tyche/exports/         a lock for each export that has a daemon, or is about to
//! /run/tyche/devices/NAME     what udev should know of the block device of that name
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::error::{Code, Context, Error, Result};

/// The directory of everything, unless the environment names another.
const ROOT: &str = "/run/tyche";
/// Names another directory.
const ROOT_VARIABLE: &str = "TYCHE_RUNTIME_DIR";

/// The directory of logs where there is no journal.
pub(crate) const LOGS: &str = "/var/log/tyche";
/// Names another directory.
const LOGS_VARIABLE: &str = "TYCHE_LOG_DIR";

/// Name of the file that a running process holds locked, in its directory.
const LOCK: &str = "lock";
/// How often a lock is tried, and the pause between two tries.
const LOOKS: u32 = 5;
const LOOK: Duration = Duration::from_millis(20);

/// Name of the control socket in its directory.
pub(crate) const CONTROL: &str = "control.sock";

fn root() -> PathBuf {
    std::env::var_os(ROOT_VARIABLE).map_or_else(|| ROOT.into(), PathBuf::from)
}

/// The directory of logs, if the environment says that there is one: the logs of what has its own
/// run-time directory are not among those of others.
pub(crate) fn logs() -> Option<PathBuf> {
    let below_root = || Some(PathBuf::from(std::env::var_os(ROOT_VARIABLE)?).join("log"));
    std::env::var_os(LOGS_VARIABLE).map(PathBuf::from).or_else(below_root)
}

/// An export's name as the name of a file.
pub(crate) fn plain(export: &str) -> String {
    export.replace('/', "_")
}

/// The directory of the sessions.
pub(crate) fn sessions() -> PathBuf {
    root().join("sessions")
}

/// The directory of sockets whose place does not depend on the session.
pub(crate) fn sockets() -> PathBuf {
    root().join("sockets")
}

/// The directory of what udev is told.
pub(crate) fn devices() -> PathBuf {
    root().join("devices")
}

/// The directory of the targets.
pub(crate) fn targets() -> PathBuf {
    root().join("targets")
}

/// The directory of a target's notes about its state.
pub(crate) fn state(target: &str) -> PathBuf {
    root().join("state").join(target)
}

/// Creates a directory that only its owner may enter.
pub(crate) fn create(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .context(Code::Permission, format_args!("create {}", dir.display()))
}

/// The directories below `dir`, in the order of their names; none if `dir` does not exist.
pub(crate) fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found: Vec<_> = entries.filter_map(|entry| entry.ok().map(|it| it.path())).collect();
    found.sort();
    Ok(found)
}

/// A directory of ours while we run; removed when dropped, unless it is left.
pub(crate) struct RuntimeDir {
    path: PathBuf,
    is_left: bool,
    /// Held as long as we run.
    _lock: File,
}

impl RuntimeDir {
    /// Takes the directory, which must not be another running process's.
    ///
    /// # Errors
    /// `Usage` if another process has it.
    pub(crate) fn take(path: PathBuf, what: &str) -> Result<Self> {
        // Until it is locked, others may take it for one that a dead process has left, and remove
        // it.
        for _ in 0..LOOKS {
            create(&path)?;
            if let Some(lock) = lock(&path)? {
                return Ok(Self { path, is_left: false, _lock: lock });
            }
        }
        Err(Error::new(Code::Usage, format!("{what} is running already")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It stays, as that of a process that has died does.
    pub(crate) fn leave(&mut self) {
        self.is_left = true;
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        if self.is_left {
            // Nobody answers there any more.
            let _ = fs::remove_file(self.path.join(CONTROL));
        } else {
            remove(&self.path);
        }
    }
}

/// Takes the lock of a directory of ours; `None` if a running process has it, or if it is gone.
pub(crate) fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join(LOCK);
    let lock = match lock_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        lock => lock.context(Code::Permission, format_args!("lock {}", path.display()))?,
    };
    // Who had it before may have removed it, and all that was beside it.
    Ok(lock.filter(|lock| is_at(lock, &path)))
}

/// Whether an open file is the one of that name.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |it: fs::Metadata| (it.dev(), it.ino());
    let (open, named) = (file.metadata().map(identity), fs::metadata(path).map(identity));
    open.ok().is_some_and(|open| named.is_ok_and(|named| named == open))
}

/// Takes the right to connect an export for a host of this machine.
///
/// # Errors
/// `Usage` if another process has it.
pub(crate) fn lock_export(export: &str, host: Uuid) -> Result<File> {
    let dir = root().join("exports");
    create(&dir)?;
    let file = dir.join(format!("{host}-{}.lock", plain(export)));
    let lock = lock_file(&file);
    let lock = lock.context(Code::Permission, format_args!("lock {}", file.display()))?;
    lock.ok_or_else(|| {
        let message = format!("another `tyche connect` is about to connect `{export}`");
        Error::new(Code::Usage, message)
    })
}

fn lock_file(file: &Path) -> io::Result<Option<File>> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
    // Who looks whether it is locked holds it for a moment.
    for _ in 0..LOOKS {
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(Some(lock));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// Whether a running process has the directory.
pub(crate) fn is_locked(dir: &Path) -> bool {
    let lock = File::open(dir.join(LOCK));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

/// Removes a directory of ours, which is locked, and the files in it, but never what is mounted
/// below.
pub(crate) fn remove(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let lock = dir.join(LOCK);
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| *path != lock) {
        // Errors are looked at once, when the directory itself goes.
        let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    }
    // Last: from then on another process may make the directory its own.
    let _ = fs::remove_file(lock);
    if let Err(error) = fs::remove_dir(dir) {
        tracing::warn!(dir = %dir.display(), %error, "left behind");
    }
}
