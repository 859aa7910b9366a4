//! The run-time directory: running targets and sessions keep there what other processes need to
//! find and control them.
//!
//! ```text
//! /run/tyche/targets/NAME/    lock, control.sock
//! /run/tyche/sessions/UUID/   lock, session.json, control.sock, the attachment's own
//! /run/tyche/sockets/         those at a well-known path: EXPORT.sock
//! /run/tyche/state/TARGET/    UUID of the last version of each export's record
//! /run/tyche/exports/         a lock for each export that has a daemon, or is about to
//! /run/tyche/fcoe/            a lock for each port of FCoE: its interface's address and number;
//!                             and for each of a session its N_Port_ID, in a file of its name
//! /run/tyche/devices/NAME     the file for udev about the block device of that name
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, flock};
use tyche_session::{RUNTIME_DIR_VARIABLE, runtime_dir, set};
use uuid::Uuid;

use crate::shared::control_socket;
use crate::shared::error::{Code, Context, Error, Result};
use crate::shared::readers;

/// The directory of logs on machines without a journal.
pub(crate) const LOGS: &str = "/var/log/tyche";
/// Environment variable that names another directory.
const LOGS_VARIABLE: &str = "TYCHE_LOG_DIR";

/// The environment variables that name directories of a daemon.
pub(crate) const VARIABLES: [&str; 4] =
    [RUNTIME_DIR_VARIABLE, LOGS_VARIABLE, "TYCHE_STATE_DIR", "TYCHE_KNOWN_TARGETS"];

/// Name of the file in its directory that a running process holds locked.
const LOCK: &str = "lock";
/// Name of the file in it that says which process takes over the device of a dead one.
const SUCCESSOR: &str = "successor";
/// Number of attempts to take a lock, and the pause between two of them.
const LOOKS: u32 = 5;
const LOOK: Duration = Duration::from_millis(20);

/// Name of the control socket in its directory.
pub(crate) const CONTROL: &str = "control.sock";

/// The directory of logs, if the environment names one: processes with a run-time directory of
/// their own keep their logs apart from others'.
pub(crate) fn logs() -> Option<PathBuf> {
    let below_root = || Some(PathBuf::from(set(RUNTIME_DIR_VARIABLE)?).join("log"));
    set(LOGS_VARIABLE).map(PathBuf::from).or_else(below_root)
}

/// An export's name as a file name: each has one of its own.
pub(crate) fn plain(export: &str) -> String {
    export.replace('%', "%25").replace('/', "%2F")
}

/// The directory of the sessions.
pub(crate) fn sessions() -> PathBuf {
    runtime_dir().join("sessions")
}

/// The directory of sockets with a path that does not depend on the session.
pub(crate) fn sockets() -> PathBuf {
    runtime_dir().join("sockets")
}

/// The directory of the files for udev.
pub(crate) fn devices() -> PathBuf {
    runtime_dir().join("devices")
}

/// The directory of the targets.
pub(crate) fn targets() -> PathBuf {
    runtime_dir().join("targets")
}

/// The directory of a target's notes about its state.
pub(crate) fn state(target: &str) -> PathBuf {
    runtime_dir().join("state").join(target)
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

/// A directory of this process while it runs; removed when dropped, unless it is to stay.
pub(crate) struct RuntimeDir {
    path: PathBuf,
    is_left: bool,
    /// The lock, held as long as the process runs.
    lock: File,
}

impl RuntimeDir {
    /// Takes the directory, which must not be another running process's.
    ///
    /// # Errors
    /// `Usage` if another process has it.
    pub(crate) fn take(path: PathBuf, what: &str) -> Result<Self> {
        // Until it is locked, other processes may take it for a leftover of a dead process, and
        // remove it.
        for _ in 0..LOOKS {
            create(&path)?;
            if let Some(lock) = lock(&path)? {
                own(&lock);
                admit_readers(&path);
                return Ok(Self { path, is_left: false, lock });
            }
        }
        Err(Error::new(Code::Usage, format!("{what} is running already")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory anew if others have removed it; false if it is there.
    ///
    /// # Errors
    /// Another process has it now, or it can't be made.
    pub(crate) fn restore(&mut self) -> Result<bool> {
        if is_at(&self.lock, &self.path.join(LOCK)) {
            return Ok(false);
        }
        create(&self.path)?;
        let taken = || Error::new(Code::Other, "another process has taken its place");
        self.lock = lock(&self.path)?.ok_or_else(taken)?;
        own(&self.lock);
        admit_readers(&self.path);
        Ok(true)
    }

    /// Lets the directory stay, like that of a dead process.
    pub(crate) fn leave(&mut self) {
        self.is_left = true;
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        if self.is_left {
            // Nothing listens there any more.
            let _ = fs::remove_file(self.path.join(CONTROL));
        } else {
            remove(&self.path);
        }
    }
}

/// Takes the lock of a directory; `None` if a running process has it, or if it is gone.
pub(crate) fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join(LOCK);
    let lock = match lock_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        lock => lock.context(Code::Permission, format_args!("lock {}", path.display()))?,
    };
    // The previous owner may have removed it, and the whole directory.
    Ok(lock.filter(|lock| is_at(lock, &path)))
}

/// Takes the lock of a dead daemon's directory for the next daemon of its device, and says so
/// there. Waits for up to `limit` for who only looks at it; `None` if another process keeps it, or
/// if it is gone.
pub(crate) fn succeed(dir: &Path, limit: Duration) -> Result<Option<File>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(lock) = lock(dir)? {
            let noted = fs::write(dir.join(SUCCESSOR), process::id().to_string());
            if let Err(error) = noted {
                tracing::warn!(%error, "the device is not listed until it has its next daemon");
            }
            return Ok(Some(lock));
        }
        if !dir.join(LOCK).exists() || Instant::now() >= deadline {
            return Ok(None);
        }
    }
}

/// The process that has taken a dead daemon's directory to take over its device. It is of no
/// meaning unless the directory is locked.
pub(crate) fn successor(dir: &Path) -> Option<u32> {
    fs::read_to_string(dir.join(SUCCESSOR)).ok()?.parse().ok()
}

/// Lets readers find the process that owns a directory.
fn admit_readers(dir: &Path) {
    let enter = Mode::RGRP | Mode::XGRP;
    let root = runtime_dir();
    for dir in dir.ancestors().take_while(|dir| dir.starts_with(&root)) {
        readers::admit(dir, enter);
    }
}

/// Keeps a lock from others, and writes this process's number into it, for those whom the process
/// does not answer.
fn own(lock: &File) {
    // Whoever can open it can hold it, and keep the next process from starting.
    if let Err(error) = lock.set_permissions(Permissions::from_mode(0o600)) {
        tracing::warn!(%error, "others may hold the lock of this process");
    }
    // Only people need it.
    let _ =
        lock.set_len(0).and_then(|()| lock.write_all_at(process::id().to_string().as_bytes(), 0));
}

/// The process that has taken the directory; none if it has not said so.
pub(crate) fn owner(dir: &Path) -> Option<u32> {
    fs::read_to_string(dir.join(LOCK)).ok()?.parse().ok()
}

/// Whether an open file is still the one at that path.
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
    let dir = runtime_dir().join("exports");
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
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).mode(0o600).open(file)?;
    // A process that checks the lock holds it for a moment.
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
    match File::open(dir.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockShared).is_err(),
        // Readers have no right to it.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            control_socket::listens(&dir.join(CONTROL))
        }
        Err(_) => false,
    }
}

/// Waits until no process has the directory, for `limit` at most; false if one still has.
pub(crate) fn await_unlocked(dir: &Path, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while is_locked(dir) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// Removes a directory, which is locked, and the files in it, but never a mount below it.
pub(crate) fn remove(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let lock = dir.join(LOCK);
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| *path != lock) {
        // Errors show up when the directory itself is removed.
        let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    }
    // Removed last: from then on another process may take the directory.
    let _ = fs::remove_file(lock);
    if let Err(error) = fs::remove_dir(dir) {
        tracing::warn!(dir = %dir.display(), %error, "left behind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_exports_have_the_same_file_name() {
        let names = ["store_1/vm", "store/1_vm", "a_b", "a/b", "a%2Fb", "a%252Fb"];
        let plain: std::collections::BTreeSet<_> = names.into_iter().map(plain).collect();
        assert_eq!(plain.len(), names.len(), "{plain:?}");
        assert!(plain.iter().all(|name| !name.contains('/')));
    }

    /// On a busy machine who lists sessions holds the lock longer than a few looks take.
    #[test]
    fn the_next_daemon_waits_for_who_looks_at_the_last_ones_lock() {
        let dir = tempfile::tempdir().unwrap();
        let looks = lock(dir.path()).unwrap().unwrap();
        assert!(lock(dir.path()).unwrap().is_none(), "it is held");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| succeed(dir.path(), Duration::from_secs(60)).unwrap());
            std::thread::sleep(LOOK * LOOKS * 2);
            assert!(!next.is_finished());
            drop(looks);
            assert!(next.join().unwrap().is_some());
        });
        assert_eq!(successor(dir.path()), Some(process::id()));
        let gone = dir.path().join("gone");
        assert!(succeed(&gone, Duration::from_secs(60)).unwrap().is_none());
    }
}
